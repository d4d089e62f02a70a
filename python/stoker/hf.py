"""Stoker for transformers' Trainer, TRL's trainers and Accelerate.

    class StokerTrainer(stoker.hf.TrainerMixin, Trainer):        # or SFTTrainer, or a trainer of your own
        pass

    trainer = StokerTrainer(model=model, args=args, stoker="stoker.yaml")
    trainer.train(resume_from_checkpoint=last_checkpoint)

Rows a step, length and epochs are those of TrainingArguments; a configuration may repeat them, and is refused where it says otherwise.
Trainer's checkpoints hold the place in the data (``stoker.state``), on any number of processes.

Accelerate takes a ``stoker.torch.Loader`` as it is (docs/huggingface.md).

``stoker.hf.check(processor, "stoker.yaml")``, or ``python -m stoker.hf check stoker.yaml``, prints where Stoker and a processor part.

Not here: tensors (torch.py); how the two are compared (_hf_check.py).
"""
from __future__ import annotations

import argparse
import collections
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint

from . import _loader, torch
from ._batch import State
from ._hf_check import Difference as Difference, Report as Report, check as check
from ._options import Config
from ._stated import Wanted, agree, read_stated

STATE_FILE = "stoker.state"
KEPT_STATES = 64    # of the last steps: more than any trainer takes ahead
HELD = 2            # Trainer holds the micro-batches of two steps


# --- what TrainingArguments say ---

def _rows(args: Any, world: int) -> dict[str, Wanted]:
    rows, accumulation = args.per_device_train_batch_size, args.gradient_accumulation_steps
    words = f"TrainingArguments (per_device_train_batch_size {rows}"
    return {"batch": Wanted(rows * accumulation * world, f"{words} x gradient_accumulation_steps {accumulation} x {world} processes)"),
            "micro_batch": Wanted(rows, f"{words})")}


def _eval_rows(args: Any, world: int) -> dict[str, Wanted]:
    rows = args.per_device_eval_batch_size
    words = f"TrainingArguments (per_device_eval_batch_size {rows}"
    return {"batch": Wanted(rows * world, f"{words} x {world} processes)"), "micro_batch": Wanted(rows, f"{words})")}


def _end(args: Any) -> dict[str, Wanted]:
    if args.max_steps > 0:
        return {"steps": Wanted(args.max_steps, "TrainingArguments (max_steps)")}
    words = f"TrainingArguments (num_train_epochs {args.num_train_epochs:g}"
    return {"steps": Wanted("auto", f"{words}, and no max_steps)"), "epochs": Wanted(math.ceil(args.num_train_epochs), f"{words})")}


def _longest(args: Any, stated: Mapping[str, Any]) -> dict[str, Wanted]:
    """``max_length`` of TRL: of a sample, or of a row that holds several."""
    length = getattr(args, "max_length", None)
    return {} if length is None else {"row_tokens" if stated.get("layout") == "packed" else "max_tokens": Wanted(length, "TrainingArguments (max_length)")}


def _refuse_unfit(args: Any) -> None:
    """What Trainer would do to batches, or ask of them, that cannot be."""
    if args.n_gpu > 1:
        raise ValueError("several GPUs in one process (torch.nn.DataParallel) would cut pixel_values: start one process a GPU, by torchrun "
                         "or accelerate launch")
    if args.auto_find_batch_size:
        raise ValueError("auto_find_batch_size changes the rows of a step in the middle of a run: leave it out")
    for name in ("packing", "padding_free"):
        if getattr(args, name, False):
            raise ValueError(f"{name} is done by Stoker: leave it out, and say `layout: packed` or `layout: flat` in the configuration")


# --- what Trainer reads ---

class _Rows:
    """What Trainer iterates: one of its epochs each time.  A plain object, so that nobody shards, dispatches or wraps it.

    Trainer's epochs are of equal length, in whole steps; those of the data begin where they begin (``batch.epoch``).
    """

    def __init__(self, loader: torch.Loader, epoch_steps: int) -> None:
        self._loader, self._epoch_steps = loader, epoch_steps
        self._micros = len(loader) // loader.steps
        self._states: collections.deque[tuple[int, State]] = collections.deque(maxlen=KEPT_STATES)
        self._begun = 0

    def __len__(self) -> int:
        return self._epoch_steps * self._micros

    def __iter__(self) -> Iterator[torch.Batch]:
        for batch in self._loader:
            is_last = batch.micro + 1 == batch.micro_count
            if is_last:
                self._begun += 1
                self._states.append((self._begun, batch.state))
            yield batch
            if is_last and (batch.step + 1) % self._epoch_steps == 0:
                return

    def state_after(self, steps: int) -> State:
        """Where the data stand after so many steps since the beginning, or since the checkpoint."""
        return dict(self._states)[steps]


