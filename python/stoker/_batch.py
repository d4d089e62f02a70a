"""A micro-batch, as a mapping of views."""
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import _core

Plain = dict[str, Any]
State = dict[str, str]

LEFT_OUT = frozenset({"image_offsets"})
LARGE = frozenset({"pixel_bytes", "pixel_values", "pixel_bytes_videos", "pixel_values_videos"})


class Sample(NamedTuple):
    """Where a sample of a batch came from, and where it is."""

    id: str
    """``"docs/33471"``, ``"docs#118"``; "" for filler."""
    set: str
    record: int
    """In its data set, from 0."""
    line: int
    """Of the manifest, from 1."""
    row: int
    offset: int
    """Its first token in that row."""
    tokens: int
    visual_tokens: int
    step_row: int | None
    """Which row of the step its row is, over all ranks; None: filler."""
    filler: bool
    masked: bool
    reason: str
    """Of a masked one."""


class PixelRule:
    """What makes the reference's ``pixel_values`` of ``pixel_bytes``, by the checkpoint and the profile; read when it is first asked for."""

    def __init__(self, file: str | bytes | None, pairs: list[tuple[str, str]], split: str) -> None:
        self._options = file, pairs, split

    @functools.cached_property
    def _read(self) -> tuple[int, Any]:
        temporal, values = _core.pixel_values(*self._options)
        return temporal, np.frombuffer(values, np.float32).reshape(3, 256)

    @property
    def temporal(self) -> int:
        """How often a picture's one frame stands in ``pixel_values``."""
        return self._read[0]

    @property
    def table(self) -> Any:
        """float32 [3, 256]: the value of each byte, by channel.  Read-only."""
        return self._read[1]


class Batch(_core.Batch, Mapping[str, Any]):
    """One micro-batch: a read-only mapping from the names of Hugging Face to NumPy views of shared memory, without a copy.

    ======================  ==============================================  =================================================
    field                   dtype, shape                                    present
    ======================  ==============================================  =================================================
    input_ids               int64 [b, s]; flat [1, T]; packed [b, row]      always
    labels                  int64, as ids; -100: no loss                    always
    attention_mask          int64 [b, s]                                    layout padded
    position_ids            int64 [3, b, s]; flat, packed [4, ...]          always (M-RoPE: t, h, w)
    mm_token_type_ids       int64, as ids: 0 text, 1 image                  targets hf
    loss_mask               float32, as ids                                 targets shifted
    pixel_bytes             uint8 [N, 3 P P], N patches of P x P pixels     images, pixels uint8
    pixel_values            float32, bfloat16 [N, 3 Tp P P]                 images, pixels float32, bfloat16
    image_grid_thw          int64 [I, 3]: t, h, w in patches                images
    image_offsets           int32 [b + 1]: images before each row           always
    cu_seqlens, max_seqlen  int32 [n + 1], int32: where samples begin       layouts flat, packed
    ======================  ==============================================  =================================================

    docs/fields.md has all of them.  A bfloat16 field, which NumPy has no type for, comes as a ``Field``: take it by DLPack,
    ``torch.from_dlpack(batch["pixel_values"])``.

    Arrays stay valid as long as they live, whatever becomes of the batch and its loader, and hold the batch's memory that long:
    the option ``keep`` says how many batches a trainer holds when it asks for the next.  ``release()`` gives the batch's own
    part back early; so does the end of the object.  They must not be written to: the memory is read-only or belongs to others.

    Attributes
    ----------
    step, rank, world, micro, micro_count, epoch : int
        Which micro-batch it is.
    rows, tokens, visual_tokens, images : int
        Counts, without padding.
    loss_tokens : int
        Labels that are left in this micro-batch.
    step_loss_tokens : int
        Labels planned for the whole step over all ranks: the divisor of a summed loss.  0: not known (``index: stream``).
    model_type : str
        The checkpoint's (config.json): ``"qwen3_vl"``.
    pixel_rule : PixelRule
        What makes ``pixel_values`` of ``pixel_bytes``.
    """

    __slots__ = ("__weakref__", "pixel_rule")
    pixel_rule: PixelRule

    @property
    def samples(self) -> list[Sample]:
        """Its samples, filler included."""
        return [Sample._make(values) for values in self._samples()]

    @property
    def state(self) -> State:
        """The state of the run after this micro-batch, as ``Loader.state_dict`` gives it."""
        return {"stoker": self._state()}

    def dict(self) -> Plain:
        """A fresh, plain, mutable dict that holds only what a model takes.

        Integers and masks are writable copies, pixels are views.  ``image_offsets`` stays out.  Where samples are told apart by
        ``cu_seqlens`` and labels are transformers' (``targets: hf``), it has transformers' names for them
        (``cu_seq_lens_q``, ``cu_seq_lens_k``, ``max_length_q``, ``max_length_k``; of Qwen3.5 also ``seq_idx``, int32 as ids: the
        number of each token's sample) and ``use_cache`` False, without which a sample would see the one before it.
        """
        plain: Plain = {name: value if name in LARGE else np.array(value) for name, value in self.items() if name not in LEFT_OUT}
        if "cu_seqlens" in plain and "loss_mask" not in plain:
            lengths = plain.pop("cu_seqlens")
            plain["cu_seq_lens_q"] = plain["cu_seq_lens_k"] = plain.pop("cu_seqlens_padded", lengths)  # every token lies in a segment
            plain["max_length_q"] = plain["max_length_k"] = int(plain.pop("max_seqlen"))
            plain["use_cache"] = False
            if self.model_type.startswith("qwen3_5"):
                lengths = np.diff(plain["cu_seq_lens_q"])
                plain["seq_idx"] = np.arange(len(lengths), dtype=np.int32).repeat(lengths).reshape(plain["input_ids"].shape)
        return plain

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> Any:
        raise TypeError("a Batch cannot be pickled: hand on batch.dict(), or open the loader in the other process")

    def __repr__(self) -> str:
        return f"<stoker.Batch of step {self.step}, rank {self.rank}, micro-batch {self.micro}: {self.tokens} tokens, {self.images} images>"
