"""stoker.hf.check: silent where Stoker makes what transformers' processor makes, and right about the place and the cause where it does not."""
import io
import json
import shutil
import sys
import tarfile

import pytest
from hf_fixtures import package, sample  # noqa: F401

pytest.importorskip("torch")
pytest.importorskip("transformers")
import stoker.hf  # noqa: E402
from hf_processor import Processor  # noqa: E402

MAX_PIXELS = 200704                                 # as the configuration has it
AS_PATHS = {"profile": "pil-13"}                    # transformers' Pillow processor
AS_OBJECTS = {"profile": "pil-13", "alpha": "white", "orientation": "ignore"}
RECORDS, PICTURES = 45, 47


@pytest.fixture
def processor(sample):
    return Processor(sample.parent / "model", MAX_PIXELS)


@pytest.fixture
def check(sample, processor):
    """``check(...)`` gives the report, after a look at what was printed."""
    def run(n=RECORDS, **more):
        said = io.StringIO()
        report = stoker.hf.check(processor, sample, n=n, file=said, **{"shuffle": False, "eval.batch": 1, "batch": 1, **more})
        assert said.getvalue() == f"{report}\n"
        return report

    return run


def test_there_is_no_difference_under_the_options_of_how_pictures_come(check):
    report = check(images="pil", **AS_OBJECTS)
    assert report and report.differences == [] and (report.samples, report.images) == (RECORDS, PICTURES)
    assert report.notes == ["labels: not compared: the processor's template does not mark answers ({% generation %})"]
    assert str(report).endswith("stoker.hf.check: 45 samples, 47 images: no difference")


def test_transparency_that_transformers_puts_on_white_is_named_with_its_option(check):
    """Its loader drops transparency of every kind, and its processor puts a colour key on white all the same."""
    found, = check(**AS_PATHS).differences
    assert (found.sample, found.line, found.what, found.options) == ("sample/key-1", 25, "pixel_values", {"alpha": "white"})
    assert found.file.endswith("/train.jsonl") and "image 0, patch 0, value 0" in str(found) and "equal with alpha: white" in str(found)


def test_another_profile_is_named(check):
    report = check(6)
    assert not report and {found.what for found in report.differences} == {"pixel_values"}
    assert all(found.options == AS_PATHS for found in report.differences)
    assert "and 4 more of pixel_values, equal with profile: pil-13" in str(report)
    assert str(report).endswith("6 samples, 6 images: 6 samples differ from the processor's")


def test_another_orientation_is_named(check):
    found = check(16, images="pil", **{**AS_OBJECTS, "orientation": "apply"}).differences
    assert found and all(each.options == {"orientation": "ignore"} and each.sample.startswith("sample/exit") for each in found)


def test_other_limits_of_pictures_are_named(check, processor):
    processor.image_processor.size = {"shortest_edge": 16384, "longest_edge": 50176}
    found = check(3, **AS_PATHS).differences
    assert {each.what for each in found} == {"grid"} and all(each.options == {"min_pixels": 16384, "max_pixels": 50176} for each in found)
    assert "patches (t, h, w) here" in str(found[0]) and "equal with min_pixels: 16384, max_pixels: 50176" in str(found[0])


def test_a_planted_picture_is_found(check, sample):
    """The third record's is another one for the processor."""
    def planted(record):
        messages = told(record)
        if record["id"] == "mountains-1":
            messages[0]["content"][0]["image"] = str(sample.parent / "images/wall-422.jpg")
        return messages

    def told(record):
        path = str(sample.parent / record["image"])
        content = [{"type": "image", "image": path}, {"type": "text", "text": record["conversations"][0]["value"].removeprefix("<image>")}]
        if not record["conversations"][0]["value"].startswith("<image>"):
            content = [{"type": "text", "text": record["conversations"][0]["value"].removesuffix("<image>")}, content[0]]
        return [{"role": "user", "content": content}, *({"role": "user" if turn["from"] == "human" else "assistant", "content": turn["value"]}
                                                        for turn in record["conversations"][1:])]

    assert check(5, messages=told, **AS_PATHS)
    found, = check(5, messages=planted, **AS_PATHS).differences
    assert (found.sample, found.line, found.options) == ("sample/mountains-1", 3, None)


def test_another_template_is_shown_where_it_parts(check, processor):
    processor.chat_template = processor.chat_template.replace("turn.role + '\\n'", "turn.role + ':\\n'")
    found = check(2, **AS_PATHS).differences
    assert [each.what for each in found] == ["text", "text"] and "character 16: '<|im_start|>user\\n" in str(found[0]) and "user:" in str(found[0])


def test_another_tokenizer_is_shown_where_it_parts(check, processor):
    processor.tokenizer.add_tokens(["houses"])
    found, _ = check(3, **AS_PATHS).differences
    assert (found.sample, found.what) == ("sample/harbour-1", "input_ids")
    assert "' houses' here" in str(found) and "stand five': the text is the same" in str(found) and "another tokenizer" in str(found)


def test_labels_are_compared_where_the_template_marks_answers(check, processor):
    """The record whose answer is not to be trained is one that no template can know."""
    part = "{{- '<|im_start|>' + turn.role + '\\n' }}"
    marked = processor.chat_template.replace(part, part + "{%- if turn.role == 'assistant' %}{%- generation %}{{- turn.content + '<|im_end|>\\n' }}"
                                             "{%- endgeneration %}{%- continue %}{%- endif %}")
    assert marked != processor.chat_template
    processor.chat_template = marked
    report = check(images="pil", **AS_OBJECTS)
    assert report.notes == [] and {(found.what, found.line) for found in report.differences} == {("labels", 41)}
    assert "is trained by the processor's template alone" in str(report)


def test_what_cannot_be_compared_is_said(check, sample, tmp_path):
    record = {"image": f"tar://a.jpg::{tmp_path}/a.tar", "conversations": [{"from": "human", "value": "<image>What?"}, {"from": "gpt", "value": "A."}]}
    shutil.copy(sample.parent / "images/harbour.jpg", tmp_path / "a.jpg")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "a.jpg", "a.jpg")
    (tmp_path / "tar.jsonl").write_text(json.dumps(record) + "\n")
    report = check(2, data=[{"path": str(tmp_path / "tar.jsonl")}], epochs=2, **AS_PATHS)
    assert report and report.notes == ["samples with tar: not compared"]


def test_the_command_runs_the_checkpoints_own_processor(sample, processor, monkeypatch, capsys):
    import transformers
    asked = []
    monkeypatch.setattr(transformers.AutoProcessor, "from_pretrained", lambda folder: asked.append(folder) or processor)
    text = sample.read_text()
    config = sample.with_name("check.yaml")
    config.write_text(text + "profile: pil-13\nbatch: 1\nshuffle: false\n")
    monkeypatch.setattr(sys, "argv", ["hf", "check", str(config), "--samples", "4"])
    assert stoker.hf.main() == 0 and asked == [str(sample.parent / "model")] and "4 samples, 4 images: no difference" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["hf", "check", str(config), "--samples", "25"])
    assert stoker.hf.main() == 1 and "equal with alpha: white" in capsys.readouterr().out
