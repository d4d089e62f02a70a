"""Stoker for Megatron-Bridge: a data set for its configuration.

    cfg.dataset = stoker.megatron_bridge.Dataset(config="stoker.yaml", seq_length=cfg.model.seq_length)

Every rank reads.  Rows with one sample (``layout: padded``) are for ``qwen3_vl_step``, packed ones for ``vlm_step``.  Bridge saves the state
with its checkpoints and restores it; ``python -m stoker.megatron copy-state`` when there are more data-parallel ranks than before.

Not here: who reads what, and all else that is also Megatron-LM's (megatron.py).
"""
from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Mapping
from typing import Any, Literal

import torch as pytorch
from megatron.bridge.data.base import DatasetBuildContext, DatasetProvider
from megatron.bridge.training.utils.visual_inputs import GenericVisualInputs
from megatron.bridge.utils.instantiate_utils import register_allowed_target_prefix
from megatron.core import num_microbatches_calculator
from megatron.core.process_groups_config import ProcessGroupCollection

from . import torch
from ._batch import Batch as Views
from ._stated import Wanted, read_stated
from .megatron import WITHOUT_PIXELS, Reading, ending, expect_steps, find_place, is_cuda, keeping, row_multiple, schedule, settle, shape, together

VISUAL = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")

register_allowed_target_prefix(__name__)    # so that a configuration that Bridge has saved can be read


class _Loader(torch.Loader):
    """Fields under the names of Bridge's steps."""

    def _finish(self, views: Views, lent: dict[str, Any], pinned: bool) -> torch.Batch:
        longest = lent.pop("max_seqlen", None)
        batch = super()._finish(views, lent, pinned)
        if longest is not None:
            batch["max_seqlen"] = int(longest)      # stays on the host, where Bridge wants it
        return batch

    def next(self, timeout: float | None = None) -> torch.Batch:  # type: ignore[override]
        """As ``stoker.torch.Loader.next``, which knows tensors at the top of the dict only: so they go to their places behind it."""
        batch = super().next(timeout)
        for padded in ("", "_padded"):
            if "cu_seqlens" + padded in batch:
                batch["cu_seqlens_q" + padded] = batch["cu_seqlens_kv" + padded] = batch.pop("cu_seqlens" + padded)
        if "max_seqlen" in batch:
            longest = pytorch.tensor(batch.pop("max_seqlen"), dtype=pytorch.int32)
            batch.update(max_seqlen_q=longest, max_seqlen_kv=longest, total_tokens=batch["input_ids"].shape[1], attention_mask=None)
        batch["visual_inputs"] = GenericVisualInputs(**{name: batch.pop(name) for name in VISUAL if name in batch})
        return batch


@dataclasses.dataclass(kw_only=True)
class Dataset(DatasetProvider):  # type: ignore[misc]
    """What ``cfg.dataset`` takes.

    Batch, micro-batch, ramp-up and the number of evaluations are Bridge's; a configuration that says otherwise is refused.  Its iterators give
    plain dicts:

    ==========================  ==============================================  ==================================
    input_ids, labels           int64 [b, s]; labels moved by one, -100 none
    loss_mask                   float32 [b, s]
    position_ids                int64 [b, s]; packed M-RoPE's [3, 1, s]
    attention_mask              int64 [b, s]; packed None
    visual_inputs               GenericVisualInputs; pixels float on the first  grids int64 [I, 3]; None where there
                                stage alone                                     are no pictures
    cu_seqlens_q, _kv           int32 [n + 1]; with ``_padded`` ones where      packed
                                samples' places are filled up
    max_seqlen_q, _kv           int32, no dimension, on the host                packed
    total_tokens                int: s                                          packed
    ==========================  ==============================================  ==================================
    """

    config: str
    """Stoker's configuration file."""
    seq_length: int
    """That of the model: longest sample, or length of a packed row."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Options of ``loader`` over those of the file; ``eval.NAME`` for evaluation alone."""
    loader: str = "stoker.Loader"
    """Where batches are made, by the name of a class: in the engine of each machine, or, "stoker.ray.Loader", in those of a Ray cluster."""
    run: str | None = None
    """Names the run; None: the option ``run``, the launcher's name, or one made up."""
    device: str | None = None
    """Of the tensors; None: the current CUDA device, the CPU where there is none."""
    dtype: str | None = None
    """Of the pixels: "bfloat16"; None: float32, or what the option ``pixels`` says."""
    eval_global_batch_size: int | None = None
    eval_micro_batch_size: int | None = None
    """Those of ``cfg.validation``, where they differ from training's."""
    dataloader_type: Literal["single", "cyclic", "batch", "external"] | None = "external"

    def build_datasets(self, context: DatasetBuildContext) -> tuple[Any, Any, Any]:
        """Open the loaders of this process: train, valid (where there is ``eval``), and None for test.  Bridge calls it on every rank.

        Raises
        ------
        ValueError
            The configuration does not fit.  When one process fails, all do (``RuntimeError``).
        """
        return together(lambda: _Opening(self, context)).open()


