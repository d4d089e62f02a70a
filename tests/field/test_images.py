"""Field reports (b): broken, odd and huge pictures."""
import io
import json
import math
import struct
import warnings
import zlib

import numpy
import pytest
import xxhash
from field_set import BUDGET, chat, decode, encode, gradient
from PIL import Image, ImageCms, ImageOps

MIB = 1 << 20


def pictures(field, files, **options):
    """Each file as the model sees it, by a record of its own; all of them must be usable."""
    one = field([chat("<image>", image=name) for name in files], files, **options)
    samples = one.samples()
    assert len(samples) == len(files), one.index()["unusable"]
    return [sample.pictures[0] for sample in samples]


def expect_as_pillow(field, files, tolerance=0, **options):
    for (name, data), made in zip(files.items(), pictures(field, files, **options), strict=True):
        wanted = decode(data)
        assert made.shape == wanted.shape, name
        assert numpy.abs(made.astype(int) - wanted).max() <= tolerance, name


def refused(field, files, *flags, **options):
    """{name: (reason, message)} of files that are each refused by the index, one a set."""
    out = {}
    for name, content in files.items():
        (found,) = field([chat("<image>", image=name)], {name: content}, **options).index(*flags)["unusable"].items()
        out[name] = found[0], found[1]["examples"][0]["message"]
    return out


def size_rule(height, width, low, high, factor=32):
    """The reference's rule for sizes, in the order of its operations."""
    h, w = round(height / factor) * factor, round(width / factor) * factor
    if h * w > high:
        beta = math.sqrt(height * width / high)
        return max(factor, math.floor(height / beta / factor) * factor), max(factor, math.floor(width / beta / factor) * factor)
    if h * w < low:
        beta = math.sqrt(low / (height * width))
        return math.ceil(height * beta / factor) * factor, math.ceil(width * beta / factor) * factor
    return h, w


# --- pieces of files ---

def tiff_block(*entries, end="<", count=None):
    """A TIFF directory as EXIF has it; an entry is (tag, type, number, four bytes of value)."""
    out = (b"II*\0" if end == "<" else b"MM\0*") + struct.pack(end + "IH", 8, len(entries) if count is None else count)
    return out + b"".join(struct.pack(end + "HHI", tag, kind, number) + value for tag, kind, number, value in entries) + b"\0\0\0\0"


def orientation(value):
    return 0x0112, 3, 1, struct.pack("<HH", value, 0)


def with_segment(jpeg, marker, content):
    """A JPEG with one more segment behind its first marker."""
    return jpeg[:2] + struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content + jpeg[2:]


def segments(jpeg):
    """(marker, where it stands, where its content starts) up to the first scan's data."""
    at = 2
    while True:
        marker, size = jpeg[at + 1], struct.unpack(">H", jpeg[at + 2:at + 4])[0]
        yield marker, at, at + 4
        at += 2 + size
        if marker == 0xDA:
            yield 0, at, at
            return


def place(jpeg, wanted):
    """Where a segment's content starts; 0: the data of the first scan."""
    return next(content for marker, _, content in segments(jpeg) if marker == wanted)


def patched(data, at, content):
    return data[:at] + content + data[at + len(content):]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def with_chunk(png, kind, content):
    """A PNG with one more chunk behind its IHDR."""
    return png[:33] + chunk(kind, content) + png[33:]


def flat_png(width, height, depth=1, kind=0):
    """A white picture of any size, without ever holding it."""
    row = b"\0" + b"\xff" * ((width * depth + 7) // 8)
    packer, parts = zlib.compressobj(1), []
    for _ in range(height):
        parts.append(packer.compress(row))
    parts.append(packer.flush())
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"".join(parts)) + chunk(b"IEND", b"")


