"""What one release of the reference software makes of the pictures of tests/conformance/pictures.txt.

    PYTHON reference.py RELEASE FOLDER [NAME...]

Runs in the Python of that release (run.py starts it there; RELEASES says which).  Writes FOLDER/RELEASE.jsonl, a line for
each picture and way (profile, orientation, alpha): height and width in patches, and XXH3-64 of the uint8 patches and of
pixel_values as float32; or the refusal.  The patches themselves go to FOLDER/patches/DIGEST.npy.

How a switch is put to software that does not have it: `orientation: apply` is ImageOps.exif_transpose, `alpha: drop` is
convert("RGB") and a picture that has forgotten its transparency, `alpha: white` is transformers 5.24.0's own blend of
opened pictures.
"""
import io
import json
import os
import pathlib
import re
import signal
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLIP = dict(image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
TRANSFORMERS_5 = dict(transformers="5.24.0", torch="2.14.1", torchvision="0.29.1")

# Name: (environment, Pillow, packages whose releases are checked, profile).
RELEASES = {
    "transformers-4.57.6": ("hf4", "11.3.0", dict(transformers="4.57.6", torch="2.14.1", torchvision="0.29.1"), "hf"),
    "transformers-5.24.0": ("hf5", "13.0.0", TRANSFORMERS_5, "hf"),
    "transformers-5.24.0-strings": ("hf5", "13.0.0", TRANSFORMERS_5, "strings"),
    "pillow-11.3.0": ("hf5", "11.3.0", TRANSFORMERS_5, "pil-11"),
    "pillow-12.1.1": ("hf5", "12.1.1", TRANSFORMERS_5, "pil-11"),
    "pillow-12.3.0": ("hf5", "12.3.0", TRANSFORMERS_5, "pil-12"),
    "pillow-13.0.0": ("hf5", "13.0.0", TRANSFORMERS_5, "pil-13"),
    "qwen-vl-utils-0.0.14": ("hf5", "13.0.0", {**TRANSFORMERS_5, "qwen_vl_utils": "0.0.14"}, "qwen-vl-utils"),
}
# The release that a profile is named after: its results are the goldens, the others are compared with them.
FIRST = {"hf": "transformers-5.24.0", "pil-11": "pillow-11.3.0", "pil-12": "pillow-12.3.0", "pil-13": "pillow-13.0.0",
         "qwen-vl-utils": "qwen-vl-utils-0.0.14"}
SWITCHES = [(orientation, alpha) for orientation in ("apply", "ignore") for alpha in ("drop", "white")]
WAYS = {
    "hf": SWITCHES, "pil-11": SWITCHES, "pil-12": SWITCHES, "pil-13": SWITCHES, "qwen-vl-utils": [("auto", "auto")] + SWITCHES,
    "strings": [("apply", "drop")],
}


def pictures():
    """(path below tests, format, kind, min_pixels, max_pixels, patch, remark) of each picture."""
    for line in (ROOT / "tests/conformance/pictures.txt").read_text(encoding="utf-8").split("\n"):
        if line:
            path, kind_of_file, kind, least, most, patch, remark = line.split("\t")
            yield path, kind_of_file, kind, int(least), int(most), int(patch), remark


class Refused(Exception):
    """The software does not read the picture."""


class Software:
    """One release: decode as it decodes, resize and normalise as it does."""

    def __init__(self, release):
        self.environment, pillow, packages, self.profile = RELEASES[release]
        self.release = release
        import importlib.metadata

        import numpy
        import PIL
        import torchvision  # noqa: F401  (without it Qwen2VLImageProcessor is another processor, with other bits)
        import transformers
        from PIL import Image, ImageOps
        for package, version in {**packages, "pillow": pillow}.items():
            found = PIL.__version__ if package == "pillow" else importlib.metadata.version(package.replace("_", "-"))
            assert found.split("+")[0] == version, (package, found)
        self.numpy, self.image, self.ops = numpy, Image, ImageOps
        name = "Qwen2VLImageProcessorPil" if self.profile.startswith("pil") else \
            "Qwen2VLImageProcessorFast" if packages["transformers"].startswith("4.") else "Qwen2VLImageProcessor"
        self.processor = getattr(transformers, name)
        if self.profile == "qwen-vl-utils":
            import qwen_vl_utils
            self.fetch = qwen_vl_utils.fetch_image
        warnings.simplefilter("ignore")
        self.made = {}

    def plain(self, image):
        """RGB that has forgotten its file: transparency in the info would be blended once more (spec section 1.1)."""
        return self.image.fromarray(self.numpy.array(image.convert("RGB")))

    def decode(self, path, orientation, alpha):
        """What is handed to the processor."""
        if self.environment == "hf4" and (orientation, alpha) == ("apply", "drop"):
            return self.processor().fetch_images(str(path))
        if self.profile == "strings":
            return str(path)
        image = self.image.open(io.BytesIO(path.read_bytes()))
        if orientation == "apply":
            image = self.ops.exif_transpose(image)
        if alpha == "drop" and self.environment != "hf4":
            return self.plain(image)
        image.load()
        return image

    def patches(self, image, least, most, patch, **more):
        numbers = dict(patch_size=patch, size=dict(shortest_edge=least, longest_edge=most), **(CLIP if patch == 14 else HALF), **more)
        out = self.processor(**numbers)(images=[image], return_tensors="pt")
        raw = self.processor(**{**numbers, "do_rescale": False, "do_normalize": False})(images=[image], return_tensors="pt")
        return out["image_grid_thw"][0].tolist(), out["pixel_values"].numpy(), raw["pixel_values"].numpy()

    def make(self, path, least, most, patch, orientation, alpha):
        """(grid, float32 values, uint8 patches without the doubled frame)."""
        more = {}
        image = self.decode(path, orientation, alpha)
        if self.profile == "qwen-vl-utils":
            if alpha == "white":
                from transformers.image_transforms import convert_to_rgb
                image = self.image.fromarray(convert_to_rgb(image, return_numpy=True))
            image = self.plain(self.fetch({"image": image, "min_pixels": least, "max_pixels": most}, image_patch_size=patch))
            more["do_resize"] = False
        np = self.numpy
        if not isinstance(image, str):  # the same picture was made before: by another switch, say
            key = (np.asarray(image).tobytes(), image.mode, image.size, str(image.info.get("transparency")), str(image.getpalette()), least, most, patch)
            if key in self.made:
                return self.made[key]
        grid, values, raw = self.patches(image, least, most, patch, **more)
        twice = raw.reshape(len(raw), 3, 2, patch * patch)
        assert (twice[:, :, 0] == twice[:, :, 1]).all()
        u8 = twice[:, :, 0]
        if self.profile != "strings":
            assert (u8 == u8.astype(np.uint8)).all()
        if not isinstance(image, str):
            self.made[key] = grid, values.astype(np.float32), u8
        return grid, values.astype(np.float32), u8


def result_of(software, folder, path, numbers, orientation, alpha):
    import xxhash
    np = software.numpy
    try:
        grid, values, u8 = software.make(ROOT / "tests" / path, *numbers, orientation, alpha)
    except Exception as e:  # whatever the software raises on a file is its refusal
        said = re.sub(r" <_io.BytesIO object at 0x[0-9a-f]+>", "", f"{type(e).__name__}: {e}".split("\n")[0])
        return {"refused": said.replace(str(ROOT / "tests"), "")[:160]}
    over = float(abs(u8.astype(np.float64)).max()) > 255
    if not over:
        u8 = u8.astype(np.uint8)
    digest = xxhash.xxh3_64_hexdigest(np.ascontiguousarray(u8).tobytes())
    file = folder / "patches" / f"{digest}.npy"
    if not file.exists():
        np.save(file, u8)
    return {"grid": grid[1:], "uint8": digest, "float32": xxhash.xxh3_64_hexdigest(np.ascontiguousarray(values).tobytes())}


def in_child(call):
    """torchvision dies on some files: SIGSEGV is a result too."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, json.dumps(call()).encode())
        os._exit(0)
    os.close(write)
    said = b""
    while piece := os.read(read, 65536):
        said += piece
    os.close(read)
    _, status = os.waitpid(child, 0)
    return json.loads(said) if status == 0 else {"refused": f"the process dies ({signal.Signals(status & 127).name})"}


def main():
    release, folder, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    (folder / "patches").mkdir(parents=True, exist_ok=True)
    import torch
    torch.set_num_threads(1)
    software = Software(release)
    with open(folder / f"{release}.jsonl", "w", encoding="utf-8") as out:
        for path, _, _, least, most, patch, _ in pictures():
            if names and not any(name in path for name in names):
                continue
            software.made.clear()
            for orientation, alpha in WAYS[software.profile]:
                if software.environment == "hf4" and alpha != "drop":
                    continue  # 4.57.6 has no blend of its own
                call = lambda: result_of(software, folder, path, (least, most, patch), orientation, alpha)  # noqa: E731
                result = in_child(call) if software.profile == "strings" else call()
                out.write(json.dumps({"picture": path, "profile": software.profile, "orientation": orientation, "alpha": alpha, **result}) + "\n")


if __name__ == "__main__":
    main()
