"""Field reports (c): text, template, labels."""
import hashlib
import json

import field_texts
import numpy
import pytest
from field_set import BUDGET, chat, encode, gradient, messages, talk

PICTURE = encode(gradient(64, 64))
THREE = talk(("human", "One?"), ("gpt", "1."), ("human", "Two?"), ("gpt", "2."), ("human", "Three?"), ("gpt", "3."))
END = "<|im_end|>\n"


@pytest.fixture(scope="module")
def goldens(source):
    return json.loads((source / "tests/field/goldens.json").read_text(encoding="utf-8"))["texts"]


def one_sample(field, record, files=None, **options):
    (sample,) = field([record], files, **options).samples()
    return sample


def expect_as_reference(field, goldens, start, **options):
    names = [name for name in field_texts.CASES if name.startswith(start)]
    assert names
    for name in names:
        sample = one_sample(field, field_texts.record(name), template=field_texts.CASES[name][0], max_tokens=2_000_000, **options)
        wanted = goldens[name]
        text = field_texts.words(sample.ids, sample.labels != -100)
        assert (sample.tokens, hashlib.sha256(text).hexdigest()[:16]) == (wanted["count"], wanted["digest"]), name


# --- what is trained ---

def test_c01_the_word_assistant_opens_no_span(field):
    record = chat("assistant: false assistant content", "true assistant content")
    assert field.trained(one_sample(field, record)) == ["true assistant content" + END]
    copied = field([record], labels="finetune")
    assert field.trained(copied.samples()[0]) != ["true assistant content" + END]
    assert copied.findings()["assistant_token"] == 1


def test_c09_the_end_of_each_trained_turn_has_a_label(field):
    record = talk(("human", "<image>What?"), ("gpt", "A square."), ("human", "Sure?"), ("gpt", "Yes."), image="a.png")
    sample = one_sample(field, record, {"a.png": PICTURE})
    ends = numpy.flatnonzero(sample.ids == field.tokens.im_end)
    assert (sample.labels[ends] != -100).tolist() == [False, True, False, True]


@pytest.mark.parametrize("labels, answers", [("answers", ["1.", "2.", "3."]), ("last", ["3."])])
def test_c11_the_newline_behind_the_end_is_trained_in_each_turn_alike(field, labels, answers):
    assert field.trained(one_sample(field, THREE, labels=labels)) == [answer + END for answer in answers]
    assert field.trained(one_sample(field, THREE, labels=labels, template="qwen3-vl")) == [answer + END for answer in answers]


def test_c13_a_template_without_generation_marks_trains_the_answers(field, source):
    template = json.loads((source / "examples/sample/model/chat_template.json").read_text())["chat_template"]
    assert "generation" not in template
    one = field([THREE])
    (sample,) = one.samples()
    assert field.trained(sample) == [answer + END for answer in ("1.", "2.", "3.")]
    assert one.index()["supervised_tokens"] == (sample.labels != -100).sum()


def test_c13_records_with_nothing_to_learn_stop_the_run_before_it_starts(field):
    silent = {"conversations": [{"from": "human", "value": "?"}, {"from": "gpt", "value": "!", "train": False}]}
    one = field([silent] * 12 + [THREE] * 20, errors=None)
    assert one.index(status=3)["unusable"]["nothing to learn"]["count"] == 12
    done = one("run", status=3)
    assert "nothing to learn" in done.stderr and "12" in done.stderr and "train.jsonl" in done.stderr and done.stdout == ""


def with_keys(*keys):
    turns = [dict(turn) for turn in THREE["conversations"]]
    for turn, more in zip(turns[1::2], keys):
        turn.update(more)
    return {"conversations": turns}


@pytest.mark.parametrize("record, labels, answers", [
    (THREE, "answers", "123"), (THREE, "last", "3"),
    (with_keys({}, {"loss": 0}, {}), "answers", "13"), (with_keys({}, {"loss": False}, {}), "answers", "13"),
    (with_keys({"train": True}, {}, {"train": False}), "last", "1"), (with_keys({}, {"loss": 1}, {}), "last", "23"),
    ({**THREE, "loss": [1, 0, 0]}, "answers", "1"), ({**THREE, "loss": [0, 0, 0, 1, 0, 1]}, "answers", "23")])
def test_c14_each_turn_is_trained_as_it_says(field, record, labels, answers):
    assert field.trained(one_sample(field, record, labels=labels)) == [f"{answer}.{END}" for answer in answers]


def test_c14_a_weight_list_of_the_wrong_length_is_a_record_error(field):
    one = field([{**THREE, "loss": weights} for weights in ([1, 0], [1, 0, 0, 1], [1, 0, 1, 0, 1, 0, 1])] + [THREE])
    found = one.reasons()["loss weights that do not fit the turns"]
    assert [line for line, _ in found] == [1, 2, 3] and "2 entries in `loss` for 6 turns" in found[0][1]
    one = field([with_keys({}, {"loss": 0.5}, {})])
    assert "0.5" in one.reasons()["loss weights that do not fit the turns"][0][1]


# --- pads, limits ---

