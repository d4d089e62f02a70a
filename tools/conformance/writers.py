"""Files by hand: what the usual encoders do not write.  JPEG segments and SOF3, GIF, BMP and TIFF, field by field.

The PNG and WebP writers stand in tools/make-image-goldens, which this folder imports (helpers.py).
"""
import struct
import zlib

import numpy

# --- JPEG -----------------------------------------------------------------------------------------------------------


def segments(jpeg):
    """(offset, marker, payload) of each segment before the first scan, that scan's header included."""
    at = 2
    while True:
        marker, size = jpeg[at + 1], struct.unpack_from(">H", jpeg, at + 2)[0]
        yield at, marker, jpeg[at + 4 : at + 2 + size]
        if marker == 0xDA:
            return
        at += 2 + size


def find_segment(jpeg, wanted):
    return next(at for at, marker, _ in segments(jpeg) if marker == wanted)


def without_segments(jpeg, *markers):
    out, last = jpeg[:2], 2
    for at, marker, payload in segments(jpeg):
        end = at + 4 + len(payload)
        if marker not in markers:
            out += jpeg[at:end]
        last = end
    return out + jpeg[last:]


def set_byte(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1 :]


class Bits:
    """Most significant bit first."""

    def __init__(self):
        self.text = []

    def put(self, value, count):
        if count:
            self.text.append(format(value, f"0{count}b"))

    def bytes(self, fill="1"):
        text = "".join(self.text)
        text += fill * (-len(text) % 8)
        return bytes(int(text[i : i + 8], 2) for i in range(0, len(text), 8))


def lossless_jpeg(samples):
    """SOF3 with predictor 1 (the left neighbour): each difference is a category in four bits, and its bits."""
    height, width, channels = samples.shape
    bits = Bits()
    for y in range(height):
        for x in range(width):
            for c in range(channels):
                guess = samples[y, x - 1, c] if x else samples[y - 1, 0, c] if y else 128
                difference = int(samples[y, x, c]) - int(guess)
                size = abs(difference).bit_length()
                bits.put(size, 4)
                bits.put(difference if difference >= 0 else difference + (1 << size) - 1, size)

    def segment(marker, data):
        return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data

    frame = struct.pack(">BHHB", 8, height, width, channels) + b"".join(bytes([c + 1, 0x11, 0]) for c in range(channels))
    table = b"\0" + bytes([0, 0, 0, 10] + [0] * 12) + bytes(range(10))
    scan = bytes([channels]) + b"".join(bytes([c + 1, 0]) for c in range(channels)) + b"\1\0\0"
    data = bits.bytes().replace(b"\xff", b"\xff\0")
    return b"\xff\xd8" + segment(0xC3, frame) + segment(0xC4, table) + segment(0xDA, scan) + data + b"\xff\xd9"


# --- GIF ------------------------------------------------------------------------------------------------------------


def lzw(indices, depth, clear_every=None, end=True):
    """GIF's codes, without strings: a clear code before the width would grow."""
    least = max(2, depth)
    clear, width = 1 << least, least + 1
    codes, room = [clear], (1 << width) - (1 << least) - 3
    for i, index in enumerate(indices):
        if i and i % (clear_every or room) == 0:
            codes.append(clear)
        codes.append(int(index))
    if end:
        codes.append(clear + 1)
    value = sum(code << (width * i) for i, code in enumerate(codes))
    return bytes([least]) + blocks(value.to_bytes((width * len(codes) + 7) // 8, "little"))


def blocks(data):
    return b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255)) + b"\0"


def gif_control(transparent=None, disposal=0, delay=0):
    return b"\x21\xf9\4" + struct.pack("<BHB", disposal << 2 | (transparent is not None), delay, transparent or 0) + b"\0"


