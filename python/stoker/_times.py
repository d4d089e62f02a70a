"""What a trainer waited, and what it took itself."""
from __future__ import annotations

import time
from types import TracebackType
from typing import Any


def share(part: float, rest: float) -> float:
    """part / (part + rest); 0 of nothing."""
    return part / (part + rest) if part + rest > 0 else 0.0


class Step:
    """The training's own part of a step, measured: ``with loader.step() as step:``.

    ``step.mark("forward")`` books the time since the last mark, or since the beginning, under a name: forward, backward,
    optimizer, or whatever the trainer has.  ``transfer``, the copy to the device, counts as waiting.  On a device that works
    asynchronously, a mark measures the work only if the trainer synchronises before it.
    """

    def __init__(self, times: Times) -> None:
        self._times = times
        self._began = self._last = 0

    def __enter__(self) -> Step:
        self._began = self._last = time.perf_counter_ns()
        return self

    def mark(self, name: str) -> None:
        """End a part of the step, and call it so."""
        now = time.perf_counter_ns()
        self._times.marks_ns[name] = self._times.marks_ns.get(name, 0) + now - self._last
        self._last = now

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._times.step_ns += time.perf_counter_ns() - self._began
        self._times.steps += 1


class Times:
    """Sums of one loader: ``asked`` before its next, ``given`` or ``ended`` behind it."""

    def __init__(self) -> None:
        self.opened_ns = self._since = time.perf_counter_ns()
        self.wait_ns = self.first_wait_ns = self.between_ns = self.step_ns = 0
        self.batches = self.steps = 0
        self.marks_ns: dict[str, int] = {}
        self._training = False  # between a batch and the next question

    def asked(self) -> None:
        now = time.perf_counter_ns()
        if self._training:
            self.between_ns += now - self._since
            self._training = False
        self._since = now

    def given(self) -> None:
        self.ended()
        self.batches += 1
        self._training = True
        if self.batches == 1:
            self.first_wait_ns = self.wait_ns

    def ended(self) -> None:
        now = time.perf_counter_ns()
        self.wait_ns += now - self._since
        self._since = now

    def step(self) -> Step:
        return Step(self)

    def report(self) -> dict[str, Any]:
        """Seconds and shares (docs/metrics.md).

        Train is what ``step()`` measured; without it, all time between a batch and the next question."""
        transfer_ns = self.marks_ns.get("transfer", 0)
        train_ns = (self.step_ns if self.steps else self.between_ns) - transfer_ns
        wait_ns = self.wait_ns + transfer_ns
        return {"wall_s": (time.perf_counter_ns() - self.opened_ns) / 1e9,
                "train_s": train_ns / 1e9,
                "wait_s": wait_ns / 1e9,
                "transfer_s": transfer_ns / 1e9,
                "first_wait_s": self.first_wait_ns / 1e9,
                "latency_factor": share(wait_ns, train_ns),
                "busy_share": share(train_ns, wait_ns),
                "marks": {f"{name}_s": ns / 1e9 for name, ns in self.marks_ns.copy().items()}}
