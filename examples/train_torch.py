"""Train a tiny, random Qwen3-VL on the sample set with plain torch: DistributedDataParallel on CPUs, checkpoint and resume.

    torchrun --nproc-per-node 2 examples/train_torch.py OUT
    python examples/train_torch.py OUT                  # one process
    python examples/train_torch.py OUT --resume         # from the last checkpoint, on any number of processes
"""
import argparse
import contextlib
import os
import pathlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

import stoker.torch

SAMPLE = pathlib.Path(__file__).resolve().parent / "sample/stoker.yaml"


def train(out: pathlib.Path, config: pathlib.Path, resume: bool, save_steps: int) -> None:
    """The whole run, or what is left of it."""
    saved = torch.load(out / "checkpoint.pt") if resume else None

    # Batches are made from here on, beside the model.  DDP wants a gradient of every parameter: filler_image gives the vision tower a picture
    # where a micro-batch has none.
    with stoker.torch.Loader(config, **stoker.torch.ranks(), filler_image=True, state=saved and saved["data"]) as loader:
        torch.manual_seed(0)
        model = DistributedDataParallel(Qwen3VLForConditionalGeneration(AutoConfig.from_pretrained(SAMPLE.parent / "model")).to(loader.device))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        if saved:
            model.module.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])

        step_loss = torch.zeros(())
        for batch in loader:
            last_of_step = batch.micro + 1 == batch.micro_count
            with loader.step(), contextlib.nullcontext() if last_of_step else model.no_sync():
                # The mean over the trained tokens of the step, however they lie on ranks and micro-batches: DDP divides by the ranks.
                loss = model(**batch, num_items_in_batch=batch.step_loss_tokens).loss
                (loss * batch.world).backward()
                step_loss += loss.detach().cpu()
                if last_of_step:
                    optimizer.step()
                    optimizer.zero_grad()
            if not last_of_step:
                continue
            dist.all_reduce(step_loss)
            if batch.rank == 0:
                print(f"step {batch.step} loss {step_loss.item():.4f}", flush=True)
                if (batch.step + 1) % save_steps == 0:
                    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "data": batch.state}, out / "part")
                    os.replace(out / "part", out / "checkpoint.pt")
            step_loss.zero_()

        if dist.get_rank() == 0:
            measured = loader.metrics()
            print(f"waited {measured['wait_s']:.2f} s for data, trained {measured['train_s']:.2f} s")


def main() -> None:
    """As above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder of the checkpoint")
    parser.add_argument("--config", type=pathlib.Path, default=SAMPLE)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--save-steps", type=int, default=10)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)

    if "RANK" in os.environ:                # torchrun says who this is
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    train(**vars(given))
    dist.destroy_process_group()            # when DDP is gone: the other way round torch may hang


if __name__ == "__main__":
    main()
