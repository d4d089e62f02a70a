"""A loop of one's own with Accelerate's defaults, on Stoker; started by the tests: hf_accelerate_run.py OUT CONFIG."""
import json
import pathlib
import sys

import torch
from accelerate import Accelerator
from hf_run import tiny_model

import stoker.torch

STEPS, SAVED, ACCUMULATION = 4, 2, 2


def row_of(batch):
    sample, = [sample.id for sample in batch.samples if not sample.filler]
    return [batch.step, sample]


def main(out, config):
    torch.set_num_threads(1)
    out, config = pathlib.Path(out), pathlib.Path(config)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
    loader = stoker.torch.Loader(config, **stoker.torch.ranks(), batch=4, micro_batch=1, filler_image=True)   # DDP waits for the vision tower's gradients
    model = tiny_model(config)
    model, optimizer, prepared = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
    accelerator.register_for_checkpointing(prepared)
    told = {"same": prepared is loader, "node_ranks": stoker.torch.ranks()["node_ranks"], "rows": [], "patches": [], "updates": 0}
    for batch in prepared:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            told["updates"] += accelerator.sync_gradients
            optimizer.step()
            optimizer.zero_grad()
        told["rows"].append(row_of(batch))
        told["patches"].append([int(batch["image_grid_thw"].prod(-1).sum()), batch["pixel_values"].shape[0]])
        if batch.micro + 1 == batch.micro_count and batch.step + 1 == SAVED:
            accelerator.save_state(out / "saved")
        if len(told["rows"]) == STEPS * ACCUMULATION:
            break
    accelerator.load_state(out / "saved")
    told["again"] = [row_of(batch) for _, batch in zip(range((STEPS - SAVED) * ACCUMULATION), prepared)]
    (out / f"rank-{accelerator.process_index}.json").write_text(json.dumps(told))
    loader.close()
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
