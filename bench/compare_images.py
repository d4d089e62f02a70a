#!/usr/bin/env python3
"""Images to patches: Stoker beside a bare decode, the reference processor and an expert's pipeline.

    python bench/compare_images.py --kernels build/bench/libbench_kernels.so --images FOLDER [--classes coco,web]

One process, one thread, CPU time.  The variants run interleaved over the same ten images, the starting variant
rotates; what is printed are medians over rounds, and ratios are medians of the rounds' ratios, because machines are
shared and drift.  Before a class is timed, all variants are checked to give the same bytes.

Variants
  bare        libjpeg-turbo to RGB with its defaults (JPEG only)
  stoker      bytes -> uint8 patches, without the duplicated frame
  stoker-f32  bytes -> float32 patches, duplicated, as the reference has them
  expert      simplejpeg -> torch's uint8 antialias resize -> NumPy patches (uint8)
  reference   transformers' image processor on a decoded picture (float32); its torchvision backend where torchvision is
              installed, else its Pillow backend (other pixels, named in the output)
"""
import argparse
import collections
import ctypes
import io
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
from PIL import Image

torch.set_num_threads(1)
PATCH, MERGE, FACTOR = 16, 2, 32


def smart_resize(h, w, low, high):
    h2, w2 = round(h / FACTOR) * FACTOR, round(w / FACTOR) * FACTOR
    if h2 * w2 > high:
        beta = ((h * w) / high) ** 0.5
        h2, w2 = (max(FACTOR, int(x / beta // FACTOR) * FACTOR) for x in (h, w))
    elif h2 * w2 < low:
        beta = (low / (h * w)) ** 0.5
        h2, w2 = (-int(-(x * beta) // FACTOR) * FACTOR for x in (h, w))
    return h2, w2


def numpy_patches(image):  # uint8 (3, H, W) -> (patches, 3 * P * P), in rows of 16 bytes
    _, h, w = image.shape
    gh, gw = h // PATCH, w // PATCH
    rows = np.ascontiguousarray(image).view("V16").reshape(3, gh // MERGE, MERGE, PATCH, gw // MERGE, MERGE)
    return np.ascontiguousarray(rows.transpose(1, 4, 2, 5, 0, 3)).view(np.uint8).reshape(gh * gw, 3 * PATCH * PATCH)


class Expert:
    def __init__(self, low, high):
        import simplejpeg
        self.decode_jpeg = simplejpeg.decode_jpeg
        self.low, self.high = low, high

    def __call__(self, data):
        if data[:2] == b"\xff\xd8":
            rgb = self.decode_jpeg(data, colorspace="RGB")
        else:
            rgb = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        image = torch.from_numpy(rgb).permute(2, 0, 1)
        size = smart_resize(image.shape[1], image.shape[2], self.low, self.high)
        if size != tuple(image.shape[1:]):
            image = torch.nn.functional.interpolate(image[None], size=size, mode="bicubic", antialias=True)[0]
        return numpy_patches(image.numpy())


class Reference:
    def __init__(self, low, high):
        try:
            import torchvision  # noqa: F401  (decides which backend the name stands for)
            from transformers import Qwen2VLImageProcessor as Processor
            self.name = "torchvision backend"
        except ImportError:
            from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil as Processor
            self.name = "Pillow backend"
        self.processor = Processor(size={"shortest_edge": low, "longest_edge": high}, patch_size=PATCH, merge_size=MERGE,
                                   temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3)

    def __call__(self, data):
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return np.asarray(self.processor(images=[image], return_tensors="pt")["pixel_values"])


class Stoker:
    def __init__(self, path, low, high):
        self.lib = ctypes.CDLL(path)
        self.lib.bench_patches.restype = self.lib.bench_bare_decode.restype = ctypes.c_long
        self.lib.bench_last.restype = ctypes.c_void_p
        self.low, self.high, self.form = ctypes.c_uint64(low), ctypes.c_uint64(high), None
        self.message = ctypes.create_string_buffer(256)

    def use(self, form):
        if self.form != form and self.lib.bench_open(form.encode(), self.message, 256):
            raise RuntimeError(self.message.value.decode())
        self.form = form

    def patches(self, data):
        size = self.lib.bench_patches(data, ctypes.c_size_t(len(data)), self.low, self.high, self.message, 256)
        if size < 0:
            raise RuntimeError(self.message.value.decode())

    def last(self):
        size = ctypes.c_size_t()
        at = self.lib.bench_last(ctypes.byref(size))
        return np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_uint8)), (size.value,)).copy()

    def bare(self, data):
        if self.lib.bench_bare_decode(data, ctypes.c_size_t(len(data))) < 0:
            raise RuntimeError("bare decode failed")


def padded(data):
    return data + b"\0" * 64  # the kernels may read past the end


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", required=True)
    parser.add_argument("--images", required=True)
    parser.add_argument("--classes", default="", help="prefixes of file names before '_'; default: all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--per-class", type=int, default=20)
    parser.add_argument("--max-pixels", type=int, default=16777216)
    parser.add_argument("--min-pixels", type=int, default=65536)
    args = parser.parse_args()

    classes = collections.defaultdict(list)
    for name in sorted(os.listdir(args.images)):
        if name.rsplit(".", 1)[-1].lower() in ("jpg", "jpeg", "png", "webp"):
            classes[name.split("_")[0]].append(os.path.join(args.images, name))
    wanted = args.classes.split(",") if args.classes else sorted(classes)

    stoker = Stoker(args.kernels, args.min_pixels, args.max_pixels)
    expert, reference = Expert(args.min_pixels, args.max_pixels), Reference(args.min_pixels, args.max_pixels)
    print(f"reference: {reference.name}; CPU ms per image, medians of {args.rounds} rounds; ratios of the same round")
    print(f"{'class':8} {'bare':>8} {'stoker':>8} {'stk-f32':>8} {'expert':>8} {'refer.':>8}"
          f" | {'stk/bare':>9} {'exp/stk':>9} {'ref/stk':>9} {'ref/f32':>9}")
    for name in wanted:
        files = [open(f, "rb").read() for f in classes[name][: args.per_class]]
        jpeg = files[0][:2] == b"\xff\xd8"
        stoker.use("uint8")
        for data in files[:4]:
            stoker.patches(padded(data))
            if not np.array_equal(stoker.last(), expert(data).reshape(-1)):
                raise SystemExit(f"{name}: stoker and expert differ")
        variants = {"stoker": lambda d: stoker.patches(d), "stoker-f32": lambda d: stoker.patches(d),
                    "expert": lambda d: expert(d[:-64]), "reference": lambda d: reference(d[:-64])}
        if jpeg:
            variants["bare"] = lambda d: stoker.bare(d)
        order = list(variants)
        rounds = []
        for r in range(args.rounds + 1):
            spent = dict.fromkeys(order, 0.0)
            for at in range(0, len(files), 10):
                some = [padded(d) for d in files[at:at + 10]]
                for k in range(len(order)):
                    variant = order[(k + r) % len(order)]
                    if variant.startswith("stoker"):
                        stoker.use("float32" if variant.endswith("f32") else "uint8")
                    run = variants[variant]
                    start = time.process_time()
                    for data in some:
                        run(data)
                    spent[variant] += time.process_time() - start
            if r:  # the first one warms up
                rounds.append(spent)
        ms = {v: statistics.median(x[v] for x in rounds) * 1e3 / len(files) for v in order}
        ratio = lambda a, b: statistics.median(x[a] / x[b] for x in rounds) if a in ms and b in ms else float("nan")
        print(f"{name:8} {ms.get('bare', float('nan')):8.2f} {ms['stoker']:8.2f} {ms['stoker-f32']:8.2f} {ms['expert']:8.2f}"
              f" {ms['reference']:8.2f} | {ratio('stoker', 'bare'):9.2f} {ratio('expert', 'stoker'):9.2f}"
              f" {ratio('reference', 'stoker'):9.2f} {ratio('reference', 'stoker-f32'):9.2f}", flush=True)


if __name__ == "__main__":
    main()
