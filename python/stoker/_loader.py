"""The loader: micro-batches of one data-parallel rank, in the order of the plan."""
from __future__ import annotations

import atexit
import itertools
import operator
import os
import sysconfig
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, TypeVar

from . import _core
from ._batch import Batch, PixelRule, State
from ._exceptions import CallError, Status
from ._options import Config, read
from ._times import Step, Times, share

Progress = Callable[[str, str, int, int], object]
Own = TypeVar("Own", bound="Loader")

_open_loaders: weakref.WeakSet[Loader]


def state_text(state: str | int | Mapping[str, str] | None) -> str | None:
    """The text in a state, which is the text itself, what ``state_dict`` gives, or the number of a step."""
    if state is None or isinstance(state, str):
        return state
    if isinstance(state, int):
        return _core.state_at_step(state)
    if not isinstance(state, Mapping) or set(state) != {"stoker"}:
        raise TypeError("a state is what state_dict() gives: a dict with the one key 'stoker'; or the number of a step")
    return state["stoker"]


_numbers = itertools.count()


def own_name() -> str:
    """A name for the engine of one loader that nobody shares."""
    return f"alone-{os.getpid()}-{time.monotonic_ns():x}-{next(_numbers)}"


def name_command() -> None:
    """Tell the library where the command is that an engine process runs (``STK_COMMAND``), if it lies where this package has it."""
    if os.environ.get("STK_COMMAND"):
        return
    package = os.path.dirname(os.path.abspath(__file__))
    for place in (os.path.join(package, "../../cli/stoker"), os.path.join(sysconfig.get_path("scripts"), "stoker"),
                  os.path.join(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")), "stoker")):
        if os.access(place, os.X_OK):
            os.environ["STK_COMMAND"] = os.path.realpath(place)
            return


class Loader:
    """An iterator over the micro-batches of one rank.

    It runs the whole plan, all epochs.  Breaking out and iterating again goes on where it stopped; ``reset()`` starts anew;
    ``len()`` is the exact number of micro-batches of the whole run.  Making begins at once, so open it before the model is built.

    Parameters
    ----------
    config : path, mapping or None
        The configuration: a file, the same keys in a mapping, or None when all are given as keywords.
    rank, world_size : int
        Which of how many data-parallel ranks this process is.
    split : {"train", "eval"}
        Which part of the configuration.
    engine : {"process", "inprocess"} or None
        Where batches are made; None: as the option ``engine`` says.  "process", the default: one engine process for all ranks of the run on this machine, which the first of them
        starts (docs/engine-process.md); the trainer's own process only maps its memory.  "inprocess": threads of this process, for debugging.
    run : str or None
        Names the run, by which its processes find their engine.  None: the option ``run``, else the launcher's id (torchrun, SLURM);
        a single process (world_size 1) needs none.
    fields : iterable of str or None
        Which fields are wanted; None: all.
    readers : int
        Processes that read this rank's micro-batches: tensor and pipeline siblings, each with a loader of the same rank.
    node_ranks : iterable of int or None
        All data-parallel ranks of this machine, in any order; None: only ``rank``.
    state : mapping, str, int or None
        Where to go on: what ``state_dict()`` gave, or the text in it.  A number: at that step, and nothing is checked.
    allow_changes : iterable of str
        Options that change the stream and may differ from those of the state (docs/checkpoint-format.md).
    progress : callable or None
        While the index is built: ``progress(data_set, phase, done, total)``, some times a second.
    **options
        Any option of docs/options.md over those of the configuration: ``batch=64``, ``keep=4``, ``limits={"json_depth": 8}``;
        for both splits, but for what ``eval`` states itself: ``eval={"batch": 2}`` is over that.  Relative paths start from the
        working folder.

    Raises
    ------
    stoker.Error
        See its subclasses.  Nothing is left open.

    Notes
    -----
    One thread at a time reads a loader; any thread may ask for its metrics meanwhile, and release batches.  A loader does not pass a
    fork or a pickle: open one in the process that reads it.
    """

    _by_machine = True  # an engine serves ranks of one machine that have equally many readers each

    def __init__(self, config: Config, rank: int = 0, world_size: int = 1, *, split: Literal["train", "eval"] = "train",
                 engine: Literal["process", "inprocess"] | None = None, run: str | None = None,
                 state: str | int | Mapping[str, str] | None = None, fields: Iterable[str] | None = None, readers: int = 1,
                 node_ranks: Iterable[int] | None = None, allow_changes: Iterable[str] = (), progress: Progress | None = None,
                 **options: Any) -> None:
        if not 0 <= rank < world_size:
            raise CallError(f"rank {rank} is not in a world of {world_size}", Status.ERR_USAGE)
        self._file, self._pairs = read(config, {"engine": engine, **options})
        self._split, self._rank, self._world = split, rank, world_size
        self._pixel_rule = PixelRule(self._file, self._pairs, split)
        name_command()
        self._attach = (run, own_name() if world_size == 1 and readers == 1 else None, () if node_ranks is None else tuple(map(operator.index, node_ranks)), readers,
                        None if fields is None else tuple(fields))
        self._progress = progress
        self._open(state_text(state), allow_changes)
        _open_loaders.add(self)

    def _open(self, text: str | None, allow_changes: Iterable[str] = ()) -> None:
        changes = allow_changes if isinstance(allow_changes, str) else ",".join(allow_changes)
        self._times = Times()
        self._at_beginning = text is None
        self._reader = _core.Reader(self._file, self._pairs, self._split, self._rank, self._world, self._attach, text, changes, Batch,
                                    self._progress)

    # --- reading ---

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        return self.next()

    def next(self, timeout: float | None = None) -> Batch:
        """Wait for the next micro-batch.

        Parameters
        ----------
        timeout : float or None
            Seconds; None: as long as it takes (up to the option ``timeout``).

        Raises
        ------
        StopIteration
            The plan is exhausted.
        TimeoutError
            None was ready in time; ask again.
        """
        self._times.asked()
        try:
            batch = self._reader.next(timeout)
        except BaseException:
            self._times.ended()
            raise
        self._times.given()
        batch.pixel_rule = self._pixel_rule
        return batch

    def __len__(self) -> int:
        return self._reader.micros

    @property
    def steps(self) -> int:
        """Number of steps of the whole run."""
        return self._reader.steps

    # --- position ---

    def state_dict(self) -> State:
        """Where the run stands, after the micro-batch that was delivered last: one short text, the same on every rank at the end of a step."""
        return {"stoker": self._reader.state()}

    def load_state_dict(self, state: str | int | Mapping[str, str], *, allow_changes: Iterable[str] = ()) -> None:
        """Go on at a state.  What was made ahead goes; batches that were delivered stay.

        Raises
        ------
        stoker.StateError
            The state is none, or of another run.  The loader is closed then.
        """
        text = state_text(state)
        self._reader.close()
        self._open(text, allow_changes)

    def reset(self) -> None:
        """Start anew, at the beginning of the run.  Ranks do so equally often."""
        if self._at_beginning and not self._reader.closed:
            self._reader.rewind()
        else:
            self._reader.close()
            self._open(None)

    # --- what it shows ---

    def step(self) -> Step:
        """Measure the training's own part of a step: ``with loader.step() as step:``.

        ``step.mark("forward")``, ``"backward"``, ``"optimizer"`` and ``"transfer"`` are optional."""
        return self._times.step()

    def metrics(self) -> dict[str, Any]:
        """Counts, seconds and shares since the loader was opened or went to a state (docs/metrics.md).

        ``latency_factor`` is wait / (wait + train), ``serial_latency_factor`` the same if nothing overlapped.  Train is what
        ``step()`` measured; without it, all time between a batch and the next question.

        Any thread may ask, also while another waits in ``next``: a progress bar, an exporter.  What an engine process counts is 0
        when it does not answer within a second, as while it starts again.

        Raises
        ------
        stoker.CallError
            The loader is closed, as it is for a moment in ``load_state_dict``."""
        made, times = self._reader.metrics(), self._times.report()
        prepare_s = sum(stage["busy_s"] for stage in made["stages"].values()) + times["transfer_s"]
        return {"schema": 1, **made, **times, "serial_latency_factor": share(prepare_s, times["train_s"]),
                "samples_per_s": made["samples"] / times["wall_s"] if times["wall_s"] > 0 else 0.0}

    # --- the end ---

    def close(self) -> None:
        """Stop, and free what it holds.  Batches that were delivered stay valid.  Twice is fine."""
        self._reader.close()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("a Loader cannot be pickled: open one in the process that reads it, and hand on its state_dict()")

    def __repr__(self) -> str:
        return f"<stoker.Loader of {self._file if isinstance(self._file, str) else 'options'}, {self._split}, rank {self._rank} of {self._world}>"


_open_loaders = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads of the library end before the process does."""
    for loader in list(_open_loaders):
        loader.close()
