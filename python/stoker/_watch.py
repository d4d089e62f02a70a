"""The loader that people have today, measured before they change anything."""
from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TextIO, TypeVar

from ._times import Step, Times

Item = TypeVar("Item")


class Watch(Generic[Item]):
    """Any loader, with a clock beside it (``stoker.watch``).  What it does not know itself it asks of the loader."""

    def __init__(self, loader: Iterable[Item], every_s: float | None, file: TextIO | None) -> None:
        self._loader = loader
        self._every_s = every_s
        self._file = file
        self.times = Times()

    def __iter__(self) -> Iterator[Item]:
        times, told = self.times, time.monotonic()
        times.asked()
        items = iter(self._loader)  # workers may be started here: the trainer waits for them too
        times.ended()
        try:
            while True:
                times.asked()
                try:
                    item = next(items)
                except StopIteration:
                    times.ended()
                    return
                times.given()
                if self._every_s is not None and time.monotonic() - told >= self._every_s:
                    self._print()
                    told = time.monotonic()
                yield item
        finally:
            times.asked()
            self._print()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)

    def step(self) -> Step:
        """The training's own part of a step: ``with loader.step():`` (``stoker.Loader.step``)."""
        return self.times.step()

    def metrics(self) -> dict[str, Any]:
        """Batches, seconds and shares so far (docs/metrics.md)."""
        return {"micro_batches": self.times.batches, **self.times.report()}

    def _print(self) -> None:
        said = self.metrics()
        marks = "".join(f", {name[:-2]} {seconds:.2f} s" for name, seconds in said["marks"].items())
        print(f"stoker.watch: {said['micro_batches']} batches, waited {said['wait_s']:.2f} s (the first {said['first_wait_s']:.2f} s), "
              f"trained {said['train_s']:.2f} s{marks}: latency factor {said['latency_factor']:.3f}",
              file=self._file or sys.stderr)


def watch(loader: Iterable[Item], *, every_s: float | None = 30, file: TextIO | None = None) -> Watch[Item]:
    """Measure any loader: a torch ``DataLoader``, a generator, a list.

    ``for batch in stoker.watch(loader):`` prints, every so often and at the end of each pass, how long the trainer waited, how
    long it trained, and the latency factor wait / (wait + train): the share of its time that it waited for data.

    Parameters
    ----------
    loader : iterable
        It is iterated as before, and any other attribute is its own.
    every_s : float or None
        Seconds between two lines; None: only at the end of each pass.
    file : text file or None
        Where to print; None: standard error.

    Returns
    -------
    Watch
        With ``step()`` and ``metrics()`` as ``stoker.Loader`` has them.

    Notes
    -----
    A device that works asynchronously is still busy when the trainer asks for the next batch, so waiting is counted that costs
    nothing: synchronise at the end of a step to see what it took.
    """
    return Watch(loader, every_s, file)
