"""What Stoker makes of the pictures of the suite, through its command line: one record a picture, one step a way.

The pictures of each pair of limits make a data set; `stoker index` leaves out what the headers tell, and a masked sample of
the step is a picture that does not decode.
"""
import json
import pathlib
import shutil
import subprocess

import numpy
import xxhash

import reference

SAMPLE_MODEL = reference.ROOT / "examples" / "sample" / "model"
TEMPLATE = {
    "system": {"before": "<|im_start|>system\n", "after": "<|im_end|>\n"},
    "user": {"before": "<|im_start|>user\n", "after": "<|im_end|>\n"},
    "assistant": {"before": "<|im_start|>assistant\n", "after": "<|im_end|>\n", "train": ["text"]},
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
}


def write_model(folder, patch):
    """The sample's checkpoint folder, with another patch and CLIP's numbers where the patch is 14."""
    shutil.copytree(SAMPLE_MODEL, folder)
    path = folder / "preprocessor_config.json"
    numbers = json.loads(path.read_text())
    numbers.update(patch_size=patch, **(reference.CLIP if patch == 14 else reference.HALF))
    path.write_text(json.dumps(numbers))
    (folder / "video_preprocessor_config.json").write_text(json.dumps(numbers))
    config = json.loads((folder / "config.json").read_text())
    config["vision_config"]["patch_size"] = patch
    (folder / "config.json").write_text(json.dumps(config))


def write_configuration(folder, patch):
    """Manifests and a configuration of all pictures of this patch; gives their number."""
    write_model(folder / "model", patch)
    sets, count = {}, 0
    for path, _, _, least, most, own_patch, _ in reference.pictures():
        if own_patch == patch:
            sets.setdefault((least, most), []).append(path)
            count += 1
    data = []
    for (least, most), paths in sets.items():
        manifest = folder / f"{least}.jsonl"
        turns = [{"from": "human", "value": "<image>"}, {"from": "gpt", "value": "ok"}]
        manifest.write_text("".join(json.dumps({"id": path, "image": path, "conversations": turns}) + "\n" for path in paths))
        data.append({"name": f"limits-{least}", "path": str(manifest), "media_root": str(reference.ROOT / "tests"), "min_pixels": least,
                     "max_pixels": most})
    configuration = {"model": "model", "data": data, "batch": count, "shuffle": False, "errors": {"unusable": 1, "masked": 1},
                     "memory": "4GiB", "prefetch": 1, "template": TEMPLATE, "index_dir": str(folder)}
    (folder / "stoker.yaml").write_text(json.dumps(configuration, indent=1))  # JSON is YAML
    return count


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
    return done.stdout


def made_by(program, folder, profile, orientation, alpha, pixels="float32"):
    """Of each patch size in folder: {picture: (grid, patches)}; what is missing was refused."""
    results = {}
    for config in sorted(folder.glob("*/stoker.yaml")):
        dump = config.parent / "dump"
        shutil.rmtree(dump, ignore_errors=True)
        run(program, "replay", config, "--step", 0, "--dump", dump, "--profile", profile, "--orientation", orientation, "--alpha", alpha,
            "--pixels", pixels)
        one = next(dump.iterdir())
        samples = [s for s in json.loads((one / "batch.json").read_text())["samples"] if s["status"] != "filler"]
        values = numpy.load(one / ("pixel_values.npy" if pixels != "uint8" else "pixel_bytes.npy"))
        grids = numpy.load(one / "image_grid_thw.npy")
        at = 0
        for sample, (t, h, w) in zip(samples, grids.tolist(), strict=True):
            patches = values[at : at + t * h * w]
            at += t * h * w
            if sample["status"] == "made":
                results[sample["id"].split("/", 1)[1]] = ([h, w], patches)
        assert at == len(values)
    return results


def bytes_of(values, patch):
    """The uint8 patches that pixel_values came from: the nearest byte, without the doubled frame."""
    numbers = reference.CLIP if patch == 14 else reference.HALF
    mean, deviation = (numpy.array(numbers[k]).reshape(1, 3, 1) * 255 for k in ("image_mean", "image_std"))
    return numpy.rint(values.reshape(len(values), 3, 2, patch * patch)[:, :, 0] * deviation + mean).astype(numpy.uint8)


def digest(array):
    return xxhash.xxh3_64_hexdigest(numpy.ascontiguousarray(array).tobytes())


def prepare(program, folder):
    """Configurations and indexes in folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for patch in sorted({p[5] for p in reference.pictures()}):
        (folder / str(patch)).mkdir(parents=True)
        write_configuration(folder / str(patch), patch)
        run(program, "index", folder / str(patch) / "stoker.yaml")
