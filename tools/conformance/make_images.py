#!/usr/bin/env python3
"""Draw the pictures of the conformance suite into tests/conformance/images, and list them all in pictures.txt.

    tools/conformance/make_images.py

They come on top of the pictures of tests/image/golden, which the list names too.  pictures.txt holds a picture a line:

    FILE (below tests)   FORMAT   KIND   MIN_PIXELS   MAX_PIXELS   PATCH   [what is special]

The same releases draw the same bytes: Pillow 13.0.0 and what tools/make-image-goldens needs, and for the JPEGs that
Pillow does not write cjpeg, jpegtran and for WebP webpmux of Debian 12 (libjpeg-turbo-progs, webp).
"""
import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy
from PIL import Image, ImageCms

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import helpers  # noqa: E402
import writers as w  # noqa: E402

g = helpers.image_goldens()
SMALL, TINY, DEFAULT = g.SMALL, g.TINY, g.DEFAULT
FINETUNE = (12544, 451584)
FOLDER = helpers.ROOT / "tests" / "conformance"

# Kinds of the pictures in tests/image/golden, by the head of the name.
OLD_KINDS = (
    ("size-", "size"), ("exif-", "orientation"), ("xmp-", "orientation"), ("png-orient", "orientation"), ("webp-orient", "orientation"),
    ("jpeg-cmyk", "CMYK"), ("jpeg-ycck", "CMYK"), ("jpeg-progressive", "progressive"), ("jpeg-grey", "grey"), ("jpeg-rgb", "colour marker"),
    ("jpeg-rubbish", "damage"), ("jpeg-stray", "damage"), ("jpeg-mpo", "MPO and ICC"), ("jpeg-icc", "MPO and ICC"), ("jpeg-", "baseline"),
    ("png-trns", "transparency"), ("png-4-", "transparency"), ("png-6-", "transparency"), ("png-bad", "damage"), ("png-no-end", "damage"),
    ("png-cut", "damage"), ("png-animated", "animation"), ("png-gamma", "chunks"), ("png-pieces", "chunks"), ("png-palette", "types and depths"),
    ("png-", "types and depths"), ("webp-animated", "animation"), ("webp-alpha", "transparency"), ("webp-", "still"),
)


def run(*arguments, data):
    return subprocess.run(arguments, input=data, capture_output=True, check=True).stdout


def ppm(image):
    return g.encode(image, "PPM")


def cjpeg(image, *arguments):
    return run("cjpeg", *arguments, data=ppm(image))


def jpegtran(jpeg, *arguments):
    return run("jpegtran", *arguments, data=jpeg)


def noise(width, height, seed):
    """Of the two extreme values: what a pass clamps is then most, and the file small."""
    return Image.fromarray((numpy.random.default_rng(seed).integers(0, 2, (height, width, 3)) * 255).astype(numpy.uint8))


def sizes():
    """(format, kind, name, data, limits, patch, remark): pairs of sizes in which each profile's order of passes matters."""
    for width, height, limits, remark in (
        (20, 108, SMALL, "height shrinks, width grows: pil-13 turns the order"), (108, 20, SMALL, "width shrinks, height grows"),
        (40, 121, SMALL, "2(w-W) against h-H at the border"), (48, 112, SMALL, "half-even sides"), (4, 700, SMALL, "h > 100 w: pil-12 turns the order"),
        (5, 600, SMALL, "h > 100 w"), (6, 600, SMALL, "h = 100 w: pil-12 does not turn"), (2, 400, SMALL, "ratio 200"), (1, 200, DEFAULT, "1x200"),
        (200, 1, DEFAULT, "200x1"), (1, 101, SMALL, "one column"), (1, 99, SMALL, "one column"), (1, 1, SMALL, "one pixel"), (2, 1, SMALL, "two pixels"),
        (1, 201, SMALL, "ratio over 200"), (603, 3, SMALL, "ratio over 200"), (31, 33, SMALL, "beside the factor"), (33, 95, FINETUNE, "grows in both"),
        (16, 80, SMALL, "half-even, from 0.5 and 2.5"), (80, 16, SMALL, "half-even"), (65, 33, TINY, "grows to the lower limit"),
        (96, 64, SMALL, "no pass"), (97, 64, SMALL, "width only, shrinks"), (64, 97, SMALL, "height only, shrinks"), (70, 64, SMALL, "width only, shrinks a little"),
        (36, 107, SMALL, "height shrinks more than twice the width's"), (45, 108, SMALL, "the other side of that border"),
    ):
        yield "PNG", "size", f"size-{width}x{height}-{limits[0]}.png", g.encode(noise(width, height, width + height), "PNG"), limits, 16, remark
    for width, height, limits, patch in ((700, 60, TINY, 16), (60, 700, TINY, 16), (640, 900, TINY, 16), (1200, 500, SMALL, 16), (500, 1200, SMALL, 14),
                                         (30, 1500, SMALL, 16), (150, 420, SMALL, 14), (75, 400, SMALL, 16)):
        yield "JPEG", "size", f"size-{width}x{height}-{patch}.jpg", g.encode(g.photo(width, height, width), "JPEG", quality=25), limits, patch, "shrinks"
    for width, height in ((20, 95), (28, 55), (56, 29), (57, 85), (3, 400)):
        yield "PNG", "size", f"size-{width}x{height}-clip.png", g.encode(noise(width, height, 3), "PNG"), SMALL, 14, "CLIP's numbers"