@pytest.mark.parametrize("typed", ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>"])
@pytest.mark.parametrize("rule", ["plain", "sanitize", "reference"])
def test_c03_pads_are_as_many_as_features(field, typed, rule):
    record = chat("<image>What?", f"It is {typed} here.", image="a.png")
    one = field([record, chat("?")], {"a.png": PICTURE}, control_tokens=rule, template="qwen3-vl")
    if rule == "reference" and typed != "<|vision_start|>":
        assert [line for line, _ in one.reasons()["typed control tokens do not match the media"]] == [1]
        return
    sample = one.samples()[0]
    assert (sample.ids == field.tokens.image_pad).sum() == sum(t * h * w // 4 for t, h, w in sample.grids) == 4
    assert field.trained(sample) == [f"It is {typed} here.{END}"]
    live = rule == "reference" or (rule == "plain" and typed == "<|vision_start|>")
    assert (field.tokens.added[typed] in sample.ids[sample.labels != -100]) == live
    assert one.findings()["control_tokens_in_answers"] == 1


def long_text(field, tokens):
    """A text of so many tokens."""
    return "\n".join(["7"] * (tokens // 2)) + "7" * (tokens % 2)


def test_c05_no_cut_goes_through_an_image_or_a_text(field):
    files = {"a.png": gradient(576, 640), "b.png": gradient(640, 576)}
    record = chat("<image>" + long_text(field, 390) + "<image>", image=list(files))
    whole = one_sample(field, record, files, **BUDGET)
    assert whole.tokens > 1024 and [h * w // 4 for _, h, w in whole.grids] == [360, 360]
    one = field([record, chat("?"), record], files, **BUDGET, max_tokens=1024)
    assert one.index()["unusable"]["longer than max_tokens"]["count"] == 2
    (short,) = one.samples()
    assert short.line == 2
    at_limit = field([record], files, **BUDGET, max_tokens=whole.tokens)
    (kept,) = at_limit.samples()
    assert kept.tokens == whole.tokens and (kept.ids == field.tokens.image_pad).sum() == 720
    assert field([record], files, **BUDGET, max_tokens=whole.tokens - 1).samples() == []
    refused = field([record, chat("?")], files, **BUDGET, max_tokens=1024, overlong="error")("run", status=2)
    assert "max_tokens" in refused.stderr and "train.jsonl:1" in refused.stderr
    (shrunk,) = field([record], files, **BUDGET, max_tokens=1024, overlong="shrink").samples()
    visual = [h * w // 4 for _, h, w in shrunk.grids]
    assert shrunk.tokens <= 1024 and (shrunk.ids == field.tokens.image_pad).sum() == sum(visual) < 720
    assert shrunk.tokens - sum(visual) == whole.tokens - 720 and sum(visual) > 1024 - (whole.tokens - 720) - 80  # no smaller than it must be


def test_c07_no_batch_is_without_a_trained_token(field):
    one = field([chat(long_text(field, 200), "Yes."), chat("?", "No."), chat(long_text(field, 200), "7")] * 4, max_tokens=64, batch=2)
    report = one.index()
    assert (report["usable"], report["unusable"]["longer than max_tokens"]["count"]) == (4, 8)
    steps = json.loads(one("plan", "--json").stdout)["steps"]
    assert steps == 2
    for step in range(steps):
        fields, about = one.batch(step=step)
        assert ((fields["labels"] != -100).sum(axis=1) > 0).all() and about["loss_tokens"] == (fields["labels"] != -100).sum()


# --- ids of the reference ---

def test_c17_an_answer_with_only_a_closing_think_tag_has_one_block(field, goldens):
    expect_as_reference(field, goldens, "c17-")
    for name in (name for name in field_texts.CASES if name.startswith("c17-")):
        sample = one_sample(field, field_texts.record(name), template=field_texts.CASES[name][0])
        assert field.text(sample) == goldens[name]["rendered"]
        assert field.text(sample).count("</think>") == 1 and field.text(sample).count("<think>") <= 1
    one = field([chat("?"), field_texts.record("c17-qwen3.5"), chat("?", "<think>\nHm.\n</think>\n\nYes.")], template="qwen3.5")
    assert one.findings()["think_closed"] == 1


def test_c18_text_is_joined_first_and_encoded_once(field, goldens):
    expect_as_reference(field, goldens, "c18-")
    parts, text = field_texts.record("c18-parts"), messages(("user", "foo bar"), ("assistant", "ok"))
    first, second = field([parts, text]).samples()
    assert (first.ids == second.ids).all()


def test_c19_text_is_composed_first_but_control_tokens_are_matched_before(field, goldens):
    expect_as_reference(field, goldens, "c19-")
    live = one_sample(field, field_texts.record("c19-control"), template="qwen3-vl", control_tokens="plain")
    assert field.tokens.added["<|box_start|>"] in live.ids


def test_c21_long_text_without_blanks_is_no_trap(field, goldens):
    expect_as_reference(field, goldens, "c21-")
    code, _, err, peak = field([field_texts.record("c21-carets")], template="qwen3-vl", max_tokens=2_000_000).watch("index", "--json")
    assert code == 0, err
    assert peak["whole"] < 256 << 20
