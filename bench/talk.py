#!/usr/bin/env python3
"""The setting of the talk: batches of 256 chats with a picture each, from a store whose first byte comes 30 ms late.

    .venv-reference/bin/python bench/talk.py --build build [--batches 24]

`make bench-talk` makes what it needs: pictures in build/bench-set, a checkpoint folder in build/reference-model.

A simulated trainer takes a batch, then `train` seconds, which are a share (--share, 17.5 %) of what the loader in Python needs to prepare one.
Rungs, each over the same samples from the same store:

  python       as people write it: one GET (boto3 where .venv-rivals has it, else urllib), Pillow, transformers' processor; then the next
  serial       stoker run --serial: everything one by one, in Stoker
  parallel     stoker run, one batch ahead (prefetch: 1)
  prefetched   stoker run as it comes

latency factor = wait / (wait + train), first batch included; `one by one` is what it would be if the same stages did not overlap.
cores = busy seconds of decode, transform, text and place in a batch, over `train`: with fewer no loader of this kind can keep up.
"""
import argparse
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import time
import urllib.request

BATCH, DELAY_MS, PICTURES = 256, 30, 512
HERE = pathlib.Path(__file__).resolve().parent
KEYS = {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": "SK", "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
QUESTION = "What can be seen in this picture? Name the most important things and where they are."
ANSWER = ("The picture shows hills in front of a sky, with the sun on one side. In front there is grass, and behind it the "
          "ridges become paler. ")


def make_data(pictures, folder, samples, size=(640, 480), damaged=0):
    """Crops of the photographs, at 640 x 480 about 110 KB each, and their chats.  damaged: pictures whose second half is missing."""
    from PIL import Image
    (folder / "images").mkdir(parents=True, exist_ok=True)
    photos = [Image.open(p).convert("RGB") for p in sorted(pictures.glob("photo_*"))]
    draw = random.Random(1)
    for i in range(PICTURES):
        photo = photos[i % len(photos)]
        x, y = draw.randrange(photo.width - size[0] + 1), draw.randrange(photo.height - size[1] + 1)
        path = folder / "images" / f"{i:04d}.jpg"
        photo.crop((x, y, x + size[0], y + size[1])).save(path, quality=90)
        if i < damaged:
            path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
    with open(folder / "train.jsonl", "w") as out:
        for i in range(samples):
            out.write(json.dumps({"id": str(i), "image": f"images/{i % PICTURES:04d}.jpg", "conversations": [
                {"from": "human", "value": "<image>\n" + QUESTION}, {"from": "gpt", "value": ANSWER * (1 + i % 3)}]}) + "\n")
    return sum(p.stat().st_size for p in (folder / "images").iterdir()) / PICTURES


@contextlib.contextmanager
def slow_store(build, folder):
    process = subprocess.Popen([build / "bench" / "slow_store", f"folder={folder}", f"ms={DELAY_MS}"], stdout=subprocess.PIPE, text=True)
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().split()[1]}"
    finally:
        process.kill()
        process.wait()


# --- Python as people write it; a process of its own ---

def getter(url):
    rivals = HERE.parent / ".venv-rivals" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    if rivals.exists():
        sys.path.append(str(rivals))
    if importlib.util.find_spec("boto3"):
        import boto3
        from botocore.config import Config
        client = boto3.client("s3", endpoint_url=url, config=Config(s3={"addressing_style": "path"}))
        return lambda key: client.get_object(Bucket="b", Key=key)["Body"].read()
    return lambda key: urllib.request.urlopen(f"{url}/b/{key}").read()


def processor_of(model):
    """texts and a picture to tensors: the whole processor where torchvision is installed, else its parts."""
    from transformers import AutoProcessor, AutoTokenizer
    try:
        whole = AutoProcessor.from_pretrained(model)
        return lambda text, image: whole(text=[text], images=[image], return_tensors="pt")
    except ImportError:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        numbers = json.loads((pathlib.Path(model) / "preprocessor_config.json").read_text())
        pictures = Qwen2VLImageProcessorPil(**{k: numbers[k] for k in ("size", "patch_size", "merge_size", "temporal_patch_size", "image_mean", "image_std")})
        tokenizer = AutoTokenizer.from_pretrained(model)

        def process(text, image):
            out = pictures(images=[image], return_tensors="pt")
            tokens = int(out["image_grid_thw"][0].prod()) // 4
            return dict(out) | dict(tokenizer([text.replace("<|image_pad|>", "<|image_pad|>" * tokens)], return_tensors="pt"))
        return process


