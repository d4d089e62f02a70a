"""Stoker for Megatron-LM: a provider for ``--dataloader-type external``.

    provider = stoker.megatron.provider("stoker.yaml")
    pretrain(config, provider, ModelType.encoder_or_decoder, forward_step, model_provider)

Batch, micro-batch, sequence length, schedule and evaluation are those of Megatron's arguments; a configuration may repeat them, and is
refused where it says otherwise.  A run goes on where ``consumed_train_samples`` says, on any number of data-parallel ranks.

    python -m stoker.megatron copy-state DIR --ranks N      # Megatron-Bridge, when there are more data-parallel ranks than before

docs/megatron.md has the whole contract.  Megatron is imported when it is asked, so this module imports without it.

Not here: Megatron-Bridge (megatron_bridge.py), which stands on what is here; tensors on the device (torch.py).
"""
from __future__ import annotations

import argparse
import collections
import copy
import math
import os
import pathlib
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import torch as pytorch

from . import _core, _loader, torch
from ._agree import differences, items_of
from ._batch import Batch as Views, State
from ._options import Config
from ._stated import Stated, Wanted, agree, read_stated

#: What a stage reads that sees no pictures: all but their pixels.
WITHOUT_PIXELS = ("attention_mask", "cu_seqlens", "cu_seqlens_padded", "image_grid_thw", "image_offsets", "input_ids", "labels", "loss_mask",
                  "max_seqlen", "position_ids")
STATE_FILES = "train_dataloader_dprank*.pt"
KEEP_LEAST = 2      # the option's default

Provider = Callable[..., tuple[Any, Any, Any]]
Made = TypeVar("Made")


# --- who reads what ---

class Place(NamedTuple):
    """The data-parallel rank of a process, and who reads it too: as ``stoker.Loader`` wants them."""

    rank: int
    """Data-parallel, without context parallel: tensor, context and pipeline siblings have the same."""
    world_size: int
    readers: int
    """Loaders of this rank on this machine; of an engine that serves ranks with unlike numbers, the largest."""
    node_ranks: tuple[int, ...]
    """Ranks that are read on this machine, by one engine."""
    run: str | None
    """The engine's name; None: by the option ``run``, or the launcher."""


def _gather(value: Any) -> list[Any]:
    """What each process of the job says, by its number.  All of them call it."""
    if not pytorch.distributed.is_initialized():
        return [value]
    said = [None] * pytorch.distributed.get_world_size()
    pytorch.distributed.all_gather_object(said, value)
    return said


def find_place(rank: int, world_size: int, loaders: int, run: str | None = None, by_machine: bool = True) -> Place:
    """Where this process stands.  All processes of the job call it.

    Parameters
    ----------
    rank, world_size : int
        Data-parallel.
    loaders : int
        How many loaders this process is about to open for its rank; 0: it does not read.
    run : str or None
        Name of the run.  None: the launcher's (torchrun, SLURM); without such a launcher, one that is made up and shared.
    by_machine : bool
        One engine serves a machine, if each of its ranks has as many readers as the others; else there is one for each rank.  False: engines
        are anywhere, and serve all.
    """
    made_up = f"megatron-{os.getpid()}-{time.monotonic_ns():x}"
    said = _gather((torch.machine(), rank, loaders, made_up))
    here = collections.Counter[int]()
    for machine, its_rank, its_loaders, _ in said:
        if machine == torch.machine() and its_loaders:
            here[its_rank] += its_loaders
    ranks = sorted(here)
    if not loaders:
        return Place(rank, world_size, 0, tuple(ranks), run)
    if len(set(here.values())) == 1 or not by_machine:
        launched = _core.run_and_placement(None, [], None)[0] is not None
        return Place(rank, world_size, max(here.values()), tuple(ranks), run or (None if launched else said[0][3]))
    return Place(rank, world_size, here[rank], (rank,), f"{run or said[0][3]}-{rank}")


