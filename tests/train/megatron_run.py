"""A process of Megatron's pretrain(), as examples/train_megatron.py has it, that writes down what it read and what came of it.

    megatron_run.py FOLDER CONFIG OPTIONS [ARGUMENT...]

FOLDER/rank-N.json: by iteration the loss, the gradient norm and the samples consumed, as Megatron logs them; the micro-batches read, the most that
were alive at once, those of evaluations and their losses; where the loader began, and the engines of a cluster.  OPTIONS: JSON, of
stoker.megatron.provider, with the module of `loader`, and dataloader_save, which Megatron reads and has no flag for.
"""
import hashlib
import importlib
import json
import pathlib
import sys
import weakref

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import train_megatron  # noqa: E402 (megatron_on_cpu comes first in it)
from megatron.training import get_args, training  # noqa: E402

import stoker.megatron  # noqa: E402


def rows_of(batch):
    """A word for each row: of what is trained on."""
    return [hashlib.blake2b(tokens.numpy().tobytes() + labels.numpy().tobytes(), digest_size=8).hexdigest()
            for tokens, labels in zip(batch["tokens"], batch["labels"])]


def lies_in_arena(tensor):
    """Whether it is the engine's memory."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps if "memfd:stoker-arena" in line]
    return any(first <= tensor.data_ptr() < end for first, end in ranges)


class Told:
    """An iterator that is told of."""

    def __init__(self, reading, notes):
        self.reading, self.notes, self.alive = reading, notes, set()
        notes.update(micros=[], most_alive=0)

    def __next__(self):
        batch = next(self.reading)
        tokens = batch["tokens"]
        self.alive.add(id(tokens))
        weakref.finalize(tokens, self.alive.discard, id(tokens))
        self.notes["most_alive"] = max(self.notes["most_alive"], len(self.alive))
        self.notes["micros"].append({"rows": rows_of(batch), "iteration": get_args().curr_iteration,
                                     "lent": "pixel_values" in batch and lies_in_arena(batch["pixel_values"])})
        return batch

    def __len__(self):
        return len(self.reading)

    def save_state(self):
        return self.reading.save_state()


def main():
    folder, config, options = sys.argv[1:4]
    del sys.argv[1:4]
    if "--step-batch-size-schedule" in sys.argv:
        train_megatron.SETTINGS = train_megatron.SETTINGS.replace("--global-batch-size 4", "")
    notes = {"log": [], "train": {}, "valid": {}, "evaluations": []}
    options = json.loads(options)
    state_folder = options.pop("dataloader_save", None)
    loader = importlib.import_module(options.pop("loader", "stoker")).Loader
    inner = stoker.megatron.provider(config, device="cpu", positions="mrope", loader=loader, **options)

    def provider(num_samples, vp_stage=None):
        get_args().dataloader_save = state_folder
        train, valid, test = inner(num_samples, vp_stage)
        notes["begun"] = train.save_state()["stoker"]
        notes["engines"] = [*train.loader.metrics().get("ray", {}).get("engines", {})]
        return Told(train, notes["train"]), None if valid is None else Told(valid, notes["valid"]), test

    provider.is_distributed = True
    log, evaluate = training.training_log, training.evaluate

    def training_log(loss_dict, total_loss_dict, learning_rate, iteration, loss_scale, report_memory_flag, skipped_iter, grad_norm, *more, **named):
        notes["log"].append([iteration, float(loss_dict["lm loss"]) if loss_dict else None, float(grad_norm), get_args().consumed_train_samples])
        return log(loss_dict, total_loss_dict, learning_rate, iteration, loss_scale, report_memory_flag, skipped_iter, grad_norm, *more, **named)

    def evaluated(*given, **named):
        result = evaluate(*given, **named)
        notes["evaluations"].append(float(result[0]["lm loss"]))
        return result

    training.training_log, training.evaluate = training_log, evaluated
    try:
        train_megatron.main(provider)
    finally:                                        # --exit-interval ends the process
        (pathlib.Path(folder) / f"rank-{get_args().rank}.json").write_text(json.dumps(notes))


main()
