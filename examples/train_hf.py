"""Train a tiny, random Qwen3-VL on the sample set with transformers' Trainer, on CPUs.

    python examples/train_hf.py OUT
    torchrun --nproc-per-node 2 examples/train_hf.py OUT
    python examples/train_hf.py OUT --resume            # from the last checkpoint, on any number of processes
"""
import argparse
import os
import pathlib

from transformers import AutoConfig, Qwen3VLForConditionalGeneration, Trainer, TrainingArguments, set_seed

import stoker.hf

SAMPLE = pathlib.Path(__file__).resolve().parent / "sample/stoker.yaml"


class StokerTrainer(stoker.hf.TrainerMixin, Trainer):  # type: ignore[misc]
    """The trainer of before, with other data."""


def main() -> None:
    """As above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", help="folder of the checkpoints")
    parser.add_argument("--config", type=pathlib.Path, default=SAMPLE)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()

    # The configuration says `batch: 4`, so these three have to make four rows a step, on one process or two.
    processes = int(os.environ.get("WORLD_SIZE", 1))
    args = TrainingArguments(output_dir=given.out, per_device_train_batch_size=2, gradient_accumulation_steps=2 // processes, num_train_epochs=2,
                             learning_rate=1e-3, logging_steps=1, save_steps=10, report_to="none", use_cpu=True)
    set_seed(1)
    model = Qwen3VLForConditionalGeneration(AutoConfig.from_pretrained(SAMPLE.parent / "model"))

    trainer = StokerTrainer(model=model, args=args, stoker=given.config)
    trainer.train(resume_from_checkpoint=given.resume)

    if trainer.is_world_process_zero() and trainer.stoker:
        measured = trainer.stoker.metrics()
        print(f"waited {measured['wait_s']:.2f} s for data, trained {measured['train_s']:.2f} s")


if __name__ == "__main__":
    main()