def together(call: Callable[[], Made]) -> Made:
    """What ``call`` returns, when it has gone well in every process, and the loaders among what they return are of the same run.

    All processes of the job call it, those that open nothing too.  If one fails, all do, and say which one and why.
    """
    made, failed = None, None
    try:
        made = call()
    except Exception as error:
        failed = error
    said = _gather((None if failed is None else f"{type(failed).__name__}: {failed}", items_of(made) if isinstance(made, torch.Loader) else None))
    if failed is not None:
        raise failed
    words = [f"process {number} could not open its data: {error}" for number, (error, _) in enumerate(said) if error is not None]
    opened = {str(number): items for number, (_, items) in enumerate(said) if items is not None}
    words += [f"the processes do not agree: {text}: give all of them the same options and data"
              for text in differences(list(opened.values()), list(opened)).values()]
    if words:
        if isinstance(made, torch.Loader):
            made.close()
        raise RuntimeError(words[0])
    return cast(Made, made)


# --- what the trainer's arguments say ---

def schedule(steps: int = sys.maxsize, samples: int = sys.maxsize) -> list[list[int]]:
    """Rows of a step, by Megatron's calculator of micro-batches, which knows ramp-up and schedules: [[from step, rows], ...], up to so many steps
    or samples."""
    from megatron.core import num_microbatches_calculator as calculators
    calculator = copy.copy(calculators._GLOBAL_NUM_MICROBATCHES_CALCULATOR)
    pieces: list[list[int]] = []
    step = seen = 0
    while not pieces or (step < steps and seen < samples):
        calculator.update(seen, False)
        rows = calculator.get_current_running_global_batch_size()
        if rows != calculator.get_current_global_batch_size():
            raise ValueError("--decrease-batch-size-if-needed would make the rows of a step depend on the number of ranks: leave it out, and choose "
                             "a batch size that the micro-batch size times the data-parallel ranks divides")
        if not pieces or pieces[-1][1] != rows:
            pieces.append([step, rows])
        step, seen = step + 1, seen + rows
    return pieces


def step_at(pieces: Sequence[Sequence[int]], consumed: int) -> int:
    """The step that begins behind so many rows."""
    before = 0
    for (first, rows), (end, _) in zip(pieces, [*pieces[1:], (sys.maxsize, 0)]):
        if consumed < before + (end - first) * rows:
            if (consumed - before) % rows:
                break
            return first + (consumed - before) // rows
        before += (end - first) * rows
    raise ValueError(f"no step begins behind {consumed} samples (consumed_train_samples) when steps have {_rows_text(pieces)}: the batch size has "
                     "changed since the checkpoint was written; choose one that divides them, or start anew")


def _rows_text(pieces: Sequence[Sequence[int]]) -> str:
    return ", then ".join(f"{rows} rows from step {first} on" for first, rows in pieces) if len(pieces) > 1 else f"{pieces[0][1]} rows"


def row_multiple(cp: int, tp: int, sequence_parallel: bool) -> int:
    """What a packed sample's place is a multiple of, under context and sequence parallel."""
    return math.lcm(2 * cp if cp > 1 else 1, tp * cp if sequence_parallel else 1)


def shape(said: Mapping[str, Any], length: Wanted, multiple: int, positions: Mapping[str, str]) -> dict[str, Wanted]:
    """The options that rows follow from.

    Parameters
    ----------
    said : mapping
        What is stated.
    length : Wanted
        Tokens of a row.
    multiple : int
        What a packed sample's place has to be a multiple of.
    positions : mapping
        The option of that name, by layout; others are refused.
    """
    layout = said.get("layout", "padded")
    if layout not in positions:
        raise ValueError(f"layout: {layout} has rows of changing lengths, which this trainer does not take: use {' or '.join(positions)}")
    wanted = {"targets": Wanted("shifted", "Megatron's labels, which are moved by one")}
    if "positions" not in said:
        wanted["positions"] = Wanted(positions[layout], "")
    if layout == "padded":
        return {**wanted, "max_tokens": length}
    has = said.get("segment_multiple", multiple)
    if has % multiple:
        raise ValueError(f"segment_multiple is {has}, and context or sequence parallel needs a multiple of {multiple}: let it be one, or leave it out")
    return {**wanted, "row_tokens": length, "segment_multiple": Wanted(has, "")}


