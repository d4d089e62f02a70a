"""PNGs whose chunks stand twice, in an odd order, are missing or unknown: what Pillow decodes, Stoker decodes to the same."""
import io
import struct
import zlib

from PIL import Image

import resize_cases
from test_alpha import chunk

SIGNATURE, END = b"\x89PNG\r\n\x1a\n", chunk(b"IEND", b"")


def header(width, height, depth, color, compression=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, compression, 0, 0))


def pixels(*rows):
    return chunk(b"IDAT", zlib.compress(b"".join(b"\0" + bytes(row) for row in rows)))


INDICES = pixels([0, 1, 2, 3, 250, 255])
FILES = {
    "no palette": header(6, 1, 8, 3) + INDICES,
    "no palette of 2 bits": header(6, 1, 2, 3) + pixels([0b00011011, 0b00010000]),
    "an empty palette": header(6, 1, 8, 3) + chunk(b"PLTE", b"") + INDICES,
    "a palette of 11 bytes": header(6, 1, 8, 3) + chunk(b"PLTE", bytes(range(10, 21))) + INDICES,
    "two palettes": header(6, 1, 8, 3) + chunk(b"PLTE", bytes(range(24))) + chunk(b"PLTE", bytes(range(100, 124))) + INDICES,
    "a palette behind the pixels": header(6, 1, 8, 3) + INDICES + chunk(b"PLTE", bytes(range(24))),
    "a palette too long for its depth": header(6, 1, 2, 3) + chunk(b"PLTE", bytes(range(60))) + pixels([0b00011011, 0b00010000]),
    "a palette in grey": header(6, 1, 8, 0) + chunk(b"PLTE", bytes(24)) + INDICES,
    "an empty palette in RGB": header(2, 1, 8, 2) + chunk(b"PLTE", b"") + INDICES,
    "an unknown critical chunk": header(6, 1, 8, 0) + chunk(b"CRIT", b"abc") + INDICES,
    "two headers": header(6, 1, 8, 0) + header(6, 1, 8, 0) + INDICES,
    "two headers of two sizes": header(5, 1, 8, 0) + header(6, 1, 8, 0) + INDICES,
    "two headers of two kinds": header(6, 1, 8, 6) + header(6, 1, 8, 0) + INDICES,
    "a header behind the pixels": header(6, 1, 8, 0) + INDICES + header(3, 1, 8, 0),
    "a text before the header": chunk(b"tEXt", b"a\0b") + header(6, 1, 8, 0) + INDICES,
    "a long header": chunk(b"IHDR", struct.pack(">IIBBBBB", 6, 1, 8, 0, 0, 0, 0) + b"xx") + INDICES,
    "another compression": header(6, 1, 8, 0, compression=1) + INDICES,
    "an empty pixel chunk first": header(6, 1, 8, 0) + chunk(b"IDAT", b"") + INDICES,
}


def test_odd_chunks_have_pillows_meaning(build, tmp_path):
    expected, lines = b"", []
    for i, body in enumerate(FILES.values()):
        data = SIGNATURE + body + END
        image = Image.open(io.BytesIO(data))
        expected += image.convert("RGB").tobytes()
        (tmp_path / f"{i}.png").write_bytes(data)
        lines.append(f"{tmp_path / f'{i}.png'} {image.width} {image.height} 1\n")
    (tmp_path / "list").write_text("".join(lines))
    assert resize_cases.run_tool(build, tmp_path, "best", 0, 0) == expected
