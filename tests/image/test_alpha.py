"""Transparency beside Pillow: dropped, RGBA on white (qwen_vl_utils), every kind on white (transformers from 5.21, PIL objects)."""
import io
import pathlib
import struct
import warnings
import zlib

import pytest
from PIL import Image

numpy = pytest.importorskip("numpy")

import resize_cases

GOLDEN = pathlib.Path(__file__).parent / "golden"
GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6


def on_white(image):
    return Image.alpha_composite(Image.new("RGBA", image.size, (255,) * 4), image.convert("RGBA")).convert("RGB")


def drop(image):
    return image.convert("RGB")


def white_rgba(image):
    return on_white(image) if image.mode == "RGBA" else image.convert("RGB")


def white(image):
    has_alpha = "A" in image.getbands() or image.info.get("transparency") is not None
    return on_white(image) if has_alpha else image.convert("RGB")


RULES = [drop, white_rgba, white]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(samples, depth, color, interlace, *chunks):
    height, width, channels = samples.shape
    assert not interlace or width == 1 and height == 1
    rows = b""
    for y in range(height):
        if depth == 16:
            row = samples[y].astype(">u2").tobytes()
        elif depth == 8:
            row = samples[y].astype(numpy.uint8).tobytes()
        else:
            bits = (samples[y].reshape(-1, 1) >> numpy.arange(depth - 1, -1, -1)) & 1
            row = numpy.packbits(bits.astype(numpy.uint8).reshape(-1)).tobytes()
        rows += b"\0" + row
    head = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def drawn():
    palette = chunk(b"PLTE", bytes(range(0, 120, 10)))
    for depth in (1, 2, 4, 8):
        count = 1 << depth
        for key in {0, 1, count - 1, 85, 170, 17, 34, 255, 257}:
            yield png(numpy.arange(count).reshape(1, count, 1), depth, GREY, 0, chunk(b"tRNS", struct.pack(">H", key)))
    grey16 = numpy.array([0, 1, 44, 255, 256, 257, 300, 511, 65535]).reshape(1, 9, 1)
    for key in (0, 1, 255, 256, 300, 65535):
        yield png(grey16, 16, GREY, 0, chunk(b"tRNS", struct.pack(">H", key)))
    rgb16 = numpy.array([[0x1234, 0x5678, 0x9ABC], [0x1200, 0x5600, 0x9A00], [0x12, 0x56, 0x9A], [0xFFFF] * 3, [0] * 3])
    for key in ((0x1234, 0x5678, 0x9ABC), (0x12, 0x56, 0x9A), (0xFFFF,) * 3, (0, 0, 0), (0x112, 0x156, 0x19A)):
        yield png(rgb16.reshape(1, 5, 3), 16, RGB, 0, chunk(b"tRNS", struct.pack(">HHH", *key)))
    rgb8 = numpy.array([[1, 2, 3], [1, 2, 4], [255, 255, 255]]).reshape(1, 3, 3)
    for key in ((1, 2, 3), (257, 2, 3), (255, 255, 255)):
        yield png(rgb8, 8, RGB, 0, chunk(b"tRNS", struct.pack(">HHH", *key)))
    indices = numpy.arange(4).reshape(1, 4, 1)
    for entries in (b"\0", b"\xff\0", b"\x80", b"\xff\xff\x10", b"\0\0", b"", bytes(range(4)), b"\0\xff\xff\xff"):
        yield png(indices, 8, PALETTE, 0, palette, chunk(b"tRNS", entries))
        yield png(indices, 2, PALETTE, 0, palette, chunk(b"tRNS", entries))
    yield png(indices, 8, PALETTE, 0, chunk(b"tRNS", b"\x80"), palette)
    twice = [chunk(b"tRNS", struct.pack(">H", key)) for key in (1, 2)]
    yield png(indices, 8, GREY, 0, *twice)
    alphas = numpy.stack(numpy.meshgrid(numpy.arange(0, 256, 5), numpy.arange(0, 256, 3)), -1)
    yield png(alphas, 8, GREY_ALPHA, 0)
    yield png(alphas * 256 + 7, 16, GREY_ALPHA, 0)
    rgba = alphas[..., [0, 0, 0, 1]] + numpy.array([0, 1, -1, 0])
    yield png(rgba.clip(0, 255), 8, RGB_ALPHA, 0)
    yield png(rgba.clip(0, 255) * 256 + 200, 16, RGB_ALPHA, 0)
    yield png(rgba[:1, :1].clip(0, 255), 8, RGB_ALPHA, 1)
    yield png(numpy.array([[[9, 3]]]), 8, GREY_ALPHA, 1)
    yield png(rgba.clip(0, 255), 8, RGB_ALPHA, 0, chunk(b"tRNS", b"\0\1\0\2\0\3"))  # of no meaning here


def opened(path):
    """None where Pillow refuses the file: a profile does not promise refusals."""
    try:
        image = Image.open(path)
        image.load()
        return image
    except Exception:
        return None


@pytest.mark.parametrize("rule", range(3))
def test_transparency_is_pillows(build, tmp_path, rule):
    warnings.simplefilter("ignore")
    paths = []
    for i, data in enumerate(drawn()):
        paths.append(tmp_path / f"{i}.png")
        paths[-1].write_bytes(data)
    paths += sorted(p for kind in ("png", "webp") for p in GOLDEN.glob(f"*.{kind}"))
    cases = [(path, image) for path in paths if (image := opened(path)) is not None]
    assert len(cases) > 100
    (tmp_path / "list").write_text("".join(f"{path} {image.width} {image.height} 1\n" for path, image in cases))
    out = resize_cases.run_tool(build, tmp_path, "best", 0, rule)
    at, changed = 0, 0
    for path, image in cases:
        size = image.width * image.height * 3
        theirs = RULES[rule](image)
        changed += theirs.tobytes() != drop(image).tobytes()
        assert out[at : at + size] == theirs.tobytes(), (path, image.mode, image.info)
        at += size
    assert at == len(out) and (changed == 0 if rule == 0 else changed >= 5 * rule)