def ending(said: Mapping[str, Any], steps: int) -> dict[str, Wanted]:
    """How long the run is: as many steps as the trainer takes, where the configuration says nothing."""
    return {} if "steps" in said or "epochs" in said else {"steps": Wanted(steps, "")}


def settle(config: Config, said: Stated, wanted: Mapping[str, Wanted], of_evaluation: Callable[[Mapping[str, Any]], Mapping[str, Wanted]]) -> dict[str, Any]:
    """Keywords for the loaders of both splits."""
    settled = {**said.options, **agree(said.train, wanted, config)}
    if said.evaluation is not None:
        if said.evaluation.get("layout", "padded") != said.train.get("layout", "padded"):
            raise ValueError("eval has another layout than training, and Megatron reads both alike: let them agree")
        settled.update({f"eval.{name}": value for name, value in agree(said.evaluation, of_evaluation(said.evaluation), config, "eval").items()})
    return settled


def keeping(said: Stated, micros: int, eval_micros: int, under_way: int, holds_step: bool) -> dict[str, Any]:
    """How many micro-batches the readers of a rank hold together, where the configuration does not say.

    Parameters
    ----------
    micros, eval_micros : int
        Micro-batches of a rank in a step; of an evaluation's, 0: there is none.
    under_way : int
        How many a pipeline has under way.
    holds_step : bool
        Whether the trainer keeps those of a whole step.
    """
    kept: dict[str, Any] = {}
    if "keep" not in said.train:
        kept["keep"] = max(KEEP_LEAST, micros if holds_step else min(micros, under_way))
    if said.evaluation is not None and "keep" not in said.evaluation:
        kept["eval.keep"] = max(KEEP_LEAST, min(eval_micros, under_way))
    return kept


def expect_steps(loader: torch.Loader, steps: int, by: str, where: str) -> torch.Loader:
    """The loader; refused when its plan ends before the trainer does."""
    if loader.steps < steps:
        loader.close()
        raise ValueError(f"{by} takes {steps} steps, and {where} has {loader.steps}: lower the one, or raise steps or epochs")
    return loader


def is_cuda(device: Any) -> bool:
    """Whether a loader's device is one of CUDA; None: its default."""
    return bool(pytorch.cuda.is_available() if device is None else pytorch.device(device).type == "cuda")


# --- what a trainer reads ---

class Reading:
    """An iterator over plain dicts, which a trainer may change.

    Parameters
    ----------
    loader : stoker.torch.Loader
    pass_micros : int
        Micro-batches of an evaluation, behind which the loader goes back to its beginning; 0: it does not.
    allow_changes : iterable of str
        As ``stoker.Loader``, for ``restore_state``.
    """

    def __init__(self, loader: torch.Loader, pass_micros: int = 0, allow_changes: Iterable[str] = ()) -> None:
        self.loader, self._pass, self._given, self._allowed = loader, pass_micros, 0, tuple(allow_changes)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._pass and self._given == self._pass:
            self.loader.reset()
            self._given = 0
        batch = dict(self.loader.next())
        self._given += 1
        return batch

    def __len__(self) -> int:
        """Micro-batches of the rank in the whole run."""
        return len(self.loader)

    def save_state(self) -> State:
        """Where the run stands: a dict of one text, without a rank in it.  Megatron puts it into its checkpoint at the end of a step."""
        return self.loader.state_dict()

    def restore_state(self, state: State) -> None:
        """Go on at a state.  All processes of the job call it."""
        self.loader.close()
        if pytorch.distributed.is_initialized():
            pytorch.distributed.barrier()  # engines open anew when all their readers have gone

        def reopen() -> torch.Loader:
            self.loader.load_state_dict(state, allow_changes=self._allowed)
            return self.loader

        together(reopen)

    def close(self) -> None:
        """Leave the engine; batches stay."""
        self.loader.close()