class _Callback(TrainerCallback):  # type: ignore[misc]
    """Saves the place in the data with each of Trainer's checkpoints: that of the step, whatever was taken ahead."""

    def __init__(self, epochs: float) -> None:
        self._epochs, self._first = epochs, 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._first = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        state.epoch = state.global_step * self._epochs / state.max_steps     # Trainer's own starts anew with a resume

    def on_save(self, args: Any, state: Any, control: Any, *, train_dataloader: _Rows, **more: Any) -> None:
        if args.should_save:
            folder = os.path.join(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
            _save(folder, train_dataloader.state_after(state.global_step - self._first))


def _save(folder: str, state: State) -> None:
    path = os.path.join(folder, STATE_FILE)
    with open(path + ".part", "w", encoding="ascii") as file:
        file.write(state["stoker"])
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def _read(folder: str) -> State:
    path = os.path.join(folder, STATE_FILE)
    try:
        with open(path, encoding="ascii") as file:
            return {"stoker": file.read()}
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: the checkpoint was not saved with stoker.hf, or not to its end; take an earlier one, or "
                                "start from its weights without resume_from_checkpoint") from None


def _no_rows() -> Any:
    """A data set that Trainer and TRL take, and that nobody reads."""
    try:
        from datasets import Dataset
    except ImportError:
        return [{"input_ids": [0], "labels": [0]}]
    return Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]})


# --- the trainer ---

class _Source:
    """The loaders of a trainer, and what they are opened with."""

    def __init__(self, config: Config, given: Mapping[str, Any], loader: type[_loader.Loader], args: Any) -> None:
        _refuse_unfit(args)
        self._kind: type[torch.Loader] = loader if issubclass(loader, torch.Loader) else type("Loader", (torch.Loader, loader), {})
        self._config, self._device = config, args.device     # asking for the device begins the process group
        self._place = torch.ranks()
        self._end = args.max_steps, args.num_train_epochs
        self.state: State | None = None
        self.train: torch.Loader | None = None
        self._eval: torch.Loader | None = None

        said, world = read_stated(config, given), self._place["world_size"]
        held = {"keep": HELD * args.gradient_accumulation_steps} if self._device.type == "cpu" else {}     # elsewhere batches are copied
        if held and said.evaluation is not None and "keep" not in said.evaluation:
            held["eval.keep"] = HELD
        self._options = {**held, **said.options, **agree(said.train, {**_rows(args, world), **_end(args), **_longest(args, said.train)}, config)}
        self.has_eval = said.evaluation is not None
        if said.evaluation is not None:
            of_eval = agree(said.evaluation, {**_eval_rows(args, world), **_longest(args, said.evaluation)}, config, "eval")
            self._options.update({f"eval.{name}": value for name, value in of_eval.items()})
        if world == 1 and "run" not in said.train:
            self._options["run"] = _loader.own_name()     # training and evaluation share an engine, and ask it for the same

    def _open(self, split: str) -> torch.Loader:
        return self._kind(self._config, **self._place, split=split, device=self._device, state=self.state if split == "train" else None, **self._options)

    def open_train(self, args: Any) -> _Rows:
        """At the state, or the beginning; ``max_steps`` is made exact."""
        if self.train:
            self.train.close()
        self.train = self._open("train")
        steps, epochs = self._end
        args.max_steps = self.train.steps if steps > 0 else math.ceil(self.train.steps * epochs / math.ceil(epochs))
        return _Rows(self.train, math.ceil(args.max_steps / self.epochs))

    @property
    def epochs(self) -> float:
        """Of Trainer's.  A run by steps is one."""
        return 1 if self._end[0] > 0 else self._end[1]

    def begin_eval(self) -> torch.Loader:
        """A pass from the beginning."""
        if self._eval:
            self._eval.reset()
        else:
            self._eval = self._open("eval")
        return self._eval

    def close(self) -> None:
        """Both loaders; an engine that nobody else uses ends."""
        for loader in (self.train, self._eval):
            if loader:
                loader.close()


