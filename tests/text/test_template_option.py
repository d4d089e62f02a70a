"""The option `template`, for the run and for one data set, and what docs/templates.md says of it."""
import json
import re
import shutil

import pytest

RECORD = {"id": "a", "messages": [{"role": "user", "content": "And how many?"},
                                  {"role": "assistant", "content": "<think>\nTwo ears, two cats.\n</think>\n\nTwo."}]}
QUESTION = "<|im_start|>user\nAnd how many?<|im_end|>\n<|im_start|>assistant\n"
WHOLE = "[<think>\nTwo ears, two cats.\n</think>\n\nTwo.<|im_end|>\n]"


@pytest.fixture(scope="module")
def page(source):
    return (source / "docs/templates.md").read_text(encoding="utf-8")


def yaml_blocks(page, begin):
    return [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if block.startswith(begin)]


@pytest.fixture
def folder(source, tmp_path):
    """A model whose own template is none of the published ones, and a manifest."""
    shutil.copytree(source / "examples/sample/model", tmp_path / "model")
    (tmp_path / "train.jsonl").write_text(json.dumps(RECORD) + "\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def shown(stoker, folder):
    """The string of a record of a data set, what is trained in brackets."""
    def run(config, sample, *flags):
        (folder / "stoker.yaml").write_text("model: model\nbatch: 1\n" + config, encoding="utf-8")
        out = stoker("show", folder / "stoker.yaml", sample, *flags).stdout
        return out.split("\n\n", 1)[1].rstrip("\n")

    return run


def test_each_data_set_may_have_a_template_of_its_own(shown, page, stoker, folder):
    turns = yaml_blocks(page, "template:\n")[0]
    inner = "".join("    " + line + "\n" for line in turns.splitlines())
    config = ("template: qwen3-vl\ndata:\n  - {name: run, path: train.jsonl}\n  - {name: old, path: train.jsonl, template: qwen2.5-vl}\n"
              f"  - name: declared\n    path: train.jsonl\n{inner}  - {{name: new, path: train.jsonl, template: qwen3.5}}\n")
    default = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    assert shown(config, "run/a") == QUESTION + WHOLE
    assert shown(config, "old/a") == default + QUESTION + WHOLE
    assert shown(config, "declared/a") == default + QUESTION + WHOLE
    assert shown(config, "new/a") == QUESTION + WHOLE
    assert shown(config, "new/a", "--set", "data.new.template=qwen2.5-vl") == default + QUESTION + WHOLE
    assert shown(config, "run/a", "--template", "qwen2-vl") == default + QUESTION + WHOLE
    # Other templates are other streams; the same one by another way is not.
    digests = [stoker("run", folder / "stoker.yaml", "--digest", *flags).stdout
               for flags in ([], ["--set", "data.run.template=qwen3-vl"], ["--set", "data.run.template=qwen2.5-vl"])]
    assert digests[0] == digests[1] != digests[2]


def test_a_data_set_without_a_known_template_is_named(stoker, folder):
    config = folder / "stoker.yaml"
    config.write_text("model: model\nbatch: 1\ndata:\n  - {name: a, path: train.jsonl, template: qwen3-vl}\n  - {name: b, path: train.jsonl}\n")
    text = stoker("index", config, status=2).stderr
    assert "this chat template is unknown" in text and "chat_template.json" in text and "qwen3-vl-thinking" in text
    config.write_text("model: model\nbatch: 1\ndata:\n  - {path: train.jsonl, template: qwen9}\n")
    assert "qwen9" in stoker("index", config, status=2).stderr


def test_a_thinking_checkpoint_by_name_and_by_turn_format(shown, page, folder):
    """The example of the page: the same string both ways.  What the format cannot do, the name does."""
    record = json.loads(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    (folder / "train.jsonl").write_text(json.dumps({"id": "a", **record}) + "\n", encoding="utf-8")
    data = "data:\n  - {name: s, path: train.jsonl}\n"
    name, turns = yaml_blocks(page, "template: ")[0], yaml_blocks(page, "template:\n")[0]
    turns = re.sub(r"  default_system: .*\n", "", turns)
    assert name == "template: qwen3-vl-thinking\n"
    assert shown(data + name, "s/a") == shown(data + turns, "s/a") == QUESTION + WHOLE
    more = {"id": "a", "messages": [*record["messages"], {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]}
    (folder / "train.jsonl").write_text(json.dumps(more) + "\n", encoding="utf-8")
    end = "<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
    assert shown(data + name, "s/a") == QUESTION + "[Two.<|im_end|>\n]" + end + "[<think>\n\n</think>\n\nYes.<|im_end|>\n]"
    assert shown(data + turns, "s/a") == QUESTION + WHOLE + end + "[Yes.<|im_end|>\n]"


def test_grounding_tokens_are_kept_where_the_page_says(stoker, folder, page):
    """Each row of the page's table, and the list of its example."""
    tokens = re.findall(r"<\|\w+\|>", yaml_blocks(page, "data:\n")[0])
    assert len(tokens) == 6
    words = "".join(tokens)
    added = json.loads((folder / "model/tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
    numbers = {str(token["id"]) for token in added if token["content"] in tokens}
    assert len(numbers) == 6
    record = {"id": "a", "messages": [{"role": "user", "content": words}, {"role": "assistant", "content": words}]}
    (folder / "train.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")

    def live(**rules):
        config = {"model": "model", "batch": 1, "template": "qwen3-vl", "data": [{"name": "s", "path": "train.jsonl", **rules}]}
        (folder / "stoker.yaml").write_text(json.dumps(config))  # JSON is YAML
        report = json.loads(stoker("index", folder / "stoker.yaml", "--json").stdout)
        out = stoker("show", folder / "stoker.yaml", "s/a", "--ids").stdout
        assert report["sets"][0]["usable"] == 1
        return sum(line.split()[1] in numbers for line in re.findall(r"^ +\d+ +\d+ .*", out, re.MULTILINE))

    assert live() == 6
    assert live(control_tokens="sanitize") == 0
    assert live(control_tokens="reference") == 12
    for rule in ("plain", "sanitize"):
        assert live(control_tokens=rule, allow_control_tokens=tokens) == 12


def test_the_page_lists_every_known_text(source, page):
    code = (source / "src/text/template.c").read_text()
    known = re.findall(r'\{"([0-9a-f]{64})", "([a-z0-9.-]+)"\}', code)
    assert len(known) >= 13
    rows, name = [], ""
    for cell, digest in re.findall(r"^\| ([^|]*)\| [^|]*\| `([0-9a-f]{64})` \|$", page, re.MULTILINE):
        name = re.match(r"`([^`]+)`", cell)[1] if cell.strip() else name
        rows.append((digest, name))
    assert sorted(rows) == sorted(known)