def mask_of(tokens: Any, bounds: Any) -> Any:
    """Megatron's attention mask of rows: bool [b, 1, s, s], True where a token must not look.

    Parameters
    ----------
    tokens : tensor
        [b, s], on the mask's device.
    bounds : tensor or None
        int32 [b, n]: where samples of a row begin, filled up with s; None: a sample a row.
    """
    rows, length = tokens.shape
    mask = pytorch.ones(length, length, dtype=pytorch.bool, device=tokens.device).triu(1).repeat(rows, 1, 1)
    if bounds is not None:
        at = pytorch.arange(length, dtype=bounds.dtype, device=bounds.device).repeat(rows, 1)
        sample = pytorch.searchsorted(bounds[:, 1:].contiguous(), at, right=True)
        mask |= (sample[:, :, None] != sample[:, None, :]).to(tokens.device)
    return mask[:, None]


def _bounds_by_row(lent: dict[str, Any]) -> dict[str, Any]:
    """Megatron-LM's form of where samples begin: by row, int32 [b, n] filled up with s, and int32 [b].  What fills a sample's place up
    counts as its own, as in Megatron's data sets."""
    rows, length = lent["input_ids"].shape
    joined = lent.pop("cu_seqlens")
    joined = lent.pop("cu_seqlens_padded", joined).tolist()
    bounds = [[at - row * length for at in joined if row * length <= at <= (row + 1) * length] for row in range(rows)]
    longest = [max(b - a for a, b in zip(row, row[1:])) for row in bounds]
    width = max(map(len, bounds))
    return {**lent, "cu_seqlens": pytorch.tensor([row + [length] * (width - len(row)) for row in bounds], dtype=pytorch.int32),
            "max_seqlen": pytorch.tensor(longest, dtype=pytorch.int32)}


class _Loader(torch.Loader):
    """Fields under Megatron-LM's names."""

    def __init__(self, *ranks: Any, masks: bool, **more: Any) -> None:
        self._masks = masks
        super().__init__(*ranks, **more)

    def _finish(self, views: Views, lent: dict[str, Any], pinned: bool) -> torch.Batch:
        batch = super()._finish(views, _bounds_by_row(lent) if "cu_seqlens" in lent else lent, pinned)
        batch["tokens"] = batch.pop("input_ids")
        batch.pop("attention_mask", None)
        if self._masks:
            batch["attention_mask"] = mask_of(batch["tokens"], batch.get("cu_seqlens"))
        return batch


# --- Megatron-LM ---

def _refuse_unfit(args: Any) -> None:
    """What is not supported, in words."""
    if args.dataloader_type != "external":
        raise ValueError(f"--dataloader-type is {args.dataloader_type}, which would cut Stoker's batches: say --dataloader-type external")
    for name, instead in (("full_validation", "say --eval-iters, the steps of `eval`"), ("multiple_validation_sets", "put all data sets into one `eval`"),
                          ("phase_transition_iterations", "leave it out"), ("hybrid_context_parallel", "leave it out, and use layout: packed"),
                          ("perform_rl_step", "reinforcement learning reads no data set")):
        if getattr(args, name, None):
            raise ValueError(f"--{name.replace('_', '-')} is not supported: {instead}")
    if getattr(args, "gtp_weight_remat_size", 1) > 1:
        raise ValueError("--gtp-weight-remat-size: its peers need data of their own, which is not supported")


