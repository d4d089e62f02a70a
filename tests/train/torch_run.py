"""A small model trained with DistributedDataParallel, which writes down what it saw: started by the tests, on one process or more.

    torch_run.py OUT CONFIG STEPS [CHECKPOINT]

It stops after STEPS steps of the run.  OUT/rank-R.json has the losses of steps and the digests of their rows (docs/determinism.md); OUT/checkpoint.pt is
where it stopped.
"""
import collections
import json
import os
import pathlib
import sys

import numpy as np
import torch
import torch.distributed as dist
import xxhash
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import stoker.torch

WORDS = 512     # of its vocabulary; ids are taken modulo it


def field(name, value):
    array = np.ascontiguousarray(value.numpy())
    return name.encode() + b"\0" + str(array.dtype).encode() + b"\0" + np.array([array.ndim, *array.shape], "<i8").tobytes() + array.tobytes()


def row_digests(batch):
    """(row of the step, digest), of a padded micro-batch with a sample a row."""
    patches = images = 0
    for sample in sorted(batch.samples, key=lambda sample: sample.row):
        fed = b"".join(field(name, batch[name][..., sample.row, :sample.tokens]) for name in ("input_ids", "labels", "position_ids"))
        end, seen = patches + 4 * sample.visual_tokens, images
        while patches < end:
            patches += int(batch["image_grid_thw"][images].prod())
            images += 1
        if images > seen:
            fed += field("image_grid_thw", batch["image_grid_thw"][seen:images])
            fed += field("pixel_bytes", batch["pixel_bytes"][end - 4 * sample.visual_tokens:end])
        if not sample.filler:
            yield sample.step_row, xxhash.xxh3_128(fed).hexdigest()


def train(out, config, steps, checkpoint=None):
    out, saved = pathlib.Path(out), torch.load(checkpoint) if checkpoint else None
    rows, losses = collections.defaultdict(list), {}
    with stoker.torch.Loader(config, **stoker.torch.ranks(), device="cpu", expand=False, state=saved and saved["data"]) as loader:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(WORDS, 16), torch.nn.Linear(16, WORDS)))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        if saved:
            model.module.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
        for batch in loader:
            rows[batch.step] += row_digests(batch)
            wanted = torch.where(batch["labels"] == -100, -100, batch["labels"] % WORDS)[:, 1:].reshape(-1)
            given = model(batch["input_ids"] % WORDS)[:, :-1].reshape(-1, WORDS)
            loss = functional.cross_entropy(given, wanted, reduction="sum") / batch.step_loss_tokens
            (loss * batch.world).backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[batch.step] = loss.item()
            if batch.step + 1 == int(steps):
                break
        if dist.get_rank() == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "data": loader.state_dict()}, out / "checkpoint.pt")
    (out / f"rank-{dist.get_rank()}.json").write_text(json.dumps({"rows": rows, "losses": losses, "state": loader.state_dict()["stoker"]}))


def main(*arguments):
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    train(*arguments)
    dist.destroy_process_group()    # when DDP is gone: its end waits for threads of the group, and they for the interpreter


if __name__ == "__main__":
    main(*sys.argv[1:])