class _Opening:
    """What a process opens, and how."""

    def __init__(self, dataset: Dataset, context: DatasetBuildContext) -> None:
        self.dataset = dataset
        self.kind: type[_Loader] = type("Loader", (_Loader, pkgutil.resolve_name(dataset.loader)), {})
        self.groups = context.pg_collection or ProcessGroupCollection.use_mpu_process_groups()
        self.said = read_stated(dataset.config, dataset.options)
        self.rank, self.world = self.groups.dp.rank(), self.groups.dp.size()
        self.micro = num_microbatches_calculator.get_micro_batch_size()
        self.pieces = schedule(samples=context.train_samples)
        self.steps = self._steps(context.train_samples)
        eval_batch, eval_micro = dataset.eval_global_batch_size or self.pieces[-1][1], dataset.eval_micro_batch_size or self.micro
        self.eval_iters = 0 if self.said.evaluation is None else context.test_samples // eval_batch
        self.eval_micros = eval_batch // (eval_micro * self.world)
        batch = Wanted(self.pieces[0][1], "train.global_batch_size") if len(self.pieces) == 1 else Wanted(self.pieces, "train.rampup_batch_size")
        wanted = {"batch": batch, "micro_batch": Wanted(self.micro, "train.micro_batch_size"), **ending(self.said.train, self.steps),
                  **self._shape(self.said.train, self.micro)}
        self.options = settle(dataset.config, self.said, wanted, lambda said: {
            "batch": Wanted(eval_batch, "validation.eval_global_batch_size"), "micro_batch": Wanted(eval_micro, "validation.eval_micro_batch_size"),
            **self._shape(said, eval_micro)})

    def _steps(self, samples: int) -> int:
        """At least as many as Bridge takes: exactly, without ramp-up."""
        first, rows = self.pieces[-1]
        before = sum((end - begin) * each for (begin, each), (end, _) in zip(self.pieces, self.pieces[1:]))
        return first + -(-(samples - before) // rows)

    def _shape(self, said: Mapping[str, Any], micro: int) -> dict[str, Wanted]:
        if said.get("layout", "padded") == "packed" and micro != 1:
            raise ValueError(f"vlm_step takes one packed row at a time, and micro_batch_size is {micro}: say 1, and seq_length as long as a step is to be")
        multiple = row_multiple(self.groups.cp.size(), self.groups.tp.size(), True)  # sequence parallel or not: nobody tells
        return shape(said, Wanted(self.dataset.seq_length, "seq_length"), multiple, {"padded": "plain", "packed": "mrope"})

    def open(self) -> tuple[Any, Any, Any]:
        dataset = self.dataset
        place = find_place(self.rank, self.world, 1, dataset.run or self.said.train.get("run"), self.kind._by_machine)
        lends = self.said.train.get("pixels", "uint8") != "uint8" and not is_cuda(dataset.device)
        micros = max(rows for _, rows in self.pieces) // (self.micro * self.world)
        kept = keeping(self.said, micros, self.eval_micros if self.eval_iters else 0, self.groups.pp.size() + 1, lends)

        def open_one(split: Any) -> torch.Loader:
            return self.kind(dataset.config, place.rank, place.world_size, split=split, run=place.run, readers=place.readers,
                             node_ranks=place.node_ranks, fields=None if self.groups.pp.rank() == 0 else WITHOUT_PIXELS, device=dataset.device,
                             dtype=getattr(pytorch, dataset.dtype) if dataset.dtype else None, group=False, **self.options, **kept)

        def open_train() -> torch.Loader:
            loader = open_one("train")
            return loader if len(self.pieces) > 1 else expect_steps(loader, self.steps, "train_iters", "the plan")

        def open_valid() -> torch.Loader | None:
            return expect_steps(open_one("eval"), self.eval_iters, "validation.eval_iters", "`eval`") if self.eval_iters else None

        train, valid = together(open_train), together(open_valid)
        return Reading(train, allow_changes=("steps",)), None if valid is None else Reading(valid, self.eval_iters * self.eval_micros), None