def _reads(args: Any, packed: bool, vp_stage: int | None) -> tuple[bool, bool]:
    """Whether this process reads for a model chunk, and whether with pixels: as Megatron's own data sets, tensor-parallel rank 0 of the first
    and the last stage (and of those with multi-token prediction), of packed rows in every stage."""
    from megatron.core import parallel_state as ranks
    if ranks.get_tensor_model_parallel_rank():
        return False, False
    first = ranks.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp_stage)
    reads = packed or first or ranks.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage)
    if not reads and getattr(args, "mtp_num_layers", None):
        from megatron.core.transformer.multi_token_prediction import mtp_on_this_rank
        reads = mtp_on_this_rank(layout=args.pipeline_model_parallel_layout, mtp_num_layers=args.mtp_num_layers, ignore_virtual=False, vp_stage=vp_stage)
    return reads, first


def _saved_state(args: Any) -> State | None:
    """What was saved beside the checkpoint that Megatron has loaded, if anything.  It has no rank in it, so rank 0's will do for all."""
    folder = getattr(args, "dataloader_save", None)
    if not folder or not args.iteration:
        return None
    from megatron.training.checkpointing import get_checkpoint_name
    path = get_checkpoint_name(folder, args.iteration, pipeline_parallel=args.pipeline_model_parallel_size > 1, tensor_rank=0, pipeline_rank=0,
                               expert_parallel=False, expert_rank=0, basename=STATE_FILES.replace("*", "000"))
    return _read_state(path) if os.path.exists(path) else None


def _read_state(path: str | os.PathLike[str]) -> State:
    state: State = pytorch.load(path, weights_only=True)["dataloader_state_dict"]
    _loader.state_text(state)  # refuses what is none
    return state


class _Opening:
    """What a process opens, and how, by Megatron's arguments."""

    def __init__(self, config: Config, options: Mapping[str, Any], args: Any, vp_stage: int | None) -> None:
        from megatron.core import parallel_state as ranks
        _refuse_unfit(args)
        self.args, self.said = args, read_stated(config, options)
        packed = self.said.train.get("layout") == "packed"
        self.chunks = ranks.get_virtual_pipeline_model_parallel_world_size()
        self.reads, self.has_pixels = _reads(args, packed, vp_stage)
        self.loaders = sum(_reads(args, packed, stage)[0] for stage in ([None] if self.chunks is None else range(self.chunks)))
        self.rank, self.world = ranks.get_data_parallel_rank(), ranks.get_data_parallel_world_size()
        self.pieces = schedule(steps=args.train_iters or 1)
        self.step = 0 if getattr(args, "skip_train", False) else step_at(self.pieces, args.consumed_train_samples)
        self.steps = self.step + max(0, (args.train_iters or 0) - args.iteration)
        self.eval_iters = (args.eval_iters or 0) if self.said.evaluation is not None else 0
        eval_batch = getattr(args, "eval_global_batch_size", None) or args.global_batch_size
        eval_micro = getattr(args, "eval_micro_batch_size", None) or args.micro_batch_size
        self.eval_micros = eval_batch // (eval_micro * self.world)
        batch = Wanted(self.pieces[0][1], "--global-batch-size") if len(self.pieces) == 1 else Wanted(self.pieces, "Megatron's schedule of batch sizes")
        wanted = {"batch": batch, "micro_batch": Wanted(args.micro_batch_size, "--micro-batch-size"), **ending(self.said.train, max(1, self.steps)),
                  **self._shape(self.said.train)}
        self.options = settle(config, self.said, wanted, lambda said: {
            "batch": Wanted(eval_batch, "--eval-global-batch-size"), "micro_batch": Wanted(eval_micro, "--eval-micro-batch-size"), **self._shape(said)})

    def _shape(self, said: Mapping[str, Any]) -> dict[str, Wanted]:
        args, length = self.args, Wanted(self.args.seq_length, "--seq-length")
        multiple = row_multiple(args.context_parallel_size, args.tensor_model_parallel_size, args.sequence_parallel)
        wanted = shape(said, length, multiple, {"padded": "plain", "packed": "plain"})
        return wanted if "row_tokens" in wanted else {**wanted, "pad_to": length}

    def keep(self, lends: bool) -> dict[str, Any]:
        """In the default rerun mode Megatron keeps a step's micro-batches, whose pixels are the engine's memory where it lends them."""
        micros = max(rows for _, rows in self.pieces) // (self.args.micro_batch_size * self.world)
        under_way = self.args.pipeline_model_parallel_size * (self.chunks or 1) + 1
        return keeping(self.said, micros, self.eval_micros if self.eval_iters else 0, under_way, lends and self.args.rerun_mode != "disabled")

    def start(self) -> State | int | None:
        """Where the run goes on: the state beside the checkpoint, or else the step that Megatron's count of samples makes."""
        state = _saved_state(self.args)
        if state is not None and f"\nstep {self.step}\n" not in state["stoker"]:
            raise ValueError(f"the state in {self.args.dataloader_save} is not that of step {self.step}, which {self.args.consumed_train_samples} consumed "
                             "samples make: it is of another checkpoint, or the batch size has changed; leave --dataloader-save out to go by the samples")
        return state if state is not None else self.step or None


