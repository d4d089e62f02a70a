"""Random sizes beside Pillow's bicubic (spec-qwen3vl.md section 2.4): equal bytes, in each profile's order of passes.

The single pass is the same in all releases; only 13.0.0 is installed, so the orders of the older ones are made of two
calls.  (The releases themselves: docs/conformance.md.)
"""
import PIL
import pytest
from PIL import Image

numpy = pytest.importorskip("numpy")

import resize_cases

PIL_11, PIL_12, PIL_13, QWEN_VL_UTILS = 1, 2, 3, 4


def resize(pixels, *sizes):
    image = Image.fromarray(pixels)
    for size in sizes:
        image = image.resize(size, Image.Resampling.BICUBIC)
    return numpy.asarray(image)


def width_first(pixels, width, height):
    return resize(pixels, (width, pixels.shape[0]), (width, height))


def order_of_12(pixels, width, height):
    h, w, _ = pixels.shape
    return resize(pixels, (w, height), (width, height)) if h > 100 * w and height < h else width_first(pixels, width, height)


def as_13(pixels, width, height):
    assert PIL.__version__ == "13.0.0"
    return resize(pixels, (width, height))


def thin(folder):
    """Heights far above widths, where releases differ most."""
    rng = numpy.random.default_rng(5)
    for i, (w, h, tw, th) in enumerate([(1, 150, 9, 40), (2, 199, 1, 20), (2, 201, 3, 100), (1, 101, 4, 100), (3, 290, 6, 289)]):
        pixels = rng.integers(0, 256, (h, w, 3), dtype=numpy.uint8)
        path = folder / f"thin-{i}.png"
        path.write_bytes(resize_cases.png(pixels))
        yield pixels, tw, th, 1, f"{path} {tw} {th} 1\n"


@pytest.mark.parametrize("level", ["none", "best"])
@pytest.mark.parametrize("profile, reference", [(PIL_11, width_first), (PIL_12, order_of_12), (PIL_13, as_13), (QWEN_VL_UTILS, as_13)])
def test_random_sizes_equal_pillow(build, tmp_path, level, profile, reference):
    cases = [*resize_cases.draw_cases(tmp_path, 150, 7 + profile), *thin(tmp_path)]
    resize_cases.compare(build, tmp_path, cases, level, profile, reference)
