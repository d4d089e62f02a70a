"""Micro-batches as tensors, on the trainer's device, with the reference's pixel_values: ``model(**batch)``.

    with stoker.torch.Loader("stoker.yaml", rank, world_size, device="cuda") as loader:
        for batch in loader:
            with loader.step():
                loss = model(**batch).loss

Pixels travel as bytes and become float where they are trained on.  To a CUDA device a batch is copied through pinned memory on a
stream of its own, one batch ahead; elsewhere in the calling thread.

Not here: how trainers are told of a loader.
"""
from __future__ import annotations

import collections
import contextlib
import functools
import pathlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from . import _loader
from ._agree import agree as agree
from ._batch import LARGE, Batch as Views, PixelRule, Sample, State

CHUNK_VALUES = 1 << 22  # of one round of `pixels`: its indices take four bytes each
RING = 3                # pinned buffers: one is filled, one copied, one still in a queue
ALIGN_BYTES = 64

Tensors = dict[str, Any]
_COUNTS = ("step", "rank", "world", "micro", "micro_count", "epoch", "rows", "tokens", "visual_tokens", "images", "loss_tokens",
           "step_loss_tokens", "samples", "state")


class Batch(Tensors):
    """A fresh, mutable dict of what the model takes, and nothing else; counts and places stand beside it.

    The entries are those of ``stoker.Batch.dict``, as tensors.  A copy of it, or what a library makes of it, is a dict without
    the attributes.
    """

    step: int
    rank: int
    world: int
    micro: int
    micro_count: int
    epoch: int
    rows: int
    tokens: int
    visual_tokens: int
    images: int
    loss_tokens: int
    step_loss_tokens: int
    samples: list[Sample]
    state: State


# --- pixels ---

@functools.lru_cache(maxsize=64)
def _kept_table(rule: PixelRule, device: Any, dtype: Any) -> Any:
    return torch.tensor(rule.table.reshape(-1)).to(dtype).to(device)


def table(rule: PixelRule, device: Any = "cpu", dtype: Any = torch.float32) -> Any:
    """The rule's table for ``expand``, [3 * 256], on a device; kept.  It is complete when it is returned, for every stream."""
    return _kept_table(rule, torch.device(device), dtype)


if not TYPE_CHECKING:
    table = torch.compiler.disable(table)  # a compiled caller takes it as it is


def expand(patches: Any, values: Any, repeat: int) -> Any:
    """Look bytes up: uint8 [N, 3 K] to [N, 3 repeat K] of ``values``, each channel's K written ``repeat`` times.

    ``values`` is what ``table`` gives, on the patches' device.  Eager, its own memory is bounded (it goes through the patches in
    chunks); compiled, it is one kernel."""
    count, columns = patches.shape[0], patches.shape[1] // 3
    channel = torch.arange(0, 768, 256, dtype=torch.int32, device=patches.device)[:, None]
    if torch.compiler.is_compiling():
        looked_up = values[(patches.view(count, 3, columns) + channel).long()]
        return looked_up[:, :, None].expand(count, 3, repeat, columns).reshape(count, 3 * repeat * columns)
    out = torch.empty((count, 3, repeat, columns), dtype=values.dtype, device=patches.device)
    some = max(1, CHUNK_VALUES // (3 * columns))
    for at in range(0, count, some):
        part = patches[at:at + some].view(-1, 3, columns)
        out[at:at + some] = values.index_select(0, (part + channel).view(-1)).view(-1, 3, 1, columns)
    return out.view(count, 3 * repeat * columns)


def pixels(batch: Mapping[str, Any], device: Any = None, dtype: Any = torch.float32, *, rule: PixelRule | None = None) -> Tensors:
    """The reference's ``pixel_values`` (and ``pixel_values_videos``) of ``pixel_bytes`` (and ``pixel_bytes_videos``).

    Parameters
    ----------
    batch : mapping
        A ``stoker.Batch``, or any mapping with such fields, NumPy arrays or tensors.
    device : torch.device, str or None
        Where to make them.  None: where the bytes are.
    dtype : torch.dtype
        float32 is equal to the reference bit for bit; other types are that, rounded to the nearest.
    rule : PixelRule or None
        None: that of the batch.  Of a plain dict it must be given: ``loader.pixel_rule``, ``batch.pixel_rule``.

    Returns
    -------
    dict
        ``pixel_values`` [N, 3 Tp P P] and ``pixel_values_videos``, contiguous; of a batch without pictures, nothing.
    """
    if rule is None:
        rule = getattr(batch, "pixel_rule", None)
        if rule is None:
            raise TypeError("pixels: this mapping does not know its checkpoint's rule: hand over rule=batch.pixel_rule of the stoker.Batch")
    made = {}
    for name, repeats in (("pixel_bytes", True), ("pixel_bytes_videos", False)):
        if name in batch:
            patches = _lent(batch, name).to(device=device)
            made[name.replace("bytes", "values")] = expand(patches, table(rule, patches.device, dtype), rule.temporal if repeats else 1)
    return made


# --- tensors ---

def _lent(batch: Mapping[str, Any], name: str) -> Any:
    """A field as a tensor over the same memory."""
    value = batch.field(name) if isinstance(batch, Views) else batch[name]
    return value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)