def provider(config: Config = None, *, run: str | None = None, loader: type[_loader.Loader] = _loader.Loader, allow_changes: Iterable[str] = (),
             device: Any = None, dtype: Any = None, pin: bool = True, expand: bool = True, **options: Any) -> Provider:
    """A provider of data sets for ``pretrain`` with ``--dataloader-type external``.

    Parameters
    ----------
    config : path, mapping or None
        As ``stoker.Loader``.  With ``eval`` and ``--eval-iters``, each evaluation reads the same first batches of it.
    run : str or None
        Names the run, by which the processes of a machine find their engine.  None: the option ``run``, the launcher's name, or one made up.
    loader : class
        Where batches are made: ``stoker.Loader``, in the engine of each machine, or ``stoker.ray.Loader``, in those of a Ray cluster.
    allow_changes : iterable of str
        Options that may differ from those of a saved state; ``steps`` always may.
    device, dtype, pin, expand
        As ``stoker.torch.Loader``; ``dtype`` None: Megatron's ``params_dtype``, or what the option ``pixels`` says.
    **options
        Of ``loader``, for training and evaluation; ``eval.NAME`` is for evaluation alone.

    Returns
    -------
    callable
        ``(num_samples, vp_stage=None) -> (train, valid, test)``, with ``is_distributed`` True: called on every rank.  Each is None where a rank
        does not read, and test always; else an iterator of plain dicts:

        ======================  ==============================================  ==========================================
        tokens, labels          int64 [b, s]; labels moved by one, -100 none
        loss_mask               float32 [b, s]
        position_ids            int64 [b, s]; [3, b, s] with positions: mrope
        attention_mask          bool [b, 1, s, s], True: must not look          with --create-attention-mask-in-dataloader
        cu_seqlens, max_seqlen  int32 [b, n] filled up with s; int32 [b]        layout: packed
        pixel_values            float [N, 3 Tp P P] (pixel_bytes without        first stage, where there are pictures
                                ``expand``)
        image_grid_thw          int64 [I, 3]                                    where there are pictures
        ======================  ==============================================  ==========================================

    Raises
    ------
    ValueError
        By the provider: the configuration or an argument of Megatron does not fit.  When one process fails, all do (``RuntimeError``).
    """
    kind: type[_Loader] = type("Loader", (_Loader, loader), {})

    def give(num_samples: Any, vp_stage: int | None = None) -> tuple[Any, Any, Any]:
        from megatron.training import get_args
        args = get_args()
        opening = together(lambda: _Opening(config, options, args, vp_stage))
        place = find_place(opening.rank, opening.world, opening.loaders, run or opening.said.train.get("run"), kind._by_machine)
        ready_made = opening.said.train.get("pixels", "uint8") != "uint8"
        lends = not is_cuda(device) and (ready_made or not expand)
        settled = {**opening.options, **opening.keep(lends)}

        def open_one(split: Any, state: State | int | None) -> torch.Loader:
            return kind(config, place.rank, place.world_size, split=split, run=place.run, readers=place.readers, node_ranks=place.node_ranks,
                        fields=None if opening.has_pixels else WITHOUT_PIXELS, state=state, allow_changes=(*allow_changes, "steps"), device=device,
                        dtype=dtype or (None if ready_made else getattr(args, "params_dtype", None)), pin=pin, expand=expand,
                        masks=bool(getattr(args, "create_attention_mask_in_dataloader", False)), group=False, **settled)

        def open_train() -> torch.Loader | None:
            if not opening.reads or getattr(args, "skip_train", False):
                return None
            return expect_steps(open_one("train", opening.start()), opening.steps, "--train-iters", "the plan")

        def open_valid() -> torch.Loader | None:
            if not opening.reads or not opening.eval_iters:
                return None
            return expect_steps(open_one("eval", None), opening.eval_iters, "--eval-iters", "`eval`")

        train, valid = together(open_train), together(open_valid)
        return (None if train is None else Reading(train, allow_changes=(*allow_changes, "steps")),
                None if valid is None else Reading(valid, opening.eval_iters * opening.eval_micros), None)

    give.is_distributed = True  # type: ignore[attr-defined]
    return give