class TrainerMixin:
    """Put before a trainer among the bases of a class, it makes that trainer train and evaluate on Stoker.

    Parameters
    ----------
    model, args, **more
        As of the trainer; ``args`` is needed, data sets are not.  An ``eval_dataset`` that is given is evaluated as the trainer does it.
    stoker : path or mapping
        The configuration, as of ``stoker.Loader``.  Its section ``eval`` is what is evaluated on.
    stoker_options : mapping or None
        Further arguments of ``stoker.torch.Loader`` and of ``stoker_loader``: options over those of the configuration (``{"workers": 8}``; for
        evaluation too, but for what ``eval`` states itself), ``dtype``, ``allow_changes``.
    stoker_loader : class
        Where batches are made: ``stoker.Loader``, in the engine of each machine, or ``stoker.ray.Loader``, in those of a Ray cluster.

    Raises
    ------
    ValueError
        The configuration says otherwise than ``args``, or ``args`` ask for what cannot be.

    Notes
    -----
    From ``args`` come the rows of a step and of a micro-batch, ``max_steps`` or ``num_train_epochs``, and TRL's ``max_length``.  ``max_steps``
    becomes the exact number of steps, ``ignore_data_skip`` True, ``keep`` what Trainer holds.  The order's ``seed`` is the configuration's.
    """

    def __init__(self, model: Any = None, args: Any = None, *, stoker: Config, stoker_options: Mapping[str, Any] | None = None,
                 stoker_loader: type[_loader.Loader] = _loader.Loader, **more: Any) -> None:
        if args is None:
            raise ValueError("args is missing: rows and epochs come from TrainingArguments")
        if more.get("train_dataset") is not None:
            raise ValueError("train_dataset and stoker are two sources of training data: leave one out")
        self._source = _Source(stoker, stoker_options or {}, stoker_loader, args)
        self._nothing = more["train_dataset"] = _no_rows()
        if more.get("eval_dataset") is None:
            if self._source.has_eval:
                more["eval_dataset"] = self._nothing
            elif args.eval_strategy != "no":
                raise ValueError(f"eval_strategy is {args.eval_strategy.value!r}, and the configuration has no `eval`: add it, with its data")
        if hasattr(args, "dataset_kwargs"):     # of TRL
            args.dataset_kwargs = {**(args.dataset_kwargs or {}), "skip_prepare_dataset": True}
        args.ignore_data_skip = True
        super().__init__(model=model, args=args, **more)  # type: ignore[call-arg]
        layout = getattr(self.accelerator, "parallelism_config", None)  # type: ignore[attr-defined]
        if layout and layout.tp_size * layout.cp_size * layout.sp_size > 1:
            raise ValueError("tensor, context and sequence parallel processes need the same batch, and stoker.hf gives each its own: use "
                             "stoker.torch.Loader with `readers`")
        self.add_callback(_Callback(self._source.epochs))  # type: ignore[attr-defined]

    @property
    def stoker(self) -> torch.Loader | None:
        """The loader of training, from ``train()`` on: ``trainer.stoker.metrics()``."""
        return self._source.train

    def close(self) -> None:
        """Close the loaders of training and evaluation.  The end of the process does so, too."""
        self._source.close()

    def get_train_dataloader(self) -> _Rows:
        """What ``train()`` iterates."""
        return self._source.open_train(self.args)  # type: ignore[attr-defined]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Stoker's ``eval``, from its beginning; of a data set that was given, what the trainer makes of it."""
        if eval_dataset is None:
            eval_dataset = self.eval_dataset  # type: ignore[attr-defined]
        if eval_dataset is self._nothing:
            return self._source.begin_eval()
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def train(self, resume_from_checkpoint: Any = None, *arguments: Any, **more: Any) -> Any:
        """As the trainer's; from a checkpoint the data go on at its very next step, on any number of processes."""
        folder = resume_from_checkpoint
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)  # type: ignore[attr-defined]
        self._source.state = _read(folder) if folder else None
        return super().train(resume_from_checkpoint, *arguments, **more)  # type: ignore[misc]


# --- the command ---

def main() -> int:
    """``python -m stoker.hf check CONFIG``."""
    from transformers import AutoProcessor
    parser = argparse.ArgumentParser(prog="python -m stoker.hf", description="Does Stoker make what the checkpoint's own processor makes?")
    parser.add_argument("verb", choices=["check"])
    parser.add_argument("config", help="Stoker's configuration file")
    parser.add_argument("--samples", type=int, default=8, metavar="N", help="the first N of the run (8)")
    parser.add_argument("--images", choices=["path", "pil"], default="path", help="as transformers loads a path, or as Pillow opens a file")
    parser.add_argument("--processor", metavar="FOLDER", help="default: the configuration's model")
    given = parser.parse_args()
    model = given.processor or os.path.join(os.path.dirname(os.path.abspath(given.config)), str(read_stated(given.config, {}).train.get("model", "")))
    report = check(AutoProcessor.from_pretrained(model), given.config, n=given.samples, images=given.images)
    return 0 if report else 1


if __name__ == "__main__":
    sys.exit(main())