def chat_of(row):
    return "".join("<|im_start|>%s\n%s<|im_end|>\n" % ("user" if t["from"] == "human" else "assistant",
                                                       t["value"].replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>"))
                   for t in row["conversations"])


def run_python(url, model, batches, train_s, share):
    """Prints what main() tells of the other rungs.  train_s 0: share of the first batches' preparation."""
    import torch
    from PIL import Image
    get, process = getter(url), processor_of(model)
    rows = [json.loads(line) for line in get("train.jsonl").splitlines()]
    waits, trained, tokens = [], 0, 0
    begin = time.monotonic()
    for b in range(batches):
        asked, items = time.monotonic(), []
        for row in (rows[(b * BATCH + i) % len(rows)] for i in range(BATCH)):
            image = Image.open(io.BytesIO(get(row["image"]))).convert("RGB")
            items.append(process(chat_of(row), image))
        ids = torch.nn.utils.rnn.pad_sequence([i["input_ids"][0] for i in items], batch_first=True)
        pixels = torch.cat([i["pixel_values"] for i in items])
        tokens += ids.numel() + 0 * len(pixels)
        waits.append(time.monotonic() - asked)
        train_s = train_s or share * waits[0]
        time.sleep(train_s)
        trained += train_s
    wall = time.monotonic() - begin
    wait = sum(waits)
    print(json.dumps({"samples_per_s": batches * BATCH / wall, "latency_factor": wait / (wait + trained), "serial_latency_factor": wait / (wait + trained),
                      "prepare_s": wait / batches, "train_s": train_s, "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "masked": 0, "cores": None, "first_s": waits[0]}))


# --- Stoker ---

def run_stoker(build, config, steps, train_s, flags):
    done = subprocess.run([build / "cli" / "stoker", "run", config, "--json", "--steps", str(steps), "--step-ms", str(int(train_s * 1e3)), *flags],
                          env=os.environ | KEYS, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    out = json.loads(done.stdout)
    busy = sum(stage["busy_s"] for name, stage in out["stages"].items() if name != "fetch") / out["steps"]
    return {"samples_per_s": out["samples_per_s"], "latency_factor": out["latency_factor"], "serial_latency_factor": out["serial_latency_factor"],
            "prepare_s": sum(stage["busy_s"] for stage in out["stages"].values()) / out["steps"], "train_s": train_s,
            "rss_mb": out["memory"]["rss_peak_bytes"] / 2**20, "masked": out["failures"]["masked"], "cores": busy / train_s, "first_s": out["first_batch_s"]}


def main():
    if len(sys.argv) == 7 and sys.argv[1] == "--python":
        return run_python(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]), float(sys.argv[6]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--batches", type=int, default=24, help="of Stoker's parallel rungs; the serial ones take a quarter")
    parser.add_argument("--share", type=float, default=0.175, help="of the preparation in Python: what a training step takes")
    options = parser.parse_args()
    build = options.build.resolve()
    work, model = build / "talk", build / "reference-model"
    mean = make_data(build / "bench-set", work / "data", options.batches * BATCH)
    config = work / "talk.yaml"
    few = max(2, options.batches // 8)
    rungs = {}
    with slow_store(build, work / "data") as url:
        config.write_text(f"model: {model}\ndata:\n  - path: s3://b/train.jsonl\nindex_dir: {work / 'index'}\nendpoint: {url}\nbatch: {BATCH}\nseed: 1\n")
        begin = time.monotonic()
        subprocess.run([build / "cli" / "stoker", "index", config], env=os.environ | KEYS, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        indexed = time.monotonic() - begin
        done = subprocess.run([sys.executable, __file__, "--python", url, model, str(few), "0", str(options.share)],
                              env=os.environ | KEYS | {"HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, check=True, text=True)
        rungs["python"] = json.loads(done.stdout.splitlines()[-1])
        train_s = rungs["python"]["train_s"]
        rungs["serial"] = run_stoker(build, config, few, train_s, ["--serial"])
        rungs["parallel"] = run_stoker(build, config, options.batches, train_s, ["--prefetch", "1"])
        rungs["prefetched"] = run_stoker(build, config, options.batches, train_s, [])
    print(f"{BATCH} samples a batch, {mean / 1e3:.0f} KB a picture, first byte after {DELAY_MS} ms, a training step {train_s:.2f} s, {os.cpu_count()} cores; "
          f"index of {options.batches * BATCH} records: {indexed:.1f} s\n")
    print("| rung | samples/s | latency factor | one by one | first batch s | prepare s a batch | peak MB | masked | cores for this pace |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, r in rungs.items():
        cores = f"{r['cores']:.2f}" if r["cores"] is not None else "–"
        print(f"| {name} | {r['samples_per_s']:.0f} | {100 * r['latency_factor']:.1f} % | {100 * r['serial_latency_factor']:.1f} % | {r['first_s']:.2f} "
              f"| {r['prepare_s']:.2f} | {r['rss_mb']:.0f} | {r['masked']} | {cores} |")


if __name__ == "__main__":
    main()
