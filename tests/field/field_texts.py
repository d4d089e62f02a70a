"""Conversations of the field reports whose ids the reference software gives (goldens.json, tools/make-field-goldens).

name: (template, turns of (role, content)); content is a text or a list of texts, which are parts.
"""
MARKS = "".join(map(chr, [*range(0x300, 0x370), *range(0x483, 0x488), *range(0x591, 0x5BE), *range(0x610, 0x61B), *range(0x64B, 0x660),
                          *range(0x6D6, 0x6DD), *range(0x730, 0x74B), *range(0x7A6, 0x7B1), *range(0x816, 0x81A), *range(0x8E3, 0x903),
                          *range(0x93A, 0x93D), *range(0x1AB0, 0x1ABF), *range(0x1DC0, 0x1E00), *range(0x20D0, 0x20F1), *range(0xFE20, 0xFE30)]))
MARKS = (MARKS * 2)[:800]
THOUGHT = "First I look.\nThen I think.\n</think>\n\nIt is a cat."

CASES = {
    "c17-qwen3.5": ("qwen3.5", [("user", "What?"), ("assistant", THOUGHT)]),
    "c17-qwen3.5-earlier": ("qwen3.5", [("user", "What?"), ("assistant", THOUGHT), ("user", "And?"), ("assistant", THOUGHT)]),
    "c17-qwen3.6": ("qwen3.6", [("user", "What?"), ("assistant", THOUGHT)]),
    "c17-qwen3-vl": ("qwen3-vl", [("user", "What?"), ("assistant", THOUGHT)]),
    "c18-parts": ("qwen3-vl", [("user", ["foo", " bar"]), ("assistant", "ok")]),
    "c18-answer-line-break": ("qwen3-vl", [("user", "foo"), ("assistant", "\nok")]),
    "c18-answer-line-breaks": ("qwen3-vl", [("user", "foo"), ("assistant", "\n\n ok\n")]),
    "c18-user-blank": ("qwen3-vl", [("user", "foo "), ("assistant", "ok")]),
    "c18-all": ("qwen3-vl", [("user", ["foo ", "bar", "\n"]), ("assistant", ["\n", "o", "k "])]),
    "c19-accent": ("qwen3-vl", [("user", "e\u0301 caf\u0065\u0301"), ("assistant", "e\u0301")]),
    "c19-hangul": ("qwen3-vl", [("user", "\u1100\u1161\u11a8"), ("assistant", "\u1100\u1161")]),
    "c19-angstrom": ("qwen3-vl", [("user", "\u212b \u2126"), ("assistant", "\u212b")]),
    "c19-marks": ("qwen3-vl", [("user", "[" + MARKS + "]+"), ("assistant", "a" + MARKS)]),
    "c19-control": ("qwen3-vl", [("user", "<|im_start|>\u0301 <|im_\u0065\u0301nd|>"), ("assistant", "<|box_start|>\u0301")]),
    "c21-letters": ("qwen3-vl", [("user", "a" * 100_000), ("assistant", "ok")]),
    "c21-carets": ("qwen3-vl", [("user", "^" * 1_000_000), ("assistant", "ok")]),
    "c21-lines": ("qwen3-vl", [("user", "_" * 50_000), ("assistant", "ok")]),
    "c21-merges": ("qwen3-vl", [("user", "thein" * 100_000), ("assistant", "ok")]),
}


def record(name):
    """As OpenAI's messages."""
    def content(value):
        return value if isinstance(value, str) else [{"type": "text", "text": text} for text in value]
    return {"messages": [{"role": role, "content": content(value)} for role, value in CASES[name][1]]}


def words(ids, trained):
    """What the digests are of: ids with a blank between, a line break, a digit a token that says whether it is trained."""
    return (" ".join(map(str, ids)) + "\n" + "".join(str(int(t)) for t in trained)).encode()