def jpegs():
    p, odd = g.photo(90, 70), g.photo(61, 45, 9)

    def one(kind, name, data, remark="", limits=SMALL, patch=16):
        return "JPEG", kind, f"jpeg-{name}.jpg", data, limits, patch, remark

    for name, sample in (("440", "1x2"), ("411", "4x1"), ("410", "4x2"), ("441", "1x4"), ("311", "3x1"), ("131", "1x3"), ("mixed", "2x2,2x1,1x2"),
                         ("mixed-2", "2x2,1x1,2x1"), ("chroma-larger", "1x1,2x2,1x1"), ("luma-smaller", "1x1,2x1,2x1"), ("444-as-2x2", "2x2,2x2,2x2"),
                         ("4x4", "4x4,1x1,2x2")):
        try:
            yield one("samplings", f"sampling-{name}", cjpeg(odd, "-sample", sample, "-quality", "60"), sample)
        except subprocess.CalledProcessError:
            continue  # more blocks in a unit than the standard allows
    yield one("samplings", "sampling-440-progressive", cjpeg(odd, "-sample", "1x2", "-progressive"))
    yield one("samplings", "sampling-411-progressive", cjpeg(odd, "-sample", "4x1", "-progressive"))
    yield one("samplings", "sampling-420-wide", g.encode(g.photo(130, 34, 5), "JPEG", subsampling=2))
    plain = g.encode(odd, "JPEG", quality=60)
    for size in ((1, 1), (8, 8), (1, 100), (100, 1), (17, 16), (2, 3), (15, 33)):
        yield one("baseline", f"{size[0]}x{size[1]}", g.encode(g.photo(*size, seed=4), "JPEG", quality=50), "few pixels")
    yield one("baseline", "quality-1", g.encode(p, "JPEG", quality=1), "quantisers of 8 bits, largest")
    yield one("baseline", "quality-100", g.encode(odd, "JPEG", quality=100, subsampling=0))
    yield one("baseline", "quantisers-16-bit", cjpeg(odd, "-quality", "1"), "extended: quantisers of 16 bits")
    yield one("baseline", "restart-rows", cjpeg(odd, "-restart", "1"))
    yield one("baseline", "restart-1", cjpeg(odd, "-restart", "1B"))
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as scans:
        scans.write("0;\n1;\n2;\n")
        scans.flush()
        yield one("baseline", "three-scans", cjpeg(odd, "-scans", scans.name), "sequential, not interleaved")
    yield one("baseline", "int-fast", cjpeg(odd, "-dct", "fast"), "written by the fast transform")
    yield one("arithmetic", "arithmetic", cjpeg(odd, "-arithmetic"))
    yield one("arithmetic", "arithmetic-progressive", cjpeg(odd, "-arithmetic", "-progressive"))
    yield one("arithmetic", "arithmetic-grey", cjpeg(odd, "-arithmetic", "-grayscale"))
    yield one("arithmetic", "arithmetic-restart", cjpeg(odd, "-arithmetic", "-restart", "2B", "-sample", "1x1"))
    progressive = g.encode(odd, "JPEG", progressive=True, quality=60)
    scans = [i for i in range(len(progressive) - 1) if progressive[i : i + 2] == b"\xff\xda"]
    for keep in (1, 2, 5):
        yield one("progressive", f"progressive-{keep}-scans", progressive[: scans[keep]] + b"\xff\xd9", "the later scans are missing")
    tables = progressive.rindex(b"\xff\xc4", 0, scans[1])
    yield one("progressive", "progressive-dc-tables", progressive[:tables] + b"\xff\xd9", "only the first scan, then the end")
    yield one("progressive", "progressive-restart", cjpeg(odd, "-progressive", "-restart", "1"))
    yield one("progressive", "progressive-cmyk-odd", g.encode(odd.convert("CMYK"), "JPEG", progressive=True))
    # grey
    grey = odd.convert("L")
    yield one("grey", "grey-odd", g.encode(grey, "JPEG"))
    at = w.find_segment(g.encode(grey, "JPEG"), 0xC0)
    yield one("grey", "grey-2x2", w.set_byte(g.encode(grey, "JPEG"), at + 11, 0x22), "sampling factors that mean nothing")
    yield one("grey", "grey-adobe", g.with_segment(g.encode(grey, "JPEG"), 0xEE, b"Adobe\0\x64\0\0\0\0\1"))
    # colours
    cmyk = g.encode(odd.convert("CMYK"), "JPEG")
    bare = w.without_segments(cmyk, 0xEE)
    assert b"Adobe" not in bare
    adobe = b"Adobe\0\x64\0\0\0\0"
    yield one("CMYK", "cmyk-no-marker", bare, "four components without Adobe's marker")
    for transform in (0, 1, 2, 3):
        yield one("CMYK", f"cmyk-transform-{transform}", g.with_segment(bare, 0xEE, adobe + bytes([transform])))
    for transform in (0, 1, 2, 7):
        yield one("colour marker", f"rgb-transform-{transform}", g.with_segment(w.without_segments(plain, 0xE0), 0xEE, adobe + bytes([transform])))
    yield one("colour marker", "jfif-and-transform-0", g.with_segment(plain, 0xEE, adobe + b"\0"), "JFIF wins")
    yield one("colour marker", "adobe-short", g.with_segment(w.without_segments(plain, 0xE0), 0xEE, b"Adobe\0\x64\0\0"), "marker too short")
    yield one("colour marker", "adobe-lower", g.with_segment(w.without_segments(plain, 0xE0), 0xEE, b"adobe\0\x64\0\0\0\0\0"), "another marker")
    yield one("colour marker", "adobe-long", g.with_segment(w.without_segments(plain, 0xE0), 0xEE, adobe + b"\0" + b"more" * 9))
    yield one("colour marker", "adobe-two", g.with_segment(g.with_segment(w.without_segments(plain, 0xE0), 0xEE, adobe + b"\1"), 0xEE, adobe + b"\0"))

    def with_ids(jpeg, ids):
        for marker, first, step in ((0xC0, 10, 3), (0xDA, 5, 2)):
            at = w.find_segment(jpeg, marker)
            for i, number in enumerate(ids):
                jpeg = w.set_byte(jpeg, at + first + i * step, number)
        return jpeg

    headless = w.without_segments(plain, 0xE0)
    yield one("colour marker", "no-jfif", headless)
    for name, ids in (("rgb", b"RGB"), ("012", b"\0\1\2"), ("234", b"\2\3\4"), ("odd", b"\5\x11\x77"), ("yes", b"rgb"), ("same", b"\1\1\1")):
        yield one("colour marker", f"ids-{name}", with_ids(headless, ids), "identifiers of the components")
    yield one("colour marker", "ids-rgb-jfif", with_ids(plain, b"RGB"))
    yield one("colour marker", "jfif-2", plain.replace(b"JFIF\0\1\1", b"JFIF\0\2\1"), "JFIF of another version")
    # processes that are not read
    yield one("other processes", "lossless-rgb", w.lossless_jpeg(numpy.asarray(g.photo(31, 22, 5))), "SOF3")
    yield one("other processes", "lossless-grey", w.lossless_jpeg(numpy.asarray(g.photo(31, 22, 5).convert("L"))[:, :, None]), "SOF3")
    frame = w.find_segment(plain, 0xC0)
    yield one("other processes", "12-bit", w.set_byte(w.set_byte(plain, frame + 1, 0xC1), frame + 4, 12), "12 bits")
    for sof in (0xC1, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD):
        yield one("other processes", f"sof-{sof & 15}", w.set_byte(plain, frame + 1, sof))
    two = bytearray(plain)
    yield one("other processes", "two-components", bytes(two[: frame + 2]) + b"\0\x0e" + bytes(two[frame + 4 : frame + 9]) + b"\2"
              + b"\1\x11\0\2\x11\1" + bytes(two[frame + 19 :]), "two components")
    # damage
    rest = cjpeg(odd, "-restart", "2B")
    data = w.find_segment(rest, 0xDA) + 14
    marks = [i for i in range(data, len(rest) - 1) if rest[i] == 0xFF and 0xD0 <= rest[i + 1] <= 0xD7]
    yield one("damage", "restart-wrong", w.set_byte(rest, marks[1] + 1, 0xD6), "a restart marker out of order")
    yield one("damage", "restart-lost", rest[: marks[1]] + rest[marks[1] + 2 :], "a restart marker is missing")
    yield one("damage", "restart-part-lost", rest[: marks[0] + 9] + rest[marks[2] :], "two intervals are missing")
    body = w.find_segment(plain, 0xDA) + 14
    broken = bytearray(plain)
    for i in range(body + 40, body + 60):
        broken[i] = 0x55
    yield one("damage", "data-wrong", bytes(broken), "twenty bytes of the scan replaced")
    broken[body + 100 : body + 101] = b"\xff\x33"
    yield one("damage", "marker-in-data", bytes(broken), "an unknown marker in the scan")
    yield one("damage", "ends-early", plain[: body + 200] + b"\xff\xd9", "the end marker comes early")
    for name, cut in (("half", body + (len(plain) - body) // 2), ("no-end", len(plain) - 2), ("half-end", len(plain) - 1), ("header", body - 30), ("soi", 2)):
        yield one("damage", f"cut-{name}", plain[:cut], "cut")
    yield one("damage", "cut-progressive", progressive[: scans[3]], "cut between two scans")
    yield one("damage", "cut-zeros", plain[:-2] + bytes(600), "zeros in place of the end marker")
    yield one("damage", "empty-head", b"", "no bytes")
    yield one("damage", "fill-bytes", plain[:2] + b"\xff" * 7 + plain[2:], "fill bytes before a marker")
    yield one("damage", "bytes-before-marker", plain[: frame] + b"\0\1\2" + plain[frame:], "bytes between two segments")
    yield one("damage", "two-begins", plain[:2] + plain, "two begin markers")
    yield one("damage", "height-0", plain[: frame + 5] + b"\0\0" + plain[frame + 7 :], "height 0")
    yield one("damage", "height-more", plain[: frame + 5] + struct.pack(">H", 90) + plain[frame + 7 :], "states more rows than it has")
    yield one("damage", "no-huffman", w.without_segments(plain, 0xC4), "no Huffman tables: the standard's")
    yield one("damage", "no-quantisers", w.without_segments(plain, 0xDB), "no quantisers")
    yield one("damage", "two-pictures", plain + g.encode(g.photo(40, 30, 2), "JPEG"), "another picture behind")
    yield one("damage", "stray-bytes", plain[:-2] + b"\0\1\2\3" + plain[-2:], "bytes before the end marker")
    yield one("damage", "segment-long", plain[:2] + b"\xff\xfe\xff\xff" + plain[2:], "a comment longer than the file")
    yield one("damage", "segment-short", plain[:2] + b"\xff\xfe\0\1" + plain[2:], "a comment of length 1")
    yield one("damage", "space-before", b"\n" + plain, "a byte before the file")
    # what stands beside the picture
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    yield one("MPO and ICC", "icc-srgb", g.encode(odd, "JPEG", icc_profile=icc, quality=60))
    yield one("MPO and ICC", "icc-cmyk", g.encode(odd.convert("CMYK"), "JPEG", icc_profile=icc[:300]))
    chunks = g.jpeg_segment(0xE2, b"ICC_PROFILE\0\2\2" + b"b" * 40) + g.jpeg_segment(0xE2, b"ICC_PROFILE\0\1\3" + b"a" * 40)
    yield one("MPO and ICC", "icc-chunks", plain[:2] + chunks + plain[2:], "parts of a profile out of order")
    for count in (1, 3):
        out = io.BytesIO()
        odd.save(out, "MPO", save_all=True, append_images=[g.photo(30, 20, i) for i in range(count)], exif=b"Exif\0\0" + g.tiff(6))
        yield one("MPO and ICC", f"mpo-{count + 1}", out.getvalue(), "several pictures, the first turned")
    mpf = out.getvalue()
    at = mpf.index(b"MPF\0")
    yield one("MPO and ICC", "mpo-broken", mpf[: at + 4] + b"XX" + mpf[at + 6 :], "a broken index of pictures")
    yield one("MPO and ICC", "comment", g.with_segment(g.with_segment(plain, 0xFE, b"a comment"), 0xED, b"Photoshop 3.0\0" + b"8BIM\4\4\0\0\0\0\0\2ab"))
    yield one("MPO and ICC", "photoshop-odd", g.with_segment(plain, 0xED, b"Photoshop 3.0\0" + b"8BIM\3\xed\0\0\0\0\0\x10ab"), "a resource that is cut")
    # orientation
    def turned(name, jpeg, remark=""):
        return one("orientation", f"orient-{name}", jpeg, remark)

    exif = b"Exif\0\0"
    quantisers = w.find_segment(plain, 0xDB)
    yield turned("late", plain[:quantisers] + g.jpeg_segment(0xE1, exif + g.tiff(6)) + plain[quantisers:], "behind other segments")
    yield turned("before-scan", plain[: w.find_segment(plain, 0xDA)] + g.jpeg_segment(0xE1, exif + g.tiff(8)) + plain[w.find_segment(plain, 0xDA) :])
    yield turned("app2", g.with_segment(plain, 0xE2, exif + g.tiff(6)), "in another segment")
    yield turned("no-zeros", g.with_segment(plain, 0xE1, b"Exif\0\1" + g.tiff(6)))
    yield turned("lower", g.with_segment(plain, 0xE1, b"exif\0\0" + g.tiff(6)))
    yield turned("0", g.with_segment(plain, 0xE1, exif + g.tiff(0)))
    yield turned("9", g.with_segment(plain, 0xE1, exif + g.tiff(9)))
    yield turned("long", g.with_segment(plain, 0xE1, exif + g.tiff(6, 4, ">")), "as a LONG")
    yield turned("byte", g.with_segment(plain, 0xE1, exif + g.tiff(6, 1)), "as a BYTE")
    yield turned("text", g.with_segment(plain, 0xE1, exif + g.tiff(b"6", 2)), "as a text")
    yield turned("float", g.with_segment(plain, 0xE1, exif + g.tiff(6.0, 11)), "as a FLOAT")
    yield turned("rational", g.with_segment(plain, 0xE1, exif + g.tiff((6, 1), 5)), "as a RATIONAL")
    yield turned("two-values", g.with_segment(plain, 0xE1, exif + g.tiff((6, 3), 3, count=2)))
    yield turned("broken", g.with_segment(plain, 0xE1, exif + b"II*\0\xff\xff\xff\xff"))
    yield turned("empty", g.with_segment(plain, 0xE1, exif))
    xmp = b"http://ns.adobe.com/xap/1.0/\0"
    yield turned("xmp-9", g.with_segment(plain, 0xE1, xmp + g.XMP % b'tiff:Orientation="9"'))
    yield turned("xmp-two", g.with_segment(g.with_segment(plain, 0xE1, xmp + g.XMP % b'tiff:Orientation="3"'), 0xE1, xmp + g.XMP % b'tiff:Orientation="6"'))
    yield turned("xmp-and-none", g.with_segment(g.with_segment(plain, 0xE1, xmp + g.XMP % b'tiff:Orientation="6"'), 0xE1, exif + g.tiff(0, before=[])))
    yield turned("cmyk", g.with_segment(cmyk, 0xE1, exif + g.tiff(7)))
    yield turned("progressive", g.with_segment(progressive, 0xE1, exif + g.tiff(5)))


def pngs():
    small = g.photo(31, 23, 6)
    s3, s1 = g.samples_of(small, 3, 8), g.samples_of(small, 1, 8)
    chunk, png, text = g.chunk, g.png, g.text
    palette = chunk(b"PLTE", bytes((i * 37 + c * 91 + 5) % 256 for i in range(16) for c in range(3)))
    indices = s1 % 16

    def one(kind, name, data, remark="", limits=SMALL):
        return "PNG", kind, f"png-{name}.png", data, limits, 16, remark

    trns = lambda data: chunk(b"tRNS", data)  # noqa: E731
    # transparency
    key = struct.pack(">3H", *(int(v) for v in s3[10, 10]))
    yield one("transparency", "key-rgb", png(s3, 8, 2, before=trns(key)), "a colour key that occurs")
    yield one("transparency", "key-rgb-interlaced", png(s3, 8, 2, True, before=trns(key)))
    yield one("transparency", "key-grey", png(s1, 8, 0, before=trns(struct.pack(">H", int(s1[5, 5, 0])))), "a colour key that occurs")
    for depth in (1, 2, 4):
        s = g.samples_of(small, 1, depth)
        yield one("transparency", f"key-grey-{depth}", png(s, depth, 0, before=trns(struct.pack(">H", int(s[5, 5, 0])))))
    s16 = g.samples_of(small, 1, 16)
    yield one("transparency", "key-grey-16", png(s16, 16, 0, before=trns(struct.pack(">H", int(s16[5, 5, 0])))))
    s48 = g.samples_of(small, 3, 16)
    yield one("transparency", "key-rgb-16", png(s48, 16, 2, before=trns(struct.pack(">3H", *(int(v) for v in s48[5, 5])))), "the key has low bytes too")
    yield one("transparency", "key-rgb-16-high", png(s48, 16, 2, before=trns(struct.pack(">3H", *(int(v) >> 8 << 8 for v in s48[5, 5])))), "the key differs in low bytes")
    yield one("transparency", "palette-alpha", png(indices, 8, 3, before=palette + trns(bytes(range(0, 256, 17)))))
    yield one("transparency", "palette-alpha-4", png(indices, 4, 3, before=palette + trns(bytes(range(0, 256, 17)))))
    yield one("transparency", "palette-alpha-1", png(s1 % 2, 1, 3, before=chunk(b"PLTE", b"\1\2\3\xc8\x64\x32") + trns(b"\x40\xc0")))
    yield one("transparency", "palette-one-index", png(indices, 8, 3, before=palette + trns(b"\xff\xff\0\xff")), "one index, fully transparent")
    yield one("transparency", "palette-opaque", png(indices, 8, 3, before=palette + trns(b"\xff" * 16)))
    yield one("transparency", "palette-alpha-interlaced", png(indices, 8, 3, True, before=palette + trns(bytes(range(0, 256, 17)))))
    yield one("transparency", "trns-too-long", png(indices, 8, 3, before=palette + trns(bytes(range(100)))))
    yield one("transparency", "trns-too-short-rgb", png(s3, 8, 2, before=trns(b"\0\1\0")))
    yield one("transparency", "trns-rgba", png(g.samples_of(small, 4, 8), 8, 6, before=trns(b"\0\1\0\2\0\3")), "tRNS beside an alpha channel")
    yield one("transparency", "trns-behind", png(s3, 8, 2, after=trns(key)), "tRNS behind the pixels")
    yield one("transparency", "trns-before-palette", png(indices, 8, 3, before=trns(bytes(range(0, 256, 17))) + palette))
    turned = g.samples_of(small, 4, 8)
    yield one("transparency", "alpha-turned", png(turned, 8, 6, before=chunk(b"eXIf", g.tiff(6))), "alpha and orientation")
    yield one("transparency", "alpha-zero", png(numpy.concatenate([s3, s3[:, :, :1] * 0], 2), 8, 6), "all transparent")
    yield one("transparency", "la-turned", png(g.samples_of(small, 2, 8), 8, 4, before=chunk(b"eXIf", g.tiff(8))))
    # checksums, in each place
    def bad(name, data, sum=1):
        return chunk(name, data, sum)

    icc = b"name\0\0" + zlib.compress(b"profile" * 20)
    for place, before in (("text", bad(b"tEXt", b"key\0value")), ("ztxt", bad(b"zTXt", b"key\0\0" + zlib.compress(b"value"))),
                          ("itxt", bad(b"iTXt", b"key\0\0\0\0\0value")), ("iccp", bad(b"iCCP", icc)), ("gama", bad(b"gAMA", struct.pack(">I", 45455))),
                          ("phys", bad(b"pHYs", struct.pack(">IIB", 2835, 2835, 1))), ("exif", bad(b"eXIf", g.tiff(6))),
                          ("time", bad(b"tIME", b"\7\xe7\1\1\0\0\0")), ("private", bad(b"prVt", b"data")), ("trns", bad(b"tRNS", key)),
                          ("srgb", bad(b"sRGB", b"\0"))):
        yield one("checksums", f"sum-{place}", png(s3, 8, 2, before=before), f"a wrong sum in {place}")
    yield one("checksums", "sum-palette", png(indices, 8, 3, before=bad(b"PLTE", palette[8:-4])))
    yield one("checksums", "sum-palette-trns", png(indices, 8, 3, before=palette + bad(b"tRNS", b"\0\x40\x80")))
    good = png(s3, 8, 2)
    yield one("checksums", "sum-header", w.set_byte(good, 29, good[29] ^ 1))
    yield one("checksums", "sum-end", good[:-1] + b"\0")
    yield one("checksums", "sum-text-behind", png(s3, 8, 2, after=bad(b"tEXt", b"key\0value")))
    yield one("checksums", "sum-exif-behind", png(s3, 8, 2, after=bad(b"eXIf", g.tiff(6))))
    yield one("checksums", "sum-first-idat", png(s3, 8, 2, pieces=4, idat_sum=7), "every IDAT")
    broken = bytearray(good)
    raw = zlib.compress(g.scan_lines(s3, 8), 9)
    yield one("checksums", "sum-zlib", png(s3, 8, 2, idat=raw[:-4] + b"\0\0\0\0"), "the sum inside zlib")
    # other chunks
    for name, before in (
        ("gamma-short", chunk(b"gAMA", b"\0\0")), ("gamma-0", chunk(b"gAMA", bytes(4))), ("chromaticities", chunk(b"cHRM", struct.pack(">8I", *[30000] * 8))),
        ("iccp-broken", chunk(b"iCCP", b"name\0\0not zlib")), ("iccp-empty", chunk(b"iCCP", b"")), ("iccp-method", chunk(b"iCCP", b"name\0\1xx")),
        ("ztxt-broken", chunk(b"zTXt", b"key\0\0not zlib")), ("ztxt-method", chunk(b"zTXt", b"key\0\1" + zlib.compress(b"v"))), ("ztxt-empty", chunk(b"zTXt", b"")),
        ("itxt-broken", chunk(b"iTXt", b"key\0\1\0en\0\0not zlib")), ("itxt-short", chunk(b"iTXt", b"key\0")), ("itxt-not-utf8", chunk(b"iTXt", b"key\0\0\0en\0k\0\xff\xfe")),
        ("text-no-key", chunk(b"tEXt", b"value")), ("text-large", text(b"key", b"v" * (1 << 20 | 9), b"zTXt")), ("text-largest", text(b"key", b"v" * (1 << 20), b"zTXt")),
        ("itxt-large", text(b"key", b"v" * (1 << 20 | 9), b"iTXt-z")), ("xmp-large", text(b"XML:com.adobe.xmp", b"v" * (1 << 20 | 9), b"iTXt-z")),
        ("phys-short", chunk(b"pHYs", b"\0\0")), ("time-long", chunk(b"tIME", bytes(99))), ("histogram", chunk(b"hIST", bytes(6))),
        ("private", chunk(b"prVt", b"data")), ("critical", chunk(b"CRIT", b"data")), ("palette-in-rgb", palette), ("background", chunk(b"bKGD", bytes(6))),
        ("srgb-9", chunk(b"sRGB", b"\x09")), ("srgb-empty", chunk(b"sRGB", b"")), ("sbit-odd", chunk(b"sBIT", b"\1")), ("cicp", chunk(b"cICP", b"\1\2\0\1")),
        ("two-gamma", chunk(b"gAMA", struct.pack(">I", 1)) * 2), ("splt", chunk(b"sPLT", b"n\0\x08" + bytes(12))), ("empty-data", chunk(b"IDAT", b"")),
        ("two-headers", chunk(b"IHDR", struct.pack(">IIBBBBB", 31, 23, 8, 2, 0, 0, 0))), ("exif-empty", chunk(b"eXIf", b"")),
        ("exif-broken", chunk(b"eXIf", b"II*\0\xff\xff\xff\xff")), ("odd-name", chunk(b"a\x01b ", b"data")),
    ):
        yield one("chunks", f"chunk-{name}", png(s3, 8, 2, before=before), name.replace("-", " "))
    yield one("chunks", "text-between", png(s3, 8, 2, idat=raw[:200], end=False) + chunk(b"tEXt", b"k\0v") + chunk(b"IDAT", raw[200:]) + chunk(b"IEND", b""), "a chunk inside the pixels")
    yield one("chunks", "text-behind-large", png(s3, 8, 2, after=text(b"key", b"v" * (1 << 20 | 9), b"zTXt")))
    yield one("chunks", "more-behind", good + b"rubbish" * 9, "bytes behind the end")
    # damage
    yield one("damage", "no-palette", png(indices, 8, 3))
    yield one("damage", "palette-odd", png(indices, 8, 3, before=chunk(b"PLTE", bytes(range(47)))), "a palette of 47 bytes")
    yield one("damage", "palette-empty", png(indices, 8, 3, before=chunk(b"PLTE", b"")))
    yield one("damage", "palette-long", png(indices, 8, 3, before=chunk(b"PLTE", bytes(i % 251 for i in range(300 * 3)))), "300 entries")
    yield one("damage", "palette-long-4", png(indices, 4, 3, before=chunk(b"PLTE", bytes(i % 251 for i in range(100 * 3)))), "100 entries in 4 bits")
    yield one("damage", "data-more", png(s3, 8, 2, idat=zlib.compress(g.scan_lines(s3, 8) + bytes(500))), "more rows than it states")
    yield one("damage", "data-behind-zlib", png(s3, 8, 2, idat=raw + b"rubbish"), "bytes behind the zlib stream")
    yield one("damage", "data-short", png(s3, 8, 2, idat=zlib.compress(g.scan_lines(s3, 8)[:-300])), "fewer rows than it states")
    yield one("damage", "data-cut", png(s3, 8, 2, idat=raw[:-300]), "the zlib stream is cut, the file is not")
    yield one("damage", "data-none", png(s3, 8, 2, idat=b"x")[:41] + chunk(b"IEND", b""), "no pixels")
    yield one("damage", "filter", png(s3, 8, 2, idat=zlib.compress(b"\x09" + g.scan_lines(s3, 8)[1:])), "a filter that does not exist")
    yield one("damage", "zlib-head", png(s3, 8, 2, idat=b"\x78\x01"[:1] + b"\0" + raw[2:]), "a wrong zlib header")
    yield one("damage", "zlib-wrong", png(s3, 8, 2, idat=raw[:300] + b"\xff\xff\xff" + raw[303:]), "wrong bytes in the zlib stream")
    yield one("damage", "cut-half", good[: len(good) // 2], "cut")
    yield one("damage", "cut-header", good[:30], "cut")
    yield one("damage", "cut-signature", good[:6], "cut")
    yield one("damage", "signature", b"\x89PNG\n\x1a\n" + good[8:], "line ends converted")
    yield one("damage", "interlaced-cut", png(s3, 8, 2, True)[:-900])
    for name, fields in (("depth-3", (31, 23, 3, 0, 0, 0, 0)), ("rgb-4", (31, 23, 4, 2, 0, 0, 0)), ("palette-16", (31, 23, 16, 3, 0, 0, 0)), ("colour-5", (31, 23, 8, 5, 0, 0, 0)),
                         ("compression", (31, 23, 8, 2, 1, 0, 0)), ("filter-method", (31, 23, 8, 2, 0, 1, 0)), ("interlace-2", (31, 23, 8, 2, 0, 0, 2)),
                         ("width-0", (0, 38, 8, 2, 0, 0, 0)), ("large", (60000, 60000, 8, 2, 0, 0, 0))):
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", *fields))
        yield one("damage", f"header-{name}", good[:8] + head + palette * (fields[3] == 3) + good[33:], "a header that is not allowed")
    # kinds
    for size in ((1, 1), (2, 2), (3, 5), (5, 3), (1, 8), (8, 1), (9, 9)):
        yield one("types and depths", f"interlaced-{size[0]}x{size[1]}", png(g.samples_of(g.photo(*size, seed=2), 3, 8), 8, 2, True), "few pixels: passes without a row")
    for depth in (1, 2, 4):
        yield one("types and depths", f"interlaced-odd-{depth}", png(g.samples_of(g.photo(11, 7, 2), 1, depth), depth, 0, True))
    yield one("types and depths", "palette-index-beyond", png(s1 % 32, 8, 3, before=palette), "indices beyond the palette")
    yield one("types and depths", "palette-1-entry", png(s1 % 2, 1, 3, before=chunk(b"PLTE", b"\x20\x40\x60")))
    ramp = numpy.array([0, 1, 2, 127, 128, 254, 255, 256, 257, 32767, 32768, 65279, 65280, 65534, 65535] * 3).reshape(3, 15, 1)
    yield one("types and depths", "grey16-border", png(ramp, 16, 0), "values around 255")
    yield one("types and depths", "rgb16-border", png(numpy.repeat(ramp, 3, 2), 16, 2))
    yield one("types and depths", "rgba16-border", png(numpy.repeat(ramp, 4, 2), 16, 6))
    yield one("types and depths", "la16-border", png(numpy.repeat(ramp, 2, 2), 16, 4))
    yield one("types and depths", "grey16-turned", png(s16 // 200, 16, 0, before=chunk(b"eXIf", g.tiff(6))))
    yield one("types and depths", "grey1-turned", png(g.samples_of(small, 1, 1), 1, 0, before=chunk(b"eXIf", g.tiff(7))))
    yield one("types and depths", "palette-turned", png(indices, 4, 3, before=palette + chunk(b"eXIf", g.tiff(5))))
    # animation
    frames = [g.photo(31, 23, 20 + i) for i in range(2)]
    apng = io.BytesIO()
    frames[0].save(apng, "PNG", save_all=True, append_images=frames[1:], default_image=True)
    yield one("animation", "apng-default", apng.getvalue(), "the default picture is no frame")
    control = lambda n, fw, fh, x, y: chunk(b"fcTL", struct.pack(">IIIIIHHBB", n, fw, fh, x, y, 1, 10, 0, 0))  # noqa: E731
    yield one("animation", "apng-no-frames", png(s3, 8, 2, before=chunk(b"acTL", struct.pack(">II", 0, 0))))
    yield one("animation", "apng-one", png(s3, 8, 2, before=chunk(b"acTL", struct.pack(">II", 1, 0)) + control(0, 31, 23, 0, 0)))
    yield one("animation", "apng-short-actl", png(s3, 8, 2, before=chunk(b"acTL", b"\0\0")))
    yield one("animation", "apng-bad-order", png(s3, 8, 2, before=chunk(b"acTL", struct.pack(">II", 2, 0)) + control(5, 31, 23, 0, 0)))
    yield one("animation", "apng-frame-too-large", png(s3, 8, 2, before=chunk(b"acTL", struct.pack(">II", 2, 0)) + control(0, 90, 38, 0, 0)))
    yield one("animation", "apng-turned", png(s3, 8, 2, before=chunk(b"acTL", struct.pack(">II", 2, 0)) + control(0, 31, 23, 0, 0) + chunk(b"eXIf", g.tiff(6)),
                                              after=control(1, 20, 20, 0, 0) + chunk(b"fdAT", struct.pack(">I", 2) + zlib.compress(g.scan_lines(s3[:20, :20], 8)))))
    # orientation
    small16 = g.tiff(6)
    raw_exif = lambda body: text(b"Raw profile type exif", body)  # noqa: E731
    for name, before, after in (
        ("both-sides", chunk(b"eXIf", g.tiff(3)), chunk(b"eXIf", small16)), ("exif-head", chunk(b"eXIf", b"Exif\0\0" + small16), b""),
        ("raw-app1", text(b"Raw profile type APP1", b"\nexif\n%8d\n" % len(small16) + small16.hex().encode()), b""),
        ("raw-odd-digits", raw_exif(b"\nexif\n%8d\n" % len(small16) + small16.hex().encode()[:-1]), b""), ("raw-no-digits", raw_exif(b"\nexif\n 10\nzz"), b""),
        ("raw-empty", raw_exif(b""), b""), ("raw-head", raw_exif(b"\nexif\n%8d\n" % (len(small16) + 6) + (b"Exif\0\0" + small16).hex().encode()), b""),
        ("xmp-text", text(b"XML:com.adobe.xmp", g.XMP % b'tiff:Orientation="6"'), b""), ("xmp-ztxt", text(b"XML:com.adobe.xmp", g.XMP % b'tiff:Orientation="6"', b"zTXt"), b""),
        ("xmp-element", text(b"XML:com.adobe.xmp", g.XMP % b"" + b"<tiff:Orientation>3</tiff:Orientation>", b"iTXt"), b""),
        ("exif-1-xmp-6", chunk(b"eXIf", g.tiff(1)) + text(b"XML:com.adobe.xmp", g.XMP % b'tiff:Orientation="6"', b"iTXt"), b""),
        ("exif-none-xmp-6", chunk(b"eXIf", g.tiff(6, before=[]).replace(b"\x12\x01", b"\x13\x01")) + text(b"XML:com.adobe.xmp", g.XMP % b'tiff:Orientation="6"', b"iTXt"), b""),
    ):
        yield one("orientation", f"turn-{name}", png(s3, 8, 2, before=before, after=after), name.replace("-", " "))


def webps():
    p, small = g.photo(60, 44), g.photo(45, 38, 6)
    alpha = p.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(p.size))

    def one(kind, name, data, remark="", limits=SMALL):
        return "WebP", kind, f"webp-{name}.webp", data, limits, 16, remark

    for size in ((1, 1), (1, 100), (100, 1), (17, 15)):
        yield one("still", f"{size[0]}x{size[1]}", g.encode(g.photo(*size, seed=4), "WEBP", quality=60), "few pixels")
        yield one("still", f"lossless-{size[0]}x{size[1]}", g.encode(g.photo(*size, seed=4), "WEBP", lossless=True))
    for quality in (0, 100):
        yield one("still", f"quality-{quality}", g.encode(p, "WEBP", quality=quality))
    yield one("still", "sharp", g.encode(small, "WEBP", quality=75, method=6))
    few = Image.fromarray(numpy.asarray(small) // 64 * 64)
    yield one("still", "lossless-palette", g.encode(few, "WEBP", lossless=True), "few colours")
    yield one("still", "lossless-grey", g.encode(small.convert("L").convert("RGB"), "WEBP", lossless=True))
    yield one("still", "lossless-two-colours", g.encode(small.convert("1").convert("RGB"), "WEBP", lossless=True))
    lossy = list(g.webp_chunks(g.encode(p, "WEBP", quality=60)))
    lossless = list(g.webp_chunks(g.encode(small, "WEBP", lossless=True)))
    with_alpha = list(g.webp_chunks(g.encode(alpha, "WEBP", quality=60)))
    yield one("still", "extended", g.webp([g.vp8x(60, 44, 0), *lossy]), "the extended form")
    yield one("still", "extended-unknown", g.webp([g.vp8x(60, 44, 0), (b"JUNK", b"123"), *lossy, (b"MORE", b"")]), "unknown chunks")
    yield one("still", "icc", g.encode(p, "WEBP", quality=60, icc_profile=b"not a profile" * 5))
    # transparency
    for name, options in (("alpha-exact", dict(lossless=True, exact=True)), ("alpha-quality", dict(quality=40, alpha_quality=10)), ("alpha-method-0", dict(quality=60, method=0))):
        yield one("transparency", name, g.encode(alpha, "WEBP", **options))
    yield one("transparency", "alpha-opaque", g.webp([g.vp8x(60, 44, 0x10), *lossy]), "the flag says alpha, there is none")
    yield one("transparency", "alpha-no-flag", g.webp([g.vp8x(60, 44, 0), *with_alpha[1:]]), "alpha without its flag")
    yield one("transparency", "alpha-lossless-no-flag", g.webp([g.vp8x(60, 44, 0), *g.webp_chunks(g.encode(alpha, "WEBP", lossless=True, exact=True))]))
    clear = alpha.copy()
    clear.putalpha(0)
    yield one("transparency", "alpha-zero", g.encode(clear, "WEBP", lossless=True, exact=True))
    yield one("transparency", "alpha-turned", g.encode(alpha, "WEBP", quality=60, exif=b"Exif\0\0" + g.tiff(6)))
    # animation
    frames = [g.photo(40, 30, 20 + i) for i in range(3)]

    def frame(picture, x, y, flags=0, **options):
        data = [c for c in g.webp_chunks(g.encode(picture, "WEBP", **options)) if c[0] in (b"VP8 ", b"VP8L", b"ALPH")]
        head = g.u24(x // 2) + g.u24(y // 2) + g.u24(picture.width - 1) + g.u24(picture.height - 1) + g.u24(100) + bytes([flags])
        return b"ANMF", head + b"".join(g.riff(n, d) for n, d in data)

    part = g.photo(20, 16, 7)
    part_alpha = part.copy()
    part_alpha.putalpha(Image.linear_gradient("L").resize(part.size))
    for name, flags, first, background in (
        ("part-lossy", 2, frame(part, 10, 6, quality=60), b"\xff\xff\xff\xff"), ("part-alpha", 0x12, frame(part_alpha, 10, 6, lossless=True, exact=True), b"\x10\x20\x30\x40"),
        ("part-alpha-lossy", 0x12, frame(part_alpha, 10, 6, quality=70), bytes(4)), ("part-no-blend", 0x12, frame(part_alpha, 10, 6, 2, lossless=True, exact=True), b"\xff\0\0\xff"),
        ("part-dispose", 0x12, frame(part, 10, 6, 1, lossless=True), b"\0\xff\0\xff"), ("part-no-flag", 2, frame(part_alpha, 0, 0, lossless=True, exact=True), bytes(4)),
        ("part-corner", 2, frame(part, 28, 24, quality=60), bytes(4)), ("part-beyond", 2, frame(part, 40, 30, quality=60), bytes(4)),
    ):
        data = g.webp([g.vp8x(48, 40, flags), (b"ANIM", background + b"\0\0"), first, frame(g.photo(48, 40, 3), 0, 0, quality=20)])
        yield one("animation", name, data, "a first frame that is a part of the canvas")
    yield one("animation", "one-frame", g.webp([g.vp8x(48, 40, 2), (b"ANIM", bytes(6)), frame(part, 4, 4, lossless=True)]))
    yield one("animation", "no-frame", g.webp([g.vp8x(48, 40, 2), (b"ANIM", bytes(6))]))
    moving = io.BytesIO()
    frames[0].save(moving, "WEBP", save_all=True, append_images=frames[1:], quality=50, exif=b"Exif\0\0" + g.tiff(6))
    yield one("animation", "turned", moving.getvalue(), "animated and turned")
    yield one("animation", "second-cut", moving.getvalue()[:-len(moving.getvalue()) // 3], "cut behind the first frame")
    yield one("animation", "flag-only", g.webp([g.vp8x(60, 44, 2), *lossy]), "the flag says animation, there is none")
    # orientation
    exif = lambda o: (b"EXIF", g.tiff(o))  # noqa: E731
    for name, chunks in (
        ("no-flag", [g.vp8x(60, 44, 0), *lossy, exif(6)]), ("before", [g.vp8x(60, 44, 8), exif(6), *lossy]), ("two", [g.vp8x(60, 44, 8), *lossy, exif(6), exif(3)]),
        ("broken", [g.vp8x(60, 44, 8), *lossy, (b"EXIF", b"II*\0\xff\xff\xff\xff")]), ("empty", [g.vp8x(60, 44, 8), *lossy, (b"EXIF", b"")]),
        ("head", [g.vp8x(60, 44, 8), *lossy, (b"EXIF", b"Exif\0\0" + g.tiff(6))]), ("head-twice", [g.vp8x(60, 44, 8), *lossy, (b"EXIF", b"Exif\0\0Exif\0\0" + g.tiff(6))]),
        ("xmp-and-exif", [g.vp8x(60, 44, 12), *lossy, exif(3), (b"XMP ", g.XMP % b'tiff:Orientation="6"')]), ("lossless", [g.vp8x(45, 38, 8), *lossless, exif(7)]),
        ("xmp-no-flag", [g.vp8x(60, 44, 0), *lossy, (b"XMP ", g.XMP % b'tiff:Orientation="6"')]),
    ):
        yield one("orientation", f"turn-{name}", g.webp(chunks))
    # damage
    plain = g.encode(p, "WEBP", quality=60)
    whole = g.encode(small, "WEBP", lossless=True)
    yield one("damage", "cut-half", plain[: len(plain) // 2])
    yield one("damage", "cut-lossless", whole[: len(whole) // 2])
    yield one("damage", "cut-end", plain[:-1])
    yield one("damage", "cut-header", plain[:20])
    yield one("damage", "riff-size-small", plain[:4] + struct.pack("<I", len(plain) // 2) + plain[8:], "RIFF states half the size")
    yield one("damage", "riff-size-large", plain[:4] + struct.pack("<I", len(plain) * 2) + plain[8:], "RIFF states twice the size")
    yield one("damage", "more-behind", plain + b"rubbish" * 9)
    yield one("damage", "data-wrong", plain[:300] + b"\x55" * 40 + plain[340:], "wrong bytes")
    yield one("damage", "lossless-wrong", whole[:300] + b"\x55" * 40 + whole[340:], "wrong bytes")
    yield one("damage", "canvas-other", g.webp([g.vp8x(50, 40, 0), *lossy]), "the canvas has another size")
    yield one("damage", "alpha-cut", g.webp([g.vp8x(60, 44, 0x10)] + [(n, d[: len(d) // 2] if n == b"ALPH" else d) for n, d in with_alpha[1:]]))


def gifs():
    small = g.photo(45, 38, 6)
    indices = (numpy.asarray(small.convert("L")).astype(int) // 16) % 16
    palette = bytes((i * 37 + c * 91 + 5) % 256 for i in range(16) for c in range(3))
    other = bytes((i * 53 + c * 17 + 9) % 256 for i in range(16) for c in range(3))
    frame = w.gif_frame

    def one(kind, name, data, remark=""):
        return "GIF", kind, f"gif-{name}.gif", data, SMALL, 16, remark

    full = frame(indices)
    for colours in (2, 3, 16, 64, 256):
        image = small.quantize(colours)
        yield one("still", f"colours-{colours}", g.encode(image, "GIF"))
    yield one("still", "grey", g.encode(small.convert("L"), "GIF"))
    yield one("still", "interlaced-pillow", g.encode(small.quantize(32), "GIF", interlace=1))
    yield one("still", "plain", w.gif(45, 38, full, palette=palette))
    yield one("still", "87a", w.gif(45, 38, full, palette=palette, version=b"87a"))
    yield one("still", "interlaced", w.gif(45, 38, frame(indices, interlace=True), palette=palette))
    for height in (1, 2, 3, 4, 5, 9):
        yield one("still", f"interlaced-{height}", w.gif(20, height, frame(indices[:height, :20], interlace=True), palette=palette))
    yield one("still", "1x1", w.gif(1, 1, frame(indices[:1, :1]), palette=palette))
    yield one("still", "local-palette", w.gif(45, 38, frame(indices, palette=other), palette=palette))
    yield one("still", "local-only", w.gif(45, 38, frame(indices, palette=other)))
    yield one("still", "no-palette", w.gif(45, 38, full), "no palette at all")
    yield one("still", "index-beyond", w.gif(45, 38, full, palette=palette[:24]), "indices beyond the palette")
    yield one("still", "grey-palette", w.gif(45, 38, full, palette=bytes(v for i in range(16) for v in (i, i, i))), "a grey palette: read as grey")
    yield one("still", "grey-ramp", w.gif(45, 38, frame(indices * 16, depth=8), palette=bytes(v for i in range(256) for v in (i, i, i))))
    yield one("still", "long-codes", g.encode(g.photo(90, 80, 3).quantize(256), "GIF"), "codes up to 12 bits")
    yield one("still", "extensions", w.gif(45, 38, b"\x21\xfe" + w.blocks(b"a comment"), b"\x21\xff\x0bNETSCAPE2.0" + w.blocks(b"\1\0\0"),
                                           b"\x21\xff\x0bXMP DataXMP" + w.blocks(g.XMP % b'tiff:Orientation="6"'), w.gif_control(), full, palette=palette))
    yield one("still", "text-extension", w.gif(45, 38, b"\x21\x01\x0c" + bytes(12) + w.blocks(b"text"), full, palette=palette))
    yield one("still", "aspect", w.gif(45, 38, full, palette=palette, aspect=49))
    # transparency
    yield one("transparency", "index", w.gif(45, 38, w.gif_control(3), full, palette=palette), "a transparent index")
    yield one("transparency", "index-0", w.gif(45, 38, w.gif_control(0), full, palette=palette))
    yield one("transparency", "index-beyond-palette", w.gif(45, 38, w.gif_control(200), full, palette=palette))
    yield one("transparency", "index-local", w.gif(45, 38, w.gif_control(5), frame(indices, palette=other), palette=palette))
    yield one("transparency", "index-grey", w.gif(45, 38, w.gif_control(5), frame(indices * 16, depth=8), palette=bytes(v for i in range(256) for v in (i, i, i))))
    yield one("transparency", "index-interlaced", w.gif(45, 38, w.gif_control(7), frame(indices, interlace=True), palette=palette))
    yield one("transparency", "two-controls", w.gif(45, 38, w.gif_control(3), w.gif_control(7), full, palette=palette))
    yield one("transparency", "control-behind", w.gif(45, 38, full, w.gif_control(3), palette=palette))
    yield one("transparency", "pillow", g.encode(small.quantize(16), "GIF", transparency=2))
    # first frame and animation
    part = indices[5:25, 8:38]
    second = w.gif_control(disposal=1, delay=10) + frame(indices[:10, :10], 3, 3)
    yield one("animation", "part", w.gif(45, 38, frame(part, 6, 4), palette=palette, background=9), "the frame is a part of the canvas")
    yield one("animation", "part-transparent", w.gif(45, 38, w.gif_control(3), frame(part, 6, 4), palette=palette, background=9))
    yield one("animation", "part-transparent-0", w.gif(45, 38, w.gif_control(0), frame(part, 6, 4), palette=palette, background=0))
    yield one("animation", "part-local", w.gif(45, 38, frame(part, 6, 4, palette=other), palette=palette, background=9))
    yield one("animation", "part-interlaced", w.gif(45, 38, frame(part, 6, 4, interlace=True), palette=palette))
    yield one("animation", "part-corner", w.gif(45, 38, frame(part[:, :20], 25, 18), palette=palette))
    yield one("animation", "beyond", w.gif(30, 20, frame(indices, 2, 3), palette=palette), "the frame is larger than the canvas")
    yield one("animation", "beyond-corner", w.gif(45, 38, frame(part, 30, 30), palette=palette), "the frame goes over the edge")
    yield one("animation", "canvas-0", w.gif(0, 0, full, palette=palette), "a canvas of no size")
    for disposal in (0, 1, 2, 3):
        yield one("animation", f"disposal-{disposal}", w.gif(45, 38, w.gif_control(disposal=disposal, delay=5), frame(part, 6, 4), second, palette=palette))
    yield one("animation", "two", w.gif(45, 38, full, second, palette=palette))
    yield one("animation", "two-transparent", w.gif(45, 38, w.gif_control(4, 2), full, w.gif_control(4, 2), frame(indices[::-1]), palette=palette))
    moving = io.BytesIO()
    frames = [g.photo(45, 38, i).quantize(32) for i in range(3)]
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:])
    yield one("animation", "pillow-three", moving.getvalue())
    yield one("animation", "second-cut", moving.getvalue()[: len(moving.getvalue()) - 900], "cut behind the first frame")
    # damage
    plain = w.gif(45, 38, full, palette=palette)
    yield one("damage", "no-end", plain[:-1], "no trailer")
    yield one("damage", "no-block-end", plain[:-2], "the last block is not ended")
    yield one("damage", "cut-half", plain[: len(plain) // 2])
    yield one("damage", "cut-palette", plain[:30])
    yield one("damage", "cut-header", plain[:9])
    yield one("damage", "few-pixels", w.gif(45, 38, frame(indices, data=w.lzw(indices.reshape(-1)[:900], 4)), palette=palette), "an end code too early")
    yield one("damage", "more-pixels", w.gif(45, 38, frame(indices, data=w.lzw(list(indices.reshape(-1)) * 2, 4)), palette=palette), "more pixels than it states")
    yield one("damage", "no-end-code", w.gif(45, 38, frame(indices, data=w.lzw(indices.reshape(-1), 4, end=False)), palette=palette))
    yield one("damage", "code-size-1", w.gif(45, 38, frame(indices, data=b"\1" + w.lzw(indices.reshape(-1), 4)[1:]), palette=palette))
    yield one("damage", "code-size-13", w.gif(45, 38, frame(indices, data=b"\x0d" + w.lzw(indices.reshape(-1), 4)[1:]), palette=palette))
    yield one("damage", "code-wrong", w.gif(45, 38, frame(indices, data=b"\4" + w.blocks(b"\xff" * 400)), palette=palette), "codes that are not known yet")
    yield one("damage", "no-frame", w.gif(45, 38, palette=palette), "no picture")
    yield one("damage", "frame-0", w.gif(45, 38, b"," + struct.pack("<4HB", 0, 0, 0, 0, 0) + w.lzw([1], 4), palette=palette), "a frame of no size")
    yield one("damage", "bytes-between", w.gif(45, 38, b"\0\0", full, palette=palette), "zeros between blocks")
    yield one("damage", "block-unknown", w.gif(45, 38, b"\x77", full, palette=palette), "an unknown block")
    yield one("damage", "more-behind", plain + b"rubbish")
    yield one("damage", "version", plain.replace(b"GIF89a", b"GIF90a"))
    yield one("damage", "control-short", w.gif(45, 38, b"\x21\xf9\2\1\0\0", full, palette=palette))


def bmps():
    small = g.photo(31, 23, 6)
    rgb = numpy.asarray(small).astype(int)
    bgr = rgb[:, :, ::-1]
    grey = rgb.mean(2).astype(int)
    alpha = (numpy.indices(grey.shape).sum(0) * 5) % 256
    bgra = numpy.concatenate([bgr, alpha[:, :, None]], 2)
    quad = lambda n, k=37: b"".join(bytes([(i * k + 5) % 256, (i * 91 + 9) % 256, (i * 11 + 3) % 256, 0]) for i in range(n))  # noqa: E731
    bmp, rows = w.bmp, w.bmp_rows
    mask = lambda *m: struct.pack(f"<{len(m)}I", *m)  # noqa: E731

    def one(kind, name, data, remark=""):
        return "BMP", kind, f"bmp-{name}.bmp", data, SMALL, 16, remark

    for depth, count in ((1, 2), (4, 16), (8, 256)):
        index = grey >> (8 - depth)
        yield one("palette", f"{depth}", bmp(31, 23, depth, rows(index, depth), quad(count)))
        yield one("palette", f"{depth}-top-down", bmp(31, 23, depth, rows(index, depth, True), quad(count), top_down=True))
        yield one("palette", f"{depth}-grey", bmp(31, 23, depth, rows(index, depth), b"".join(bytes([i * 255 // (count - 1)] * 3 + [0]) for i in range(count))), "a grey palette")
        yield one("palette", f"{depth}-os2", bmp(31, 23, depth, rows(index, depth), b"".join(quad(count)[i * 4 : i * 4 + 3] for i in range(count)), header=12), "the header of OS/2")
    yield one("palette", "8-ten-colours", bmp(31, 23, 8, rows(grey % 10, 8), quad(10), colours=10))
    yield one("palette", "8-beyond", bmp(31, 23, 8, rows(grey % 20, 8), quad(10), colours=10), "indices beyond the palette")
    yield one("palette", "8-inverted-grey", bmp(31, 23, 8, rows(grey, 8), b"".join(bytes([255 - i] * 3 + [0]) for i in range(256))))
    yield one("palette", "1-inverted", bmp(31, 23, 1, rows(grey >> 7, 1), b"\xff\xff\xff\0\0\0\0\0"), "white first")
    yield one("palette", "1-colours", bmp(31, 23, 1, rows(grey >> 7, 1), b"\x10\x80\xf0\0\xf0\x20\x10\0"))
    yield one("palette", "8-colours-300", bmp(31, 23, 8, rows(grey, 8), quad(256), colours=300), "states 300 colours")
    yield one("palette", "2", bmp(31, 23, 2, rows(grey >> 6, 2), quad(4), colours=4), "2 bits")
    yield one("palette", "pillow-8", g.encode(small.quantize(200), "BMP"))
    yield one("palette", "pillow-1", g.encode(small.convert("1"), "BMP"))
    yield one("palette", "pillow-grey", g.encode(small.convert("L"), "BMP"))
    # runs
    index8, index4 = (grey >> 5) * 20 % 256, (grey >> 5)
    yield one("runs", "rle8", bmp(31, 23, 8, w.rle8(index8), quad(256), 1))
    yield one("runs", "rle8-absolute", bmp(31, 23, 8, w.rle8(index8, True), quad(256), 1))
    yield one("runs", "rle4", bmp(31, 23, 4, w.rle4(index4), quad(16), 2))
    yield one("runs", "rle8-short-rows", bmp(31, 23, 8, b"\x0a\3\0\0" * 23 + b"\0\1", quad(256), 1), "rows end early")
    yield one("runs", "rle8-delta", bmp(31, 23, 8, b"\x05\3\0\2\4\2\x09\7\0\0\0\1", quad(256), 1), "a jump")
    yield one("runs", "rle8-no-end", bmp(31, 23, 8, w.rle8(index8)[:-2], quad(256), 1), "no end code")
    yield one("runs", "rle8-cut", bmp(31, 23, 8, w.rle8(index8)[:300], quad(256), 1))
    yield one("runs", "rle8-long-run", bmp(31, 23, 8, b"\xff\3" * 8 + b"\0\1", quad(256), 1), "runs over the end of a row")
    yield one("runs", "rle8-top-down", bmp(31, 23, 8, w.rle8(index8), quad(256), 1, top_down=True))
    yield one("runs", "rle4-odd", bmp(31, 23, 4, w.rle4(index4[:, :31]), quad(16), 2))
    # colours
    yield one("colours", "24", bmp(31, 23, 24, rows(bgr, 24)))
    yield one("colours", "24-top-down", bmp(31, 23, 24, rows(bgr, 24, True), top_down=True))
    yield one("colours", "24-os2", bmp(31, 23, 24, rows(bgr, 24), header=12))
    yield one("colours", "24-palette", bmp(31, 23, 24, rows(bgr, 24), quad(8), colours=8), "a palette beside 24 bits")
    yield one("colours", "24-offset", bmp(31, 23, 24, b"gap!" * 5 + rows(bgr, 24), offset=54 + 20), "a gap before the pixels")
    yield one("colours", "24-header-64", bmp(31, 23, 24, rows(bgr, 24), header=64))
    for size in ((1, 1), (2, 3), (3, 2), (5, 1)):
        yield one("colours", f"24-{size[0]}x{size[1]}", bmp(*size, 24, rows(bgr[: size[1], : size[0]], 24)))
    yield one("colours", "32", bmp(31, 23, 32, rows(bgra, 32)), "32 bits without masks")
    yield one("colours", "32-zero", bmp(31, 23, 32, rows(bgra * [1, 1, 1, 0], 32)), "the fourth byte is 0")
    for name, masks, order in (("bgrx", (0xFF0000, 0xFF00, 0xFF), (0, 1, 2, 3)), ("xbgr", (0xFF000000, 0xFF0000, 0xFF00), (3, 0, 1, 2)), ("rgbx", (0xFF, 0xFF00, 0xFF0000), (2, 1, 0, 3)),
                               ("xrgb", (0xFF00, 0xFF0000, 0xFF000000), (3, 2, 1, 0)), ("other", (0x3FF00000, 0xFFC00, 0x3FF), (0, 1, 2, 3))):
        yield one("colours", f"32-masks-{name}", bmp(31, 23, 32, rows(bgra[:, :, list(order)], 32), compression=3, masks=mask(*masks)))
    pixel = lambda r, gr, b, br, bg, bb: ((rgb[:, :, 0] >> (8 - br)) << r) | ((rgb[:, :, 1] >> (8 - bg)) << gr) | ((rgb[:, :, 2] >> (8 - bb)) << b)  # noqa: E731
    yield one("colours", "16", bmp(31, 23, 16, rows(pixel(10, 5, 0, 5, 5, 5), 16)), "16 bits without masks: 5, 5, 5")
    yield one("colours", "16-555", bmp(31, 23, 16, rows(pixel(10, 5, 0, 5, 5, 5), 16), compression=3, masks=mask(0x7C00, 0x3E0, 0x1F)))
    yield one("colours", "16-565", bmp(31, 23, 16, rows(pixel(11, 5, 0, 5, 6, 5), 16), compression=3, masks=mask(0xF800, 0x7E0, 0x1F)))
    yield one("colours", "16-444", bmp(31, 23, 16, rows(pixel(8, 4, 0, 4, 4, 4), 16), compression=3, masks=mask(0xF00, 0xF0, 0xF)), "masks that are rare")
    yield one("colours", "24-masks", bmp(31, 23, 24, rows(bgr, 24), compression=3, masks=mask(0xFF0000, 0xFF00, 0xFF)))
    yield one("colours", "pillow-24", g.encode(small, "BMP"))
    # alpha
    for header in (56, 108, 124):
        yield one("transparency", f"v-{header}", bmp(31, 23, 32, rows(bgra, 32), compression=3, masks=mask(0xFF0000, 0xFF00, 0xFF, 0xFF000000), header=header))
        yield one("transparency", f"v-{header}-no-alpha", bmp(31, 23, 32, rows(bgra, 32), compression=3, masks=mask(0xFF0000, 0xFF00, 0xFF, 0), header=header))
    yield one("transparency", "v-52", bmp(31, 23, 32, rows(bgra, 32), compression=3, masks=mask(0xFF0000, 0xFF00, 0xFF), header=52))
    yield one("transparency", "rgba-order", bmp(31, 23, 32, rows(bgra[:, :, [2, 1, 0, 3]], 32), compression=3, masks=mask(0xFF, 0xFF00, 0xFF0000, 0xFF000000), header=108))
    yield one("transparency", "abgr-order", bmp(31, 23, 32, rows(bgra[:, :, [3, 0, 1, 2]], 32), compression=3, masks=mask(0xFF000000, 0xFF0000, 0xFF00, 0xFF), header=108))
    yield one("transparency", "v-124-rgb", bmp(31, 23, 32, rows(bgra, 32), header=124), "version 5 without masks in use")
    yield one("transparency", "compression-6", bmp(31, 23, 32, rows(bgra, 32), compression=6, masks=mask(0xFF0000, 0xFF00, 0xFF, 0xFF000000), header=40))
    yield one("transparency", "pillow-rgba", g.encode(Image.fromarray(bgra[:, :, [2, 1, 0, 3]].astype(numpy.uint8)), "BMP"))
    # damage
    plain = bmp(31, 23, 24, rows(bgr, 24))
    yield one("damage", "cut-half", plain[: len(plain) // 2])
    yield one("damage", "cut-last-byte", plain[:-1])
    yield one("damage", "cut-padding", bmp(31, 23, 24, rows(bgr, 24)[:-1]))
    yield one("damage", "cut-header", plain[:40])
    yield one("damage", "more-behind", plain + b"rubbish" * 9)
    yield one("damage", "size-wrong", plain[:2] + struct.pack("<I", 7) + plain[6:], "a wrong file size")
    yield one("damage", "offset-0", plain[:10] + bytes(4) + plain[14:])
    yield one("damage", "offset-far", plain[:10] + struct.pack("<I", 1 << 20) + plain[14:])
    yield one("damage", "planes-0", plain[:26] + b"\0\0" + plain[28:])
    yield one("damage", "jpeg-inside", bmp(31, 23, 0, g.encode(small, "JPEG"), compression=4), "a JPEG inside")
    yield one("damage", "png-inside", bmp(31, 23, 0, g.encode(small, "PNG"), compression=5), "a PNG inside")
    yield one("damage", "depth-3", bmp(31, 23, 3, rows(bgr, 24)))
    yield one("damage", "width-0", bmp(0, 38, 24, rows(bgr, 24)))
    yield one("damage", "width-negative", bmp(-31, 23, 24, rows(bgr, 24)))
    yield one("damage", "header-20", bmp(31, 23, 24, rows(bgr, 24))[:14] + struct.pack("<I", 20) + plain[18:])


def tiffs():
    small = g.photo(31, 23, 6)
    rgb = g.samples_of(small, 3, 8)
    rgba, la, l = g.samples_of(small, 4, 8), g.samples_of(small, 2, 8), g.samples_of(small, 1, 8)
    f = w.tiff_file

    def one(kind, name, data, remark="", limits=SMALL):
        return "TIFF", kind, f"tiff-{name}.tif", data, limits, 16, remark

    save = lambda image, **options: g.encode(image, "TIFF", **options)  # noqa: E731
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd", "webp", "lzma", "tiff_deflate"):
        try:
            data = save(small, compression=compression)
        except (OSError, ValueError):
            continue
        yield one("compression", f"rgb-{compression.removeprefix('tiff_')}", data)
    for compression in ("group3", "group4", "tiff_ccitt", "packbits", "tiff_lzw"):
        yield one("compression", f"bilevel-{compression.removeprefix('tiff_')}", save(small.convert("1"), compression=compression))
    yield one("compression", "grey-jpeg", save(small.convert("L"), compression="jpeg", quality=70))
    yield one("compression", "cmyk-jpeg", save(small.convert("CMYK"), compression="jpeg", quality=70))
    yield one("compression", "ycbcr-jpeg", save(small.convert("YCbCr"), compression="jpeg", quality=70))
    yield one("compression", "lzw-predictor", save(small, compression="tiff_lzw", tiffinfo={317: 2}))
    yield one("compression", "predictor-rgb", f(rgb, 8, 2, compression=8, predictor=2))
    yield one("compression", "predictor-grey", f(l, 8, 1, compression=8, predictor=2))
    yield one("compression", "predictor-16", f(g.samples_of(small, 1, 16), 16, 1, compression=8, predictor=2))
    yield one("compression", "predictor-16-mm", f(g.samples_of(small, 3, 16), 16, 2, compression=8, predictor=2, order=">"))
    yield one("compression", "packbits-own", f(rgb, 8, 2, compression=32773, rows=7))
    yield one("compression", "deflate-old", f(rgb, 8, 2, compression=32946))
    yield one("compression", "unknown", f(rgb, 8, 2, compression=34676), "a compression that nobody has")
    # layout
    for order, name in (("<", "ii"), (">", "mm")):
        yield one("layout", f"{name}-strips", f(rgb, 8, 2, order, rows=10))
        yield one("layout", f"{name}-one-row", f(rgb, 8, 2, order, rows=1))
        yield one("layout", f"{name}-tiles", f(rgb, 8, 2, order, tile=(16, 16)))
        yield one("layout", f"{name}-tiles-deflate", f(rgb, 8, 2, order, 8, tile=(32, 16)))
        yield one("layout", f"{name}-planes", f(rgb, 8, 2, order, planar=True))
        yield one("layout", f"{name}-planes-strips", f(rgb, 8, 2, order, 8, rows=9, planar=True))
        yield one("layout", f"{name}-planes-tiles", f(rgb, 8, 2, order, 8, tile=(16, 16), planar=True))
        yield one("layout", f"{name}-bigtiff", f(rgb, 8, 2, order, big=True, rows=10))
        yield one("layout", f"{name}-rgb16", f(g.samples_of(small, 3, 16), 16, 2, order))
        yield one("layout", f"{name}-grey16", f(g.samples_of(small, 1, 16) // 150, 16, 1, order))
    yield one("layout", "tiles-grey", f(l, 8, 1, tile=(16, 32)))
    yield one("layout", "tiles-bilevel", f(g.samples_of(small, 1, 1), 1, 1, tile=(16, 16)))
    yield one("layout", "tile-large", f(rgb, 8, 2, tile=(64, 48)), "one tile, larger than the picture")
    yield one("layout", "no-rows-per-strip", f(rgb, 8, 2, drop=(278,)))
    yield one("layout", "rows-per-strip-max", f(rgb, 8, 2, tags=[(278, 4, [0xFFFFFFFF])]))
    pages = io.BytesIO()
    small.save(pages, "TIFF", save_all=True, append_images=[g.photo(30, 20, 3)])
    yield one("layout", "two-pages", pages.getvalue())
    yield one("layout", "first-page-thumbnail", f(rgb[::4, ::4], 8, 2, tags=[(254, 4, [1])]))
    yield one("layout", "fill-order-2", f(g.samples_of(small, 1, 1), 1, 1, fill_order=2))
    yield one("layout", "fill-order-2-grey", f(l, 8, 1, fill_order=2))
    for size in ((1, 1), (1, 30), (30, 1)):
        yield one("layout", f"{size[0]}x{size[1]}", f(g.samples_of(g.photo(*size, seed=2), 3, 8), 8, 2))
    # kinds of samples
    for depth in (1, 2, 4, 8):
        s = g.samples_of(small, 1, depth)
        yield one("samples", f"grey-{depth}", f(s, depth, 1))
        yield one("samples", f"grey-{depth}-white-is-0", f(s, depth, 0))
        colours = 1 << depth
        colour_map = [(i * k * 257 * 7) % 65536 for k in (3, 11, 29) for i in range(colours)]
        yield one("samples", f"palette-{depth}", f(s, depth, 3, tags=[(320, 3, colour_map)]))
        yield one("samples", f"palette-{depth}-mm", f(s, depth, 3, ">", 8, tags=[(320, 3, colour_map)]))
    yield one("samples", "palette-8-bit-map", f(l, 8, 3, tags=[(320, 3, [(i * k) % 256 for k in (3, 11, 29) for i in range(256)])]), "a map of 8 bits")
    yield one("samples", "grey-16", f(g.samples_of(small, 1, 16), 16, 1))
    yield one("samples", "grey-16-low", f(g.samples_of(small, 1, 8), 16, 1), "16 bits, values to 255")
    yield one("samples", "grey-16-white-is-0", f(g.samples_of(small, 1, 8), 16, 0))
    yield one("samples", "grey-16-signed", f(g.samples_of(small, 1, 8) - 100, 16, 1, sample_format=2))
    yield one("samples", "grey-12", f(g.samples_of(small, 1, 16) >> 4, 12, 1))
    yield one("samples", "grey-32", f(g.samples_of(small, 1, 8), 32, 1))
    yield one("samples", "grey-32-signed", f(g.samples_of(small, 1, 8) * 2 - 100, 32, 1, sample_format=2))
    yield one("samples", "float-32", f((g.samples_of(small, 1, 8) * 1.7 - 60.3).astype(numpy.float32), 32, 1, sample_format=3))
    yield one("samples", "float-32-mm", f((g.samples_of(small, 1, 8) * 1.7 - 60.3).astype(numpy.float32), 32, 1, ">", sample_format=3))
    yield one("samples", "float-64", f(g.samples_of(small, 1, 8).astype(numpy.float64), 64, 1, sample_format=3))
    yield one("samples", "rgb-16", f(g.samples_of(small, 3, 16), 16, 2))
    yield one("samples", "rgba-16", f(g.samples_of(small, 4, 16), 16, 2, tags=[(338, 3, [2])]))
    yield one("samples", "rgb-32", f(g.samples_of(small, 3, 8), 32, 2))
    yield one("samples", "rgb-565", f(rgb, 8, 2, bits=[5, 6, 5]))
    yield one("samples", "cmyk", save(small.convert("CMYK")))
    yield one("samples", "cmyk-16", f(g.samples_of(small, 4, 16), 16, 5))
    yield one("samples", "cmyk-planes", f(rgba, 8, 5, planar=True))
    yield one("samples", "cmyk-deflate", f(rgba, 8, 5, compression=8))
    yield one("samples", "cmyk-extra", f(numpy.concatenate([rgba, l], 2), 8, 5, tags=[(338, 3, [0])]))
    yield one("samples", "lab", save(small.convert("RGB").convert("LAB") if False else ImageCms.applyTransform(
        small, ImageCms.buildTransform(ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), "RGB", "LAB"))), "LAB")
    yield one("samples", "ycbcr", f(numpy.asarray(small.convert("YCbCr")).astype(int), 8, 6, tags=[(530, 3, [1, 1])]))
    yield one("samples", "ycbcr-deflate", f(numpy.asarray(small.convert("YCbCr")).astype(int), 8, 6, compression=8, tags=[(530, 3, [1, 1])]))
    yield one("samples", "1-mode", save(small.convert("1")))
    yield one("samples", "palette-pillow", save(small.quantize(64)))
    # transparency
    for extra in (0, 1, 2, 9):
        yield one("transparency", f"rgba-{extra}", f(rgba, 8, 2, tags=[(338, 3, [extra])]), ("unspecified", "premultiplied", "straight", "unknown")[min(extra, 3)])
    yield one("transparency", "rgba-none", f(rgba, 8, 2), "four channels, no word about the fourth")
    yield one("transparency", "rgba-planes", f(rgba, 8, 2, planar=True, tags=[(338, 3, [2])]))
    yield one("transparency", "rgba-1-deflate", f(rgba, 8, 2, compression=8, tags=[(338, 3, [1])]))
    yield one("transparency", "la", f(la, 8, 1, tags=[(338, 3, [2])]))
    yield one("transparency", "la-1", f(la, 8, 1, tags=[(338, 3, [1])]))
    yield one("transparency", "la-0", f(la, 8, 1, tags=[(338, 3, [0])]))
    yield one("transparency", "la-none", f(la, 8, 1))
    yield one("transparency", "la-pillow", save(small.convert("LA")))
    yield one("transparency", "rgbaa", f(numpy.concatenate([rgba, l], 2), 8, 2, tags=[(338, 3, [2, 0])]))
    yield one("transparency", "palette-alpha", f(la, 8, 3, tags=[(320, 3, [(i * k * 257 * 7) % 65536 for k in (3, 11, 29) for i in range(256)]), (338, 3, [2])]))
    yield one("transparency", "rgba-turned", f(rgba, 8, 2, compression=8, tags=[(338, 3, [2]), (274, 3, [6])]))
    # orientation
    for o in range(0, 10):
        yield one("orientation", f"turn-{o}", f(rgb, 8, 2, compression=8, tags=[(274, 3, [o])]))
    yield one("orientation", "turn-long", f(rgb, 8, 2, compression=8, tags=[(274, 4, [6])]))
    yield one("orientation", "turn-mm", f(rgb, 8, 2, ">", 8, tags=[(274, 3, [8])]))
    yield one("orientation", "turn-xmp", f(rgb, 8, 2, compression=8, tags=[(700, 1, g.XMP % b'tiff:Orientation="6"')]))
    yield one("orientation", "turn-raw", f(rgb, 8, 2, tags=[(274, 3, [5])]))
    yield one("orientation", "turn-planes", f(rgb, 8, 2, compression=8, planar=True, tags=[(274, 3, [7])]))
    yield one("orientation", "turn-tiles", f(rgb, 8, 2, compression=8, tile=(16, 16), tags=[(274, 3, [6])]))
    yield one("orientation", "turn-bilevel", f(g.samples_of(small, 1, 1), 1, 1, tags=[(274, 3, [6])]))
    # damage
    plain = f(rgb, 8, 2, compression=8, rows=10)
    raw = f(rgb, 8, 2, rows=10)
    yield one("damage", "cut-half", plain[: len(plain) // 2])
    yield one("damage", "cut-raw", raw[: len(raw) // 2])
    yield one("damage", "cut-last-byte", raw[:-4])
    yield one("damage", "cut-directory", plain[:40])
    yield one("damage", "data-wrong", plain[:-300] + b"\x55" * 100 + plain[-200:])
    yield one("damage", "no-bits", f(l, 8, 1, drop=(258,)), "BitsPerSample is missing")
    yield one("damage", "no-samples", f(rgb, 8, 2, drop=(277,)), "SamplesPerPixel is missing")
    yield one("damage", "no-photometric", f(rgb, 8, 2, drop=(262,)))
    yield one("damage", "no-counts", f(rgb, 8, 2, drop=(279,)))
    yield one("damage", "no-offsets", f(rgb, 8, 2, drop=(273,)))
    yield one("damage", "bits-one", f(rgb, 8, 2, bits=[8]), "one number for three channels")
    yield one("damage", "next-page-loop", f(rgb, 8, 2, next_page=8))
    yield one("damage", "next-page-far", f(rgb, 8, 2, next_page=1 << 30))
    yield one("damage", "magic", b"II\x2b\0" + plain[4:])
    yield one("damage", "large", f(rgb, 8, 2, tags=[(256, 4, [60000]), (257, 4, [60000])]))
    yield one("damage", "ratio", f(rgb, 8, 2, tags=[(256, 4, [0])]), "width 0")


def pictures():
    for part in (sizes, jpegs, pngs, webps, gifs, bmps, tiffs):
        yield from part()


def old_pictures():
    """Those of tests/image/golden, in the order of its list."""
    formats = {"jpg": "JPEG", "png": "PNG", "webp": "WebP"}
    for line in (helpers.ROOT / "tests/image/golden/goldens.txt").read_text().splitlines():
        name, least, most, patch = line.split()[:4]
        kind = next(kind for head, kind in OLD_KINDS if name.startswith(head))
        yield f"image/golden/{name}", formats[name.rsplit(".", 1)[1]], kind, least, most, patch, ""


def main():
    folder = FOLDER / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    rows, total = list(old_pictures()), 0
    for kind_of_file, kind, name, data, limits, patch, remark in pictures():
        assert not (folder / name).exists(), name
        (folder / name).write_bytes(data)
        total += len(data)
        rows.append((f"conformance/images/{name}", kind_of_file, kind, *limits, patch, remark))
    order = ["JPEG", "PNG", "WebP", "GIF", "BMP", "TIFF"]
    rows.sort(key=lambda row: order.index(row[1]))
    (FOLDER / "pictures.txt").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    print(f"{len(rows)} pictures, {total} new bytes")


if __name__ == "__main__":
    main()