def gif(canvas, *frames, transparent=None):
    """frames: (left, top, indices, palette); the first palette is the global one, the others are local."""
    def blocks(data):
        return b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255)) + b"\0"

    def lzw(indices):
        """Codes of 9 bits, cleared before they would grow."""
        bits, at = 0, 0
        for i, code in enumerate(map(int, indices.ravel())):
            for one in ([256] if i % 250 == 0 else []) + [code]:
                bits, at = bits | one << at, at + 9
        return (bits | 257 << at).to_bytes((at + 16) // 8, "little")

    out = b"GIF89a" + struct.pack("<HHBBB", *canvas, 0xF7, 0, 0) + frames[0][3]
    for i, (left, top, indices, palette) in enumerate(frames):
        if transparent is not None:
            out += struct.pack("<BBBBHBB", 0x21, 0xF9, 4, 1, 10, transparent, 0)
        height, width = indices.shape
        out += struct.pack("<BHHHHB", 0x2C, left, top, width, height, 0x87 if i else 0) + (palette if i else b"") + b"\x08" + blocks(lzw(indices))
    return out + b";"


def bmp(width, height, depth, pixels, *, compression=0, palette=b"", colours=0, head=b""):
    """A Windows bitmap; a negative height has its rows from the top."""
    start = 14 + 40 + len(head) + len(palette)
    info = struct.pack("<IiiHHIIiiII", 40 + len(head), width, height, 1, depth, compression, len(pixels), 2835, 2835, colours, 0)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + info + head + palette + pixels


JPEG = encode(gradient(64, 96), "JPEG", quality=90)
PNG = encode(gradient(64, 96))


# --- orientation ---

@pytest.mark.parametrize("turn", [6, 3, 8])
def test_b01_orientation_is_applied_or_ignored_as_asked(field, turn):
    jpeg = encode(gradient(64, 96), "JPEG", exif=b"Exif\0\0" + tiff_block(orientation(turn)))
    upright = numpy.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(jpeg))))
    (default,), (applied,), (ignored,) = (pictures(field, {"a.jpg": jpeg}, **o) for o in ({}, {"orientation": "apply"}, {"orientation": "ignore"}))
    assert numpy.array_equal(applied, upright) and numpy.array_equal(ignored, decode(jpeg)) and numpy.array_equal(default, applied)
    small = encode(gradient(16, 24), "JPEG", exif=b"Exif\0\0" + tiff_block(orientation(turn)))
    one = field([chat("<image>", image="a.jpg")], {"a.jpg": small}, **BUDGET)
    height, width = size_rule(*((24, 16) if turn != 3 else (16, 24)), 65536, 16777216)
    assert one.samples()[0].grids == [(1, height // 16, width // 16)] and one.index()["turned"] == 1


def test_b04_a_broken_exif_block_costs_nothing_but_itself(field):
    rational = (0x011A, 5, 1, struct.pack("<I", 26 + 12)), orientation(6)
    blocks = {
        "denominator": b"Exif\0\0" + tiff_block(*rational) + struct.pack("<II", 72, 0),
        "twice": b"Exif\0\0Exif\0\0" + tiff_block(orientation(6)),
        "cut": (b"Exif\0\0" + tiff_block(orientation(6)))[:10],
        "counts-too-many": b"Exif\0\0" + tiff_block(orientation(6), count=60000),
        "type": b"Exif\0\0" + tiff_block((0x0112, 99, 1, b"\6\0\0\0")),
    }
    files = {name + ".jpg": with_segment(JPEG, 0xE1, block) for name, block in blocks.items()}
    turned = ["denominator", "twice", "counts-too-many"]   # the tag can be read, by Pillow too
    for name, made in zip(blocks, pictures(field, files)):
        wanted = numpy.rot90(decode(JPEG), -1) if name in turned else decode(JPEG)
        assert numpy.array_equal(made, wanted), name
    one = field([chat("<image>", image=name) for name in [*files, "good.jpg"]], files | {"good.jpg": JPEG})
    assert one.run()["samples"] == 6 and one.index()["turned"] == 3


# --- JPEG ---

def test_b05_four_components_of_adobe_do_not_become_a_negative(field):
    light = Image.new("CMYK", (32, 32), (10, 20, 5, 0))
    cmyk = encode(light, "JPEG", quality=95)
    marker = place(cmyk, 0xEE)
    assert cmyk[marker:marker + 5] == b"Adobe" and cmyk[marker + 11] == 0
    ycck = patched(cmyk, marker + 11, b"\2")
    files = {"cmyk.jpg": cmyk, "ycck.jpg": ycck, "odd.jpg": encode(light.resize((16, 16)), "JPEG")}
    first, second, third = pictures(field, files)
    for made, name in ((first, "cmyk.jpg"), (second, "ycck.jpg")):
        assert numpy.abs(made.astype(int) - decode(files[name])).max() <= 1
    assert first.min() > 200 and third.min() > 200


def test_b07_a_cut_jpeg_never_trains(field):
    scan = place(JPEG, 0)
    files = {"57.jpg": JPEG[:-57], "half.jpg": JPEG[:len(JPEG) // 2], "head.jpg": JPEG[:scan + 1], "marker.jpg": JPEG[:-2]}
    for reason, message in refused(field, files, "--index", "verify").values():
        assert reason == "broken or truncated media" and "truncated" in message
    rows = [chat("<image>", image=name) for name in [*files, "good.jpg"]] + [chat("Text.")]
    one = field(rows, files | {"good.jpg": JPEG})
    assert one.index()["usable"] == 6
    samples = one.samples()
    for sample in samples[:4]:
        assert sample.status != "made" and (sample.labels == -100).all() and (sample.pictures[0] == 128).all()
    assert [s.status for s in samples[4:]] == ["made"] * 2 and field.trained(samples[4]) == ["Yes.<|im_end|>\n"]
    assert one.run()["failures"]["masked"] == 4
    told = [{s["id"]: s["status"] for _, about in one.dump("--batch", 6, "--world", world).values() for s in about["samples"]} for world in (1, 3)]
    assert told[0] == told[1] and len(told[0]) == 6


def test_b29_the_first_of_several_pictures_counts(field):
    mpo = io.BytesIO()
    first, second = Image.fromarray(gradient(64, 96)), Image.fromarray(gradient(32, 32))
    first.save(mpo, "MPO", save_all=True, append_images=[second], quality=90)
    whole = mpo.getvalue()
    files = {"two.jpg": whole, "past-the-end.jpg": whole[:whole.index(b"\xff\xd9") + 2], "half-a-second.jpg": whole[:-40]}
    assert len(files["past-the-end.jpg"]) < len(whole) - 100
    expect_as_pillow(field, files)
    assert field([chat("<image>", image=name) for name in files], files).index("--index", "verify")["usable"] == 3


def test_b37_stray_bytes_are_no_damage_and_no_bytes_are(field):
    files = {"stray.jpg": JPEG[:-2] + b"\x5a" + JPEG[-2:], "behind.jpg": JPEG + bytes(range(256)) * 16}
    expect_as_pillow(field, files)
    assert refused(field, {"none.jpg": b""})["none.jpg"][0] == "media of no bytes"


@pytest.mark.parametrize("change, words", [((0, b"\xc3"), "lossless"), ((3, b"\x0c"), "12 bits")], ids=["SOF3", "12-bit"])
def test_b40_rare_processes_are_named_as_unsupported(field, change, words):
    at = place(JPEG, 0xC0) - 3
    (reason, message), = refused(field, {"a.jpg": patched(JPEG, at + change[0], change[1])}).values()
    assert reason == "a kind of media that is not supported" and words in message


def test_b42_a_colour_profile_is_ignored_as_the_reference_does(field):
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    at = next(struct.unpack(">I", profile[i + 4:i + 8])[0] for i in range(132, 132 + 12 * profile[131], 12) if profile[i:i + 4] == b"rXYZ")
    profile[at + 8:at + 20] = struct.pack(">iii", 33756, 15808, -69)     # the red of Display P3, as s15Fixed16
    assert ImageCms.ImageCmsProfile(io.BytesIO(bytes(profile))).profile.red_colorant[0][0] > 0.5
    press = bytes(profile[:12]) + b"prtrCMYK" + bytes(profile[20:])
    cmyk = Image.fromarray(gradient(64, 96)).convert("CMYK")
    files = {"p3.jpg": encode(gradient(64, 96), "JPEG", quality=90, icc_profile=bytes(profile)),
             "broken.jpg": encode(gradient(64, 96), "JPEG", quality=90, icc_profile=b"no profile"),
             "press.jpg": encode(cmyk, "JPEG", quality=90, icc_profile=press), "p3.png": encode(gradient(64, 96), icc_profile=bytes(profile))}
    expect_as_pillow(field, files)
    p3, broken, _, png = pictures(field, files)
    assert numpy.array_equal(p3, decode(JPEG)) and numpy.array_equal(broken, p3) and numpy.array_equal(png, gradient(64, 96))


# --- PNG ---

@pytest.mark.parametrize("kind, content, known_to_pillow", [
    (b"zTXt", b"Comment\0\0" + zlib.compress(bytes(2 * MIB)), False),
    (b"iCCP", b"profile\0\0" + zlib.compress(bytes(2 * MIB)), False),
    (b"zTXt", b"Comment\0\0\xff\xffnothing of zlib", True),
    (b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(bytes(2 * MIB)), False),
    (b"tEXt", b"Comment\0" + b"x" * (2 * MIB), False)], ids=["text", "profile", "bad-zlib", "international", "plain"])
def test_b16_optional_chunks_cannot_refuse_a_picture(field, kind, content, known_to_pillow):
    made, = pictures(field, {"a.png": with_chunk(PNG, kind, content)})
    assert numpy.array_equal(made, gradient(64, 96))


def test_b16_what_optional_chunks_claim_is_not_allocated(field):
    plain, bomb = PNG, with_chunk(PNG, b"zTXt", b"Comment\0\0" + zlib.compress(bytes(64 * MIB), 9))
    peaks = []
    for png in (plain, bomb):
        code, _, err, peak = field([chat("<image>", image="a.png")], {"a.png": png}).watch("index", "--index", "verify")
        assert code == 0, err
        peaks.append(peak["whole"])
    assert peaks[1] < peaks[0] + 4 * MIB


def test_b18_16_bit_grey_becomes_two_levels_as_the_reference_and_is_counted_in_words(field):
    ramp = numpy.repeat(numpy.arange(256, dtype=numpy.uint16) * 257, 8).reshape(32, 64)
    png = encode(Image.fromarray(ramp))
    assert png[24:26] == b"\x10\0"
    expect_as_pillow(field, {"ramp.png": png})
    made, = pictures(field, {"ramp.png": png})
    assert set(numpy.unique(made)) == {0, 255} and (made == 0).all(axis=-1).sum() == 8
    one = field([chat("<image>", image="ramp.png")], {"ramp.png": png})
    assert one.index()["grey16"] == 1
    assert "16-bit grey" in one("index").stdout and "white" in one("index").stdout


def test_b20_transparency_of_palettes_and_colour_keys_is_dropped(field):
    indexed = Image.fromarray(numpy.kron(numpy.arange(4, dtype=numpy.uint8).reshape(2, 2), numpy.ones((16, 16), numpy.uint8)))
    indexed.putpalette([200, 10, 10, 10, 200, 10, 10, 10, 200, 90, 90, 90])
    grey = Image.fromarray(gradient(32, 32)).convert("LA")
    files = {"palette.png": encode(indexed, transparency=bytes([0, 128, 255, 255])),
             "key.png": encode(gradient(32, 32), transparency=(0, 0, 0)), "la.png": encode(grey),
             "rgba.png": encode(Image.fromarray(gradient(32, 32)).convert("RGBA"))}
    assert b"tRNS" in files["palette.png"] and b"tRNS" in files["key.png"]
    with warnings.catch_warnings(action="ignore"):      # Pillow's, about a palette's transparency
        expect_as_pillow(field, files)
    first, second, *_ = pictures(field, files)
    assert tuple(first[0, 0]) == (200, 10, 10) and numpy.array_equal(second, gradient(32, 32))
    assert field([chat("<image>", image=name) for name in files], files).index()["alpha"] == 4


RGBA = numpy.array([[[255, 0, 0, 255], [0, 0, 255, 0]], [[0, 255, 0, 128], [0, 0, 0, 0]]], numpy.uint8)


def big_rgba():
    """The 2x2 picture of the report with a block of 16x16 pixels for each of its own."""
    return encode(Image.fromarray(RGBA.repeat(16, axis=0).repeat(16, axis=1)))


def test_b21_dropped_alpha_leaves_the_colours_beneath(field):
    made, = pictures(field, {"a.png": big_rgba()}, alpha="drop")
    assert made[::16, ::16].tolist() == [[[255, 0, 0], [0, 0, 255]], [[0, 255, 0], [0, 0, 0]]]


def test_b20_white_treats_all_kinds_of_transparency_alike(field):
    flat = numpy.full((32, 32, 3), (40, 80, 120), numpy.uint8)
    indexed = Image.new("P", (32, 32))
    indexed.putpalette([40, 80, 120])
    files = {"palette.png": encode(indexed, transparency=bytes([0])), "key.png": encode(flat, transparency=(40, 80, 120)),
             "la.png": encode(Image.new("LA", (32, 32), (77, 0))), "rgba.png": encode(Image.new("RGBA", (32, 32), (40, 80, 120, 0)))}
    assert all((made == 255).all() for made in pictures(field, files, alpha="white"))
    whitened = [bool((made == 255).all()) for made in pictures(field, files, profile="qwen-vl-utils")]
    assert whitened == [False, False, False, True]


def test_b21_alpha_on_white_is_blended_before_the_resize(field):
    made, = pictures(field, {"a.png": big_rgba()}, alpha="white")
    assert made[::16, ::16].tolist() == [[[255, 0, 0], [255, 255, 255]], [[127, 255, 127], [255, 255, 255]]]


# --- sizes ---

def test_b10_a_size_in_a_header_allocates_nothing(field):
    head = struct.pack(">IIBBBBB", 787402, 787402, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"") + bytes(1024))
    (reason, message), = refused(field, {"a.png": bomb}, "--index", "verify").values()
    assert reason == "the media exceeds a limit" and "787402x787402" in message and "178956970" in message
    peaks = []
    for png in (PNG, bomb):
        code, _, err, peak = field([chat("<image>", image="a.png")], {"a.png": png}).watch("index", "--index", "verify")
        assert code == 0, err
        peaks.append(peak["whole"])
    assert peaks[1] < peaks[0] + 2 * MIB


@pytest.mark.parametrize("form", ["RGB", "CMYK"])
def test_b13_failed_decodes_leave_no_memory_behind(field, form):
    whole = encode(Image.fromarray(gradient(32, 32)).convert(form), "JPEG", quality=90)
    tables, data = place(whole, 0xC4), place(whole, 0)
    files = {"table.jpg": patched(whole, tables + 1, b"\xff" * 16), "cut.jpg": whole[:data + 20],
             "scar.jpg": patched(whole, data + 20, b"\xff\xd9")}
    one = field([chat("<image>", image=name) for name in list(files) * 2], files, batch=6, epochs=5000, fetch_ahead="256KiB")
    peaks = []
    for steps in (200, 5000):
        code, out, err, peak = one.watch("run", "--json", "--steps", steps, "--workers", 2)
        assert code == 0 and f'"masked": {4 * steps}' in out, (out, err)
        peaks.append(peak["anonymous"])
    assert peaks[1] < peaks[0] + 8 * MIB
    assert numpy.array_equal(one.samples()[2].pictures[0], decode(files["scar.jpg"]))    # as in the reference


def test_b15_the_limit_of_pixels_is_stated_and_can_be_raised(field):
    files = {"198.png": flat_png(14094, 14094), "445.png": flat_png(21114, 21114)}
    for name, (reason, message) in refused(field, files).items():
        assert reason == "the media exceeds a limit" and "178956970" in message and "limits.media_pixels" in message, name
    one = field([chat("<image>", image=name) for name in files], files, **BUDGET, limits={"media_pixels": 500000000})
    assert one.index()["visual_tokens"] == 2 * 16384
    code, out, err, peak = one.watch("run", "--json", "--workers", 1)
    assert code == 0 and '"masked": 0' in out, (out, err)
    # The whole pictures would be 596 and 1337 MB; a batch has 50 MB of patches, and one more is made ahead.
    assert peak["whole"] < 200 * MIB
    (sample,) = field([chat("<image>", image="a.png")], {"a.png": files["198.png"]}, **BUDGET, limits={"media_pixels": 200000000}).samples()
    assert sample.grids == [(1, 256, 256)] and (sample.pictures[0] == 255).all()


@pytest.mark.parametrize("height, width", [(1, 150), (3, 200), (2, 3), (1, 1)])
def test_b23_a_narrow_picture_has_three_channels_like_any_other(field, height, width):
    (sample,) = field([chat("<image>", image="a.png")], {"a.png": gradient(height, width)}, **BUDGET).samples()
    (picture,) = sample.pictures
    assert picture.shape == (*size_rule(height, width, 65536, 16777216), 3)
    if height == width:
        assert picture.shape == (256, 256, 3) and sample.grids == [(1, 16, 16)]
        assert (picture == gradient(1, 1)[0, 0]).all()


@pytest.mark.parametrize("height, width, target, tokens", [(29, 27, (288, 256), 72), (27, 257, (96, 800), 75), (16, 16, (256, 256), 64)])
def test_b25_sides_under_the_factor_are_scaled_up(field, height, width, target, tokens):
    one = field([chat("<image>", image="a.png")], {"a.png": gradient(height, width)}, **BUDGET)
    assert one.samples()[0].pictures[0].shape == (*target, 3) and one.index()["visual_tokens"] == tokens


# --- GIF, BMP, TIFF ---

def test_b30_the_first_frame_stands_on_the_whole_canvas(field):
    first, second = bytes(range(256)) * 3, bytes(range(255, -1, -1)) * 3
    indices = numpy.arange(32 * 32).reshape(32, 32) % 256
    files = {"big.gif": gif((64, 64), (16, 16, indices, first), (0, 0, indices[:8, :8], second), transparent=7)}
    expect_as_pillow(field, files)
    small = gif((10, 10), (3, 3, indices[:4, :4], first), (0, 0, indices[:10, :10], second), transparent=0)
    one = field([chat("<image>", image="a.gif")], {"a.gif": small}, **BUDGET)
    assert one.samples()[0].grids == [(1, 16, 16)] and one.findings()["animated"] == 1
    assert Image.open(io.BytesIO(small)).size == (10, 10) and Image.open(io.BytesIO(small)).n_frames == 2


def test_b44_variants_of_a_bitmap_are_read_the_right_way_up(field):
    picture = gradient(32, 64)
    bgrx = numpy.concatenate([picture[..., ::-1], numpy.zeros((32, 64, 1), numpy.uint8)], axis=-1)
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    grey, colours = b"".join(bytes([i, i, i, 0]) for i in range(256)), bytes(i * 37 % 256 for i in range(1024))
    indices = numpy.arange(32 * 64).reshape(32, 64) // 8 % 256
    runs = b"".join(b"".join(bytes([8, row[at]]) for at in range(0, 64, 8)) + b"\0\0" for row in indices[::-1].astype(numpy.uint8).tolist()) + b"\0\1"
    files = {
        "unused-alpha.bmp": bmp(64, 32, 32, bgrx[::-1].tobytes()),
        "masks.bmp": bmp(64, 32, 32, bgrx[::-1].tobytes(), compression=3, head=masks + bytes(52)),
        "top-down.bmp": bmp(64, -32, 24, picture[..., ::-1].tobytes()),
        "bottom-up.bmp": bmp(64, 32, 24, picture[::-1, :, ::-1].tobytes()),
        "rle-grey.bmp": bmp(64, 32, 8, runs, compression=1, palette=grey),
        "rle-colours.bmp": bmp(64, 32, 8, runs, compression=1, palette=colours),
        "short-palette.bmp": bmp(64, 32, 8, (indices[::-1] % 16).astype(numpy.uint8).tobytes(), palette=colours[:64], colours=16),
    }
    expect_as_pillow(field, files)
    for name in ("unused-alpha.bmp", "top-down.bmp", "bottom-up.bmp", "masks.bmp"):
        made, = pictures(field, {name: files[name]})
        assert numpy.array_equal(made, picture), name
    made, = pictures(field, {"a.bmp": files["unused-alpha.bmp"]}, alpha="white")
    assert numpy.array_equal(made, picture)


def test_b44_a_palette_shorter_than_stated_is_read_as_pillow_does(field):
    palette = bytes(i * 37 % 256 for i in range(64))
    expect_as_pillow(field, {"short.bmp": bmp(64, 32, 8, bytes(range(16)) * 128, palette=palette, colours=256)})


def test_b18_16_bit_grey_of_either_byte_order_becomes_two_levels(field):
    ramp = numpy.repeat(numpy.arange(256, dtype=numpy.uint16) * 257, 8).reshape(32, 64)
    little = encode(Image.fromarray(ramp), "TIFF")
    big = io.BytesIO()
    Image.frombytes("I;16B", (64, 32), ramp.astype(">u2").tobytes()).save(big, "TIFF")
    files = {"little.tif": little, "big.tif": big.getvalue()}
    assert little[:2] == b"II" and files["big.tif"][:2] == b"MM"
    expect_as_pillow(field, files)
    one = field([chat("<image>", image=name) for name in files], files)
    assert all(set(numpy.unique(sample.pictures[0])) == {0, 255} for sample in one.samples()) and one.index()["grey16"] == 2


# --- what a file is ---

def test_b33_the_bytes_tell_the_format_and_not_the_name(field):
    files = {"png.jpg": PNG, "webp.jpg": encode(gradient(64, 96), "WEBP", lossless=True), "jpeg.png": JPEG, "noending": PNG, "a.txt": JPEG,
             "bmp.jpg": encode(gradient(64, 96), "BMP"), "gif.jpg": encode(Image.fromarray(gradient(64, 96)).quantize(64), "GIF"),
             "tiff.jpg": encode(gradient(64, 96), "TIFF")}
    expect_as_pillow(field, files)


def test_b35_what_is_no_image_is_shown_and_counted_apart(field):
    files = {"a.jpg": b"<!DOCTYPE html>\n<html><body>404</body></html>", "b.jpg": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'}
    found = refused(field, files)
    assert {reason for reason, _ in found.values()} == {"not an image"}
    assert "<!DOCTYPE html>" in found["a.jpg"][1] and "<?xml version=" in found["b.jpg"][1]
    missing = field([chat("<image>", image=n) for n in ("a.jpg", "c.jpg")], files).index()["unusable"]
    assert {reason: one["count"] for reason, one in missing.items()} == {"not an image": 1, "media missing": 1}


# --- whose pixels ---

@pytest.mark.parametrize("profile", ["hf", "pil-13"])
def test_b46_a_profile_equals_its_reference_without_a_difference(field, source, profile):
    golden = json.loads((source / "tests/field/goldens.json").read_text())["photo"][profile]
    one = field([chat("<image>", image="photo.jpg")], {"photo.jpg": (source / "tests/field/photo.jpg").read_bytes()}, **BUDGET, profile=profile)
    fields, _ = one.batch()
    assert fields["image_grid_thw"].tolist() == [golden["grid"]]
    assert xxhash.xxh3_128_hexdigest(fields["pixel_bytes"]) == golden["pixel_bytes"]
    values, _ = one.batch("--pixels", "float32")
    assert values["pixel_values"].dtype == numpy.float32 and xxhash.xxh3_128_hexdigest(values["pixel_values"]) == golden["pixel_values"]


def test_b46_the_distance_between_two_references_stands_in_the_page(field, source):
    photo, apart = (source / "tests/field/photo.jpg").read_bytes(), json.loads((source / "tests/field/goldens.json").read_text())["photo"]["apart"]
    first, second = (pictures(field, {"photo.jpg": photo}, **BUDGET, profile=profile)[0].astype(int) for profile in ("hf", "pil-13"))
    assert ((first != second).sum(), abs(first - second).max()) == (apart["values"], apart["most"])
    share = f"{apart['values'] / first.size:.2%}".replace("%", " %")
    assert share in (source / "docs/field-reports.md").read_text()
