#!/usr/bin/env python3
"""Whole chat samples to batches: Stoker beside a DataLoader with the reference processor and beside an expert's one.

    python bench/compare_samples.py --stoker build/cli/stoker --model FOLDER --images FOLDER [--prefix coco_]

FOLDER of the model: a checkpoint folder without weights, as tools/make-reference-model writes it.  Each variant runs in
a process of its own, two workers, batches of 16, the same two-turn chats over the same files; CPU time is user + system
of the process and all its children, start-up taken away by a run over one batch.  Rounds are interleaved and ratios
are medians of the rounds' ratios.

Variants
  stoker     `stoker run`, pixels: uint8, all fields of a padded batch
  reference  torch DataLoader; processor.apply_chat_template on paths, labels by a scan, pad and cat collate
             (needs torchvision)
  expert     torch DataLoader; simplejpeg, torch's uint8 resize, NumPy patches (uint8), text by format string,
             the `tokenizers` package on the unexpanded text, pad and cat collate
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile

WORKERS, BATCH = 2, 16
QUESTION = "What can be seen in this picture? Name the most important things and where they are."
ANSWER = ("The picture shows a scene with several objects. In front there is the main subject, and behind it the "
          "background that tells where the picture was taken. ")
SECOND, SECOND_ANSWER = "Which colours stand out?", "Mostly the colours of the main subject, which are brighter than the rest."


def records(images, prefix, count):
    names = [n for n in sorted(os.listdir(images)) if n.startswith(prefix)]
    for i in range(count):
        yield {"id": str(i), "image": os.path.join(os.path.abspath(images), names[i % len(names)]), "conversations": [
            {"from": "human", "value": "<image>" + QUESTION}, {"from": "gpt", "value": ANSWER * (1 + i % 3)},
            {"from": "human", "value": SECOND}, {"from": "gpt", "value": SECOND_ANSWER}]}


def run_loader(kind, folder, manifest):
    """Runs inside a child: iterate a DataLoader over the manifest once."""
    import numpy as np
    import torch
    torch.set_num_threads(1)
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    rows = [json.loads(line) for line in open(manifest)]
    pad = -1

    if kind == "reference":
        from transformers import AutoProcessor
        processor = AutoProcessor.from_pretrained(folder)
        pad = processor.tokenizer.convert_tokens_to_ids("<|endoftext|>")
        end, start = (processor.tokenizer.convert_tokens_to_ids(t) for t in ("<|im_end|>", "<|im_start|>"))
        header = processor.tokenizer.encode("assistant")[0]

        def item(row):
            turns = row["conversations"]
            messages = [{"role": "user", "content": [{"type": "image", "path": row["image"]},
                                                     {"type": "text", "text": turns[0]["value"][len("<image>"):]}]}]
            messages += [{"role": "assistant" if t["from"] == "gpt" else "user", "content": [{"type": "text", "text": t["value"]}]}
                         for t in turns[1:]]
            out = processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt")
            ids = out["input_ids"][0]
            labels = torch.full_like(ids, -100)
            at = 0
            while at < len(ids):
                if ids[at] == header and at and ids[at - 1] == start:
                    stop = at + 2
                    while stop < len(ids) and ids[stop] != end:
                        stop += 1
                    labels[at + 2:stop + 2] = ids[at + 2:stop + 2]
                    at = stop
                at += 1
            return ids, labels, out["pixel_values"], out["image_grid_thw"]
    else:
        from tokenizers import Tokenizer

        from compare_images import Expert
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        pad, image_pad = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|image_pad|>")
        newline = tokenizer.encode("\n").ids
        expert = Expert(65536, 16777216)

        def item(row):
            patches = expert(open(row["image"], "rb").read())
            ids, labels = [], []
            for turn in row["conversations"]:
                answer = turn["from"] == "gpt"
                text = turn["value"].replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
                head = tokenizer.encode("<|im_start|>%s\n" % ("assistant" if answer else "user")).ids
                body = tokenizer.encode(text + "<|im_end|>").ids + newline
                ids += head + body
                labels += [-100] * len(head) + (body if answer else [-100] * len(body))
            at = ids.index(image_pad)
            ids[at:at + 1] = [image_pad] * (len(patches) // 4)
            labels[at:at + 1] = [-100] * (len(patches) // 4)
            return torch.tensor(ids), torch.tensor(labels), torch.from_numpy(patches), torch.tensor([[1, 1, len(patches)]])

    def collate(items):
        ids = torch.nn.utils.rnn.pad_sequence([i[0] for i in items], batch_first=True, padding_value=pad)
        labels = torch.nn.utils.rnn.pad_sequence([i[1] for i in items], batch_first=True, padding_value=-100)
        return {"input_ids": ids, "labels": labels, "attention_mask": (ids != pad).long(),
                "pixel_values": torch.cat([i[2] for i in items]), "image_grid_thw": torch.cat([i[3] for i in items])}

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(rows)

        def __getitem__(self, at):
            return item(rows[at])

    loader = torch.utils.data.DataLoader(Rows(), batch_size=BATCH, num_workers=WORKERS, collate_fn=collate)
    total = 0
    for batch in loader:
        total += int(batch["pixel_values"].view(-1)[0].item() >= -1) + batch["input_ids"].shape[0]
    print(total)


def cpu_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--loader":
        return run_loader(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stoker", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--images", required=True)
    parser.add_argument("--prefix", default="coco_")
    parser.add_argument("--samples", type=int, default=640)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as work:
        def commands(count):
            manifest, config = os.path.join(work, f"{count}.jsonl"), os.path.join(work, f"{count}.yaml")
            with open(manifest, "w") as out:
                out.writelines(json.dumps(r) + "\n" for r in records(args.images, args.prefix, count))
            with open(config, "w") as out:
                out.write(f"model: {os.path.abspath(args.model)}\ndata:\n  - path: {manifest}\nallow: [{os.path.abspath(args.images)}]\n"
                          f"batch: {BATCH}\nshuffle: false\nworkers: {WORKERS}\n")
            subprocess.run([args.stoker, "index", config], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            loader = [sys.executable, os.path.abspath(__file__), "--loader"]
            found = {"stoker": [args.stoker, "run", config, "--json"], "expert": loader + ["expert", args.model, manifest]}
            try:
                import torchvision  # noqa: F401
                found["reference"] = loader + ["reference", args.model, manifest]
            except ImportError:
                print("reference left out: torchvision is not installed")
            return found

        whole, one = commands(args.samples), commands(BATCH)
        rounds = []
        for r in range(args.rounds):
            order = list(whole)
            order = order[r % len(order):] + order[:r % len(order)]
            rounds.append({v: (cpu_seconds(whole[v]) - cpu_seconds(one[v])) / (args.samples - BATCH) * 1e3 for v in order})
        for v in whole:
            ms = [x[v] for x in rounds]
            ratios = [x[v] / x["stoker"] for x in rounds]
            print(f"{v:10} {statistics.median(ms):8.2f} CPU-ms per sample ({min(ms):.2f} - {max(ms):.2f}), "
                  f"{statistics.median(ratios):6.2f} x stoker")


if __name__ == "__main__":
    main()