def tensors(batch: Views) -> Tensors:
    """``batch.dict()`` as tensors of the CPU: integers and masks are copies, pixels are views without a copy, not to be written to."""
    return {name: _lent(batch, name) if name in LARGE else torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in batch.dict().items()}


class Ring:
    """Pinned buffers that take turns; each waits until the copy out of it has ended."""

    def __init__(self, count: int, allocate: Callable[[int], Any], event: Callable[[], Any]) -> None:
        self._allocate, self._event = allocate, event
        self._slots: collections.deque[tuple[Any, Any]] = collections.deque((None, None) for _ in range(count))

    def fill(self, values: Tensors) -> Tensors:
        """Tensors copied into the next buffer.  The last tensors that lay in it are gone; ``mark`` follows."""
        buffer, copied = self._slots.popleft()
        if copied is not None:
            copied.synchronize()
        places, size = {}, 0
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                places[name] = size
                size += -(-value.nbytes // ALIGN_BYTES) * ALIGN_BYTES
        if buffer is None or buffer.numel() < size:
            buffer = self._allocate(size + size // 4)
        filled = dict(values)
        for name, at in places.items():
            value = values[name]
            filled[name] = buffer[at:at + value.nbytes].view(value.dtype).view(value.shape)
            filled[name].copy_(value)
        self._slots.append((buffer, None))
        return filled

    def mark(self) -> None:
        """What copies out of the buffer filled last has been queued."""
        buffer, _ = self._slots.pop()
        copied = self._event()
        copied.record()
        self._slots.append((buffer, copied))


# --- the loader ---

def machine() -> str:
    """What tells machines apart: two may have one host name, and the containers of one have their own."""
    try:
        return socket.gethostname() + pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        return socket.gethostname()


def ranks(group: Any = None) -> dict[str, Any]:
    """Which of how many processes this is, as ``torch.distributed`` has it: ``rank``, ``world_size`` and ``node_ranks`` of a loader.

    All processes of the group call it: the data-parallel ranks; None: all there are.  Without a process group, a single one."""
    if not (dist.is_available() and dist.is_initialized()):
        return {"rank": 0, "world_size": 1}
    machines: list[str] = [""] * dist.get_world_size(group)
    dist.all_gather_object(machines, machine(), group)
    rank = dist.get_rank(group)
    return {"rank": rank, "world_size": len(machines), "node_ranks": [other for other, its in enumerate(machines) if its == machines[rank]]}


class Loader(_loader.Loader):
    """``stoker.Loader`` whose batches are dicts of tensors on a device, with ``pixel_values`` as the reference has them.

    Parameters
    ----------
    *ranks, **more
        As ``stoker.Loader``.
    device : torch.device, str or None
        None: the current CUDA device; the CPU where there is none.
    dtype : torch.dtype or None
        Of ``pixel_values``.  None: float32; with the option ``pixels``, what it says.
    pin : bool
        Copy to a CUDA device through pinned memory, on a stream of its own, one batch ahead.  Elsewhere without effect.
    expand : bool
        False: ``pixel_bytes`` stay as they are, for a trainer that calls ``pixels`` itself (inside a compiled step, say).
    group : torch.distributed.ProcessGroup, bool or None
        Whose ranks are to agree, with ``agree``, whenever a loader of several ranks is opened or goes to a state: those that open one.  None: all
        there are in ``torch.distributed``.  False: nobody is asked.

    Notes
    -----
    Where pixels are expanded or copied the engine's memory goes back at once, so that ``keep`` does not count what the trainer
    holds; on the CPU with ``pixels: float32``, or without ``expand``, pixels are views, and it does.
    """

    def __init__(self, config: Any, *ranks: int, device: Any = None, dtype: Any = None, pin: bool = True, expand: bool = True, group: Any = None,
                 **more: Any) -> None:
        has_cuda = torch.cuda.is_available()
        self._device = torch.device(device if device is not None else "cuda" if has_cuda else "cpu")
        if self._device.type == "cuda":
            if not has_cuda:
                raise ValueError(f"device={device!r}: torch finds no CUDA device here: leave device out, or say 'cpu'")
            if self._device.index is None:
                self._device = torch.device("cuda", torch.cuda.current_device())
        self._dtype, self._expand = dtype, expand
        self._stream = torch.cuda.Stream(self._device) if pin and self._device.type == "cuda" else None
        self._ring = Ring(RING, lambda size: torch.empty(size, dtype=torch.uint8, pin_memory=True), torch.cuda.Event) if self._stream else None
        self._staged: collections.deque[tuple[Batch, Any]] = collections.deque()
        self._taken: Views | None = None
        self._failed: Exception | None = None
        world_size = ranks[1] if len(ranks) > 1 else more.get("world_size", 1)
        self._group = group if world_size > 1 else False
        with self._together():
            super().__init__(config, *ranks, **more)
            self._place = super().state_dict()

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """What fails on one rank ends all."""
        try:
            yield
        except Exception as failed:
            if self._group is not False:
                agree(failed, self._group)
            raise
        if self._group is not False:
            try:
                agree(self, self._group)
            except BaseException:
                self.close()
                raise

    @property
    def device(self) -> Any:
        """Where the tensors are."""
        return self._device

    @property
    def pixel_rule(self) -> PixelRule:
        """For ``pixels``, where ``expand`` is off."""
        return self._pixel_rule

    # --- reading ---

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        return self

    def __next__(self) -> Batch:  # type: ignore[override]
        return self.next()

    def next(self, timeout: float | None = None) -> Batch:  # type: ignore[override]
        """Wait for the next micro-batch, as ``stoker.Loader.next``."""
        if not self._staged:
            if self._failed:
                failed, self._failed = self._failed, None
                raise failed
            self._take(timeout)
        if self._stream:
            self._look_ahead()
        batch, copied = self._staged.popleft()
        if copied is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(copied)
            for value in batch.values():
                if isinstance(value, torch.Tensor):
                    value.record_stream(current)
        self._place = batch.state
        return batch

    def _take(self, timeout: float | None) -> None:
        """Stage the next batch.  One whose staging was interrupted is the next again."""
        if self._taken is None:
            self._taken = super().next(timeout)
        staged = self._stage(self._taken)
        taken, self._taken = self._taken, None
        self._staged.append(staged)
        taken.release()

    def _look_ahead(self) -> None:
        """Start copying the batch after the one to be given, if it is there.  Its error comes in its own turn."""
        if len(self._staged) > 1 or self._failed:
            return
        try:
            self._take(0)
        except (StopIteration, TimeoutError):
            pass
        except Exception as failed:
            self._failed = failed

    def _stage(self, views: Views) -> tuple[Batch, Any]:
        """The batch on its device, and the event behind which it is there."""
        if self._stream is None or self._ring is None:
            return self._finish(views, tensors(views), False), None
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            batch = self._finish(views, self._ring.fill(tensors(views)), True)
            copied = torch.cuda.Event()
            copied.record()
        return batch, copied

    def _finish(self, views: Views, lent: Tensors, pinned: bool) -> Batch:
        moved = Batch({name: value.to(self._device, non_blocking=pinned) if isinstance(value, torch.Tensor) else value
                       for name, value in lent.items()})
        if self._ring and pinned:
            self._ring.mark()
        if self._expand:
            moved.update(pixels(moved, self._device, self._dtype or torch.float32, rule=self._pixel_rule))
            for name in ("pixel_bytes", "pixel_bytes_videos"):
                moved.pop(name, None)
        for name in ("pixel_values", "pixel_values_videos"):
            if name in moved and self._dtype:
                moved[name] = moved[name].to(self._dtype)
        for name in _COUNTS:
            setattr(moved, name, getattr(views, name))
        return moved

    # --- position ---

    def state_dict(self) -> State:
        """As ``stoker.Loader.state_dict``: after the batch that was given last, whatever has been copied ahead."""
        return dict(self._place)

    def load_state_dict(self, state: str | int | Mapping[str, str], *, allow_changes: Iterable[str] = ()) -> None:
        """Go on at a state, as ``stoker.Loader.load_state_dict``."""
        self._forget()
        with self._together():
            super().load_state_dict(state, allow_changes=allow_changes)
            self._place = super().state_dict()

    def reset(self) -> None:
        """Start anew, as ``stoker.Loader.reset``."""
        self._forget()
        super().reset()
        self._place = super().state_dict()

    def _forget(self) -> None:
        self._staged.clear()
        self._taken = self._failed = None

    def close(self) -> None:
        """As ``stoker.Loader.close``; batches that were given stay."""
        self._forget()
        super().close()