# --- Megatron-Bridge's files of states ---

def copy_state(folder: str | os.PathLike[str], ranks: int) -> list[pathlib.Path]:
    """Give each of so many data-parallel ranks its file of the state, which has no rank in it, beside those that are there.

    Parameters
    ----------
    folder : path
        One that holds files ``train_dataloader_dprankNNN.pt``, or one above it; of several checkpoints the last is taken.
    ranks : int
        Data-parallel ranks of the run to come.

    Returns
    -------
    list of path
        The files that were written.

    Raises
    ------
    ValueError
        There are none, they differ, or they are no states of the end of a step.
    """
    found = collections.defaultdict(list)
    for file in sorted(pathlib.Path(folder).rglob(STATE_FILES)):
        found[file.parent].append(file)
    if not found:
        raise ValueError(f"{os.fspath(folder)} has no file {STATE_FILES}, at whatever depth: name the folder that a checkpoint's data loader was saved to")
    place = max(found, key=lambda parent: [int(part.rpartition("_")[2]) for part in parent.parts if part.startswith("iter_") and part[5:].isdigit()])
    states = {file: _read_state(file) for file in found[place]}
    first, state = next(iter(states.items()))
    for file, other in states.items():
        if other != state:
            raise ValueError(f"{file} differs from {first}: they are of different steps, or of different runs")
    if "\nmicro " in state["stoker"]:
        raise ValueError(f"{first} was taken inside a step, and goes on with the same number of ranks only: use one of the end of a step")
    written = []
    for rank in range(ranks):
        file = place / STATE_FILES.replace("*", f"{rank:03d}")
        if file not in states:
            shutil.copyfile(first, file.with_suffix(".new"))
            os.replace(file.with_suffix(".new"), file)
            written.append(file)
    return written


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: ``python -m stoker.megatron copy-state DIR --ranks N``."""
    parser = argparse.ArgumentParser(prog="python -m stoker.megatron", description="Tools for Megatron's checkpoints.")
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "copy-state", help="give further data-parallel ranks their file of the data's state")
    command.add_argument("folder", help="folder that holds the files, or the one it was saved to")
    command.add_argument("--ranks", type=int, required=True, help="data-parallel ranks of the run to come")
    given = parser.parse_args(arguments)
    try:
        for file in copy_state(given.folder, given.ranks):
            print(file)
    except (OSError, ValueError, TypeError, KeyError) as failed:
        print(f"stoker.megatron: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