def gif_frame(indices, x=0, y=0, palette=None, interlace=False, depth=4, data=None):
    height, width = indices.shape
    flags = (0x40 if interlace else 0) | (0x80 | (len(palette) // 3).bit_length() - 2 if palette else 0)
    rows = indices
    if interlace:
        rows = numpy.concatenate([indices[0::8], indices[4::8], indices[2::4], indices[1::2]])
    return b"," + struct.pack("<4HB", x, y, width, height, flags) + (palette or b"") + (data or lzw(rows.reshape(-1), depth))


def gif(width, height, *parts, palette=None, background=0, version=b"89a", end=True, aspect=0):
    flags = 0x70 | (0x80 | (len(palette) // 3).bit_length() - 2 if palette else 0)
    out = b"GIF" + version + struct.pack("<HHBBB", width, height, flags, background, aspect) + (palette or b"")
    return out + b"".join(parts) + (b";" if end else b"")


# --- BMP ------------------------------------------------------------------------------------------------------------


def bmp_rows(samples, depth, top_down=False, pad=True):
    """samples: (height, width) numbers of depth bits, or of channels in the file's order for 24 and 32."""
    rows = []
    for row in samples:
        if depth >= 24:
            data = row.astype(numpy.uint8).tobytes()
        elif depth == 16:
            data = row.astype("<u2").tobytes()
        else:
            bits = (row.reshape(-1, 1) >> numpy.arange(depth - 1, -1, -1)) & 1
            data = numpy.packbits(bits.astype(numpy.uint8).reshape(-1)).tobytes()
        rows.append(data + b"\0" * (-len(data) % 4 if pad else 0))
    return b"".join(rows if top_down else rows[::-1])


def bmp(width, height, depth, data, palette=b"", compression=0, masks=b"", header=40, colours=0, top_down=False, offset=None):
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, depth)
    else:
        info = struct.pack("<IiiHHIIiiII", header, width, -height if top_down else height, 1, depth, compression, len(data), 2835, 2835,
                           colours, 0)
        if header > 40:
            info += masks[: header - 40].ljust(header - 40, b"\0")
            masks = masks[header - 40 :] if len(masks) > header - 40 else b""
        info += masks
    start = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, offset if offset is not None else start) + info + palette + data


def rle8(indices, absolute=False):
    out = b""
    for row in indices[::-1]:
        if absolute and len(row) > 2:
            out += bytes([0, len(row)]) + bytes(int(v) for v in row) + b"\0" * (len(row) % 2)
        else:
            x = 0
            while x < len(row):
                n = 1
                while x + n < len(row) and n < 255 and row[x + n] == row[x]:
                    n += 1
                out += bytes([n, int(row[x])])
                x += n
        out += b"\0\0"
    return out + b"\0\1"


def rle4(indices):
    out = b""
    for row in indices[::-1]:
        for x in range(0, len(row), 2):
            pair = [int(v) for v in row[x : x + 2]] + [0]
            out += bytes([min(2, len(row) - x), pair[0] << 4 | pair[1]])
        out += b"\0\0"
    return out + b"\0\1"


# --- TIFF -----------------------------------------------------------------------------------------------------------

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 11: 4, 12: 8, 16: 8}
CODES = {1: "B", 2: "c", 3: "H", 4: "I", 5: "II", 6: "b", 7: "B", 8: "h", 9: "i", 11: "f", 12: "d", 16: "Q"}


def packbits(data):
    """Literal runs only, which the format allows."""
    return b"".join(bytes([len(data[i : i + 128]) - 1]) + data[i : i + 128] for i in range(0, len(data), 128))


def pack_samples(samples, depth, order):
    """Rows of samples, each row from a byte's begin."""
    if depth == 8:
        return samples.astype(numpy.uint8).tobytes()
    if depth in (16, 32, 64):
        kind = samples.dtype.kind if samples.dtype.kind in "fi" else "u"
        return samples.astype(f"{order}{kind}{depth // 8}").tobytes()
    flat = samples.reshape(samples.shape[0], -1, 1)
    bits = (flat >> numpy.arange(depth - 1, -1, -1)) & 1
    return b"".join(numpy.packbits(row.astype(numpy.uint8).reshape(-1)).tobytes() for row in bits)


def strips_of(samples, depth, order, rows, tile, planar):
    planes = [samples[:, :, c : c + 1] for c in range(samples.shape[2])] if planar else [samples]
    for plane in planes:
        if tile:
            height, width = plane.shape[:2]
            for y in range(0, height, tile[1]):
                for x in range(0, width, tile[0]):
                    part = numpy.zeros((tile[1], tile[0], plane.shape[2]), plane.dtype)
                    piece = plane[y : y + tile[1], x : x + tile[0]]
                    part[: piece.shape[0], : piece.shape[1]] = piece
                    yield part
        else:
            for y in range(0, plane.shape[0], rows):
                yield plane[y : y + rows]


def tiff_file(samples, depth, photometric, order="<", compression=1, rows=None, tile=None, planar=False, predictor=1, big=False,
              tags=(), drop=(), next_page=0, sample_format=None, bits=None, encode=None, fill_order=1):
    """A TIFF of one page.  tags: (number, type, values); drop: numbers of tags that are left out."""
    height, width, channels = samples.shape
    rows = rows or height

    def squeeze(part):
        if predictor == 2:
            part = part.astype(numpy.int64)
            part = numpy.concatenate([part[:, :1], part[:, 1:] - part[:, :-1]], 1) % (1 << depth)
        data = pack_samples(part, depth, order)
        if fill_order == 2:
            data = bytes(int(f"{b:08b}"[::-1], 2) for b in data)
        if encode:
            return encode(part, data)
        if compression in (8, 32946):
            return zlib.compress(data, 9)
        if compression == 32773:
            lines = len(data) // part.shape[0]
            return b"".join(packbits(data[i : i + lines]) for i in range(0, len(data), lines))
        return data

    pieces = [squeeze(part) for part in strips_of(samples, depth, order, rows, tile, planar)]
    entries = {256: (4, [width]), 257: (4, [height]), 258: (3, bits or [depth] * channels), 259: (3, [compression]), 262: (3, [photometric]),
               277: (3, [channels]), 284: (3, [2 if planar else 1])}
    if tile:
        entries.update({322: (4, [tile[0]]), 323: (4, [tile[1]]), 324: (4, None), 325: (4, [len(p) for p in pieces])})
    else:
        entries.update({273: (4, None), 278: (4, [rows]), 279: (4, [len(p) for p in pieces])})
    if predictor != 1:
        entries[317] = (3, [predictor])
    if fill_order != 1:
        entries[266] = (3, [fill_order])
    if sample_format:
        entries[339] = (3, [sample_format] * channels)
    for number, kind, values in tags:
        entries[number] = (kind, values)
    for number in drop:
        del entries[number]

    head = (b"II" if order == "<" else b"MM") + (struct.pack(order + "HHHQ", 43, 8, 0, 16) if big else struct.pack(order + "HI", 42, 8))
    word, slot = ("Q", 8) if big else ("I", 4)
    directory = len(head) + (8 if big else 2) + len(entries) * (20 if big else 12) + slot

    def fields(kind, values):
        if isinstance(values, bytes):
            return values, len(values) // SIZES[kind]
        if kind == 2:
            return values.encode() + b"\0", len(values) + 1
        count = len(values) // len(CODES[kind])
        return struct.pack(order + CODES[kind] * count, *values), count

    places, at = [], directory
    longest = {n: fields(k, v if v is not None else [0] * len(pieces)) for n, (k, v) in entries.items()}
    at += sum(len(d) + len(d) % 2 for d, _ in longest.values() if len(d) > slot)
    for piece in pieces:
        places.append(at)
        at += len(piece) + len(piece) % 2
    out, extra, extra_at = b"", b"", directory
    for number in sorted(entries):
        kind, values = entries[number]
        data, count = fields(kind, values if values is not None else places)
        if len(data) > slot:
            where = struct.pack(order + word, extra_at + len(extra))
            extra += data + b"\0" * (len(data) % 2)
        else:
            where = data.ljust(slot, b"\0")
        out += struct.pack(order + "HH" + word, number, kind, count) + where
    out = struct.pack(order + ("Q" if big else "H"), len(entries)) + out + struct.pack(order + word, next_page)
    return head + out + extra + b"".join(p + b"\0" * (len(p) % 2) for p in pieces)
