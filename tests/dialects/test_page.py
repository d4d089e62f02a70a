"""The examples of docs/dialects.md: each record, under its configuration, is shown or refused as the page says."""
import json
import os
import re

import pytest

CONFIG = "model: {model}\ntemplate: qwen3-vl\nbatch: 1\n"
DATA = "data:\n  - path: data.jsonl\n"


def examples(source):
    """(configuration, record, what is said) in the order of the page."""
    blocks = re.findall(r"```(yaml|json|text)\n(.*?)```", (source / "docs/dialects.md").read_text(), re.DOTALL)
    data, record, out = DATA, None, []
    for kind, words in blocks:
        if kind == "yaml":
            data = words
        elif kind == "json":
            record = words
        else:
            out.append((data, record, words))
            data, record = DATA, None
    return out


@pytest.fixture
def folder(source, tmp_path):
    """A data set's folder, with the two pictures that the page names."""
    picture = next((source / "examples/sample/images").rglob("*.jpg"))
    for name in ("cat.jpg", "dog.jpg"):
        (tmp_path / name).write_bytes(picture.read_bytes())
    return tmp_path


def said(stoker, source, folder, data, record):
    """The text of `stoker show`, each picture's pads as one; or the message."""
    (folder / "stoker.yaml").write_text(CONFIG.format(model=source / "examples/sample/model") + data)
    (folder / "data.jsonl").write_text(record)
    done = stoker("show", folder / "stoker.yaml", "data#1" if '"id"' not in record else f"data/{json.loads(record)['id']}", status=None,
                  env={**os.environ, "NO_COLOR": "1"})
    if done.returncode:
        assert "data.jsonl:1: " in done.stderr, done.stderr
        return "error: " + done.stderr.split(": ", 3)[-1]
    text = done.stdout.split("\n\n", 1)[1].split("\nimage 0: ")[0]
    return re.sub(r"(<\|image_pad\|>) x \d+", r"\1", text).rstrip("\n") + "\n"


def test_every_record_of_the_page_is_read_as_it_says(source, stoker, folder):
    pairs = examples(source)
    assert len(pairs) >= 15 and sum(words.startswith("error: ") for _, _, words in pairs) >= 6
    for data, record, words in pairs:
        assert record.count("\n") == 1 and json.loads(record)
        assert said(stoker, source, folder, data, record) == words, record
        for path in folder.glob("data.jsonl.stoker-*"):
            path.unlink()
