"""A run of transformers' Trainer on Stoker, which writes down what it trained on: started by the tests, on one process or more.

    hf_run.py OUT CONFIG '{"per_device_train_batch_size": 1, ...}' [CHECKPOINT [MODULE OPTIONS]]

The loader is MODULE's, with OPTIONS.
OUT/rank-R.json has the losses and gradient norms of the steps, the rows of each step by digest, what the evaluations said, and the engines of a
cluster.
"""
import collections
import hashlib
import importlib
import json
import pathlib
import sys

import torch
from transformers import AutoConfig, Qwen3VLForConditionalGeneration, Trainer, TrainingArguments, set_seed

import stoker.hf


def row_digests(batch):
    """Of each sample of a padded micro-batch, filler left out: its row in the step, and what is trained on."""
    patches = 0
    for sample in sorted(batch.samples, key=lambda sample: sample.row):
        parts = [batch[name][..., sample.row, :sample.tokens] for name in ("input_ids", "labels", "position_ids", "mm_token_type_ids")]
        if sample.visual_tokens:
            parts.append(batch["pixel_values"][patches:patches + 4 * sample.visual_tokens])
        patches += 4 * sample.visual_tokens
        if not sample.filler:
            yield sample.step_row, hashlib.sha256(b"".join(part.contiguous().numpy().tobytes() for part in parts)).hexdigest()


class Recorded(stoker.hf.TrainerMixin, Trainer):
    def __init__(self, *arguments, **named):
        self.rows = collections.defaultdict(list)
        super().__init__(*arguments, **named)

    def training_step(self, model, inputs, *more):
        self.rows[inputs.step] += row_digests(inputs)
        return super().training_step(model, inputs, *more)


def tiny_model(config):
    set_seed(1)
    return Qwen3VLForConditionalGeneration(AutoConfig.from_pretrained(config.parent / "model"))


def main(out, config, arguments, checkpoint="", module="stoker", options="{}"):
    torch.set_num_threads(1)
    config = pathlib.Path(config)
    args = TrainingArguments(output_dir=out, use_cpu=True, learning_rate=1e-3, lr_scheduler_type="constant", logging_steps=1, report_to="none",
                             disable_tqdm=True, **json.loads(arguments))
    trainer = Recorded(model=tiny_model(config), args=args, stoker=config, stoker_options=json.loads(options),
                       stoker_loader=importlib.import_module(module).Loader)
    trainer.train(resume_from_checkpoint=checkpoint or None)
    log = trainer.state.log_history
    told = {"trained": {entry["step"]: [entry["loss"], entry["grad_norm"], entry["epoch"]] for entry in log if "loss" in entry},
            "evaluated": {entry["step"]: entry["eval_loss"] for entry in log if "eval_loss" in entry},
            "rows": trainer.rows, "max_steps": trainer.state.max_steps, "live": trainer.stoker.metrics()["micro_batches"],
            "engines": [*trainer.stoker.metrics().get("ray", {}).get("engines", {})]}
    (pathlib.Path(out) / f"rank-{args.process_index}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
