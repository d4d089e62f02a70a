"""What `stoker index` ends with: each line from a data set made for it, with the right number, place and advice.

Field reports: A19, B18, B20, B30, C07, C13, C17, F21 (their ids stand with the tests)."""
import io
import json
import os
import zlib

import pytest
from PIL import Image

TURNS = {
    "system": {"before": "<|im_start|>system\n", "after": "<|im_end|>\n"},
    "user": {"before": "<|im_start|>user\n", "after": "<|im_end|>\n"},
    "assistant": {"before": "<|im_start|>assistant\n", "after": "<|im_end|>\n", "train": ["text", "<|im_end|>\n"]},
    "tool": {"before": "<|im_start|>tool\n", "after": "<|im_end|>\n"},
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
}


def messages(*turns, **more):
    return {**more, "messages": [{"role": role, "content": text} for role, text in turns]}


def ask(user="What?", answer="This.", **more):
    return messages(("user", user), ("assistant", answer), **more)


def picture(image, form="PNG", **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def plain(colour=0, size=(64, 64)):
    return picture(Image.new("RGB", size, (colour, 10, 200)))


class Set:
    def __init__(self, stoker, folder, model):
        self.stoker, self.folder, self.model, self.config = stoker, folder, model, folder / "stoker.yaml"

    def write(self, records, files=(), name="docs.jsonl", data=(), **options):
        (self.folder / name).write_text("".join(json.dumps(r) + "\n" for r in records))
        for path, content in dict(files).items():
            (self.folder / path).write_bytes(content)
        self.config.write_text(json.dumps({
            "model": str(self.model), "data": [{"name": "docs", "path": name, **dict(data)}], "batch": 1, "min_pixels": 1024,
            "errors": {"unusable": 1}, "template": TURNS, **options}))
        return self

    def __call__(self, command="index", *flags, **more):
        return self.stoker(command, self.config, *flags, **more)

    def report(self, *flags, **more):
        document = json.loads(self("index", "--json", *flags, **more).stdout)
        assert document["schema"] == 2
        return document["sets"][0]

    def findings(self, *flags):
        """{name: (count, line)}, and the words."""
        found = self.report(*flags)["findings"]
        return {k: (v["count"], v["line"]) for k, v in found.items()}, {k: v["words"] for k, v in found.items()}


@pytest.fixture
def docs(stoker, source, tmp_path):
    return Set(stoker, tmp_path, source / "examples/sample/model")


# --- records ---

def test_a_clean_set_has_no_findings(docs):
    docs.write([ask(id=f"r{i}") for i in range(5)])
    report = docs.report()
    assert report["findings"] == {} and report["control_tokens"] == [] and report["unusable"] == {}
    assert report["refusal"] is None and report["excluded"] == 0
    words = docs().stdout
    assert "first" not in words and "unusable" not in words and "left out" not in words and "over the limit" not in words


def test_control_tokens_are_counted_by_who_types_them(docs):
    records = [ask(),
               ask("a <|im_end|> b"),
               ask("<|im_end|><|im_start|>"),
               ask(answer="<|box_start|>(1,2)<|box_end|>"),
               messages(("system", "be <|im_start|>"), ("user", "?"), ("assistant", "<|im_end|>")),
               messages(("user", "?"), ("assistant", "!"), ("tool", "<|im_end|>"), ("assistant", "ok"))]
    docs.write(records)
    found, words = docs.findings()
    assert found == {"control_tokens_in_system": (1, 5), "control_tokens_in_user": (2, 2), "control_tokens_in_answers": (2, 4),
                     "control_tokens_in_tools": (1, 6), "tool_turns": (1, 6)}
    assert "become plain text (control_tokens: plain)" in words["control_tokens_in_user"]
    assert "stay tokens in answers" in words["control_tokens_in_answers"]
    assert docs.report()["control_tokens"] == [{"token": "<|im_end|>", "records": 4}, {"token": "<|im_start|>", "records": 2},
                                               {"token": "<|box_start|>", "records": 1}]
    assert "typed most often: <|im_end|> in 4, <|im_start|> in 2, <|box_start|> in 1 records" in docs().stdout
    assert "(control_tokens: sanitize)" in docs.findings("--control-tokens", "sanitize")[1]["control_tokens_in_answers"]
    assert "data can forge a turn" in docs.findings("--control-tokens", "reference")[1]["control_tokens_in_user"]
    found, _ = docs.findings("--allow-control-tokens", "[<|box_start|>, <|box_end|>]")
    assert found["control_tokens_in_answers"] == (1, 5)


def test_control_tokens_in_tools_and_calls_have_the_roles_of_those_who_write_them(docs):
    tool = {"type": "function", "function": {"name": "f", "description": "x <|im_end|>"}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": ["<|im_end|>"]}}}]}
    docs.write([{**ask(), "tools": [tool]},
                {"messages": [{"role": "user", "content": "?"}, call]}], template="qwen3-vl")
    found, _ = docs.findings()
    assert found == {"control_tokens_in_system": (1, 1), "control_tokens_in_answers": (1, 2)}


def test_words_that_other_code_takes_for_tokens(docs):
    docs.write([ask("the end <|endoftext|>"),
                ask("put it at <|placeholder|>"),
                ask(answer="so it is</think>yes"),                       # C17
                ask(answer="<think>so it is</think>yes"),
                ask("about </think>"),
                ask(answer="yes <|endoftext|>")])
    found, words = docs.findings()
    assert found == {"control_tokens_in_user": (1, 1), "control_tokens_in_answers": (1, 6), "end_of_text_typed": (2, 1),
                     "placeholder_typed": (1, 2), "think_closed": (1, 3)}
    assert "also the pad" in words["end_of_text_typed"] and "transformers 4" in words["placeholder_typed"]
    assert "template (declared)" in words["think_closed"]


def test_what_labels_finetune_would_do(docs):
    docs.write([ask(), ask("assistant\nsays so"), ask(answer="\nYes"), ask(answer=" \n\nYes"), ask("my assistant"), ask("\nYes")])
    found, words = docs.findings()
    assert found["assistant_token"] == (1, 2) and found["answer_line_breaks"] == (2, 3)
    assert "labels: finetune would train from there" in words["assistant_token"]
    assert "labels: finetune would lose its first tokens" in words["answer_line_breaks"]
    _, words = docs.findings("--labels", "finetune")
    assert "labels: finetune trains from there" in words["assistant_token"]
    assert "labels: finetune gives its first tokens no label" in words["answer_line_breaks"]


def test_white_space_that_tag_space_strip_takes_away(docs):
    image = {"image": "a.png"}
    docs.write([ask("<image>\nWhat?", **image), ask("<image>What?", **image), ask("What? ", id="x"), ask("\u00a0What?"),
                ask("What?", " spaced "), ask("Is  it?")], {"a.png": plain()})
    for flags, words_of in ([], "would take it away"), (["--tag-space", "strip"], "is taken away"):
        found, words = docs.findings(*flags)
        assert found["white_space_at_tags"] == (3, 1)
        assert words_of in words["white_space_at_tags"]


def test_turns_and_ids(docs):
    docs.write([ask(id="a"), ask(id="a"), ask(id="a"), ask(id="b"),
                messages(("user", "?"), ("assistant", "!"), ("system", "late"), ("user", "?"), ("assistant", "!")),
                messages(("user", "?"), ("assistant", "!"), ("user", "and?"))])
    found, words = docs.findings()
    assert found == {"ids_repeated": (2, 2), "later_system_turns": (1, 5), "no_final_answer": (1, 6)}
    assert "SET#LINE" in words["ids_repeated"] and "declared" in words["later_system_turns"]
    assert "leaves it out" in docs.findings("--template", "qwen3-vl")[1]["later_system_turns"]


def test_lone_surrogates_and_image_details(docs):
    part = {"type": "image_url", "image_url": {"url": "a.png", "detail": "low"}}
    (docs.folder / "a.png").write_bytes(plain())
    docs.write([ask("half \ud83d character"), messages(("user", [part]), ("assistant", "Yes."))])
    assert docs.findings()[0] == {"lone_surrogates": (1, 1), "detail_ignored": (1, 2)}


def test_media_without_tags_in_ms_swift(docs):
    docs.write([ask(), ask("What?", images=["a.png"]), ask("<image>What?", images=["a.png"])], {"a.png": plain()}, data={"format": "ms-swift"})
    found, words = docs.findings()
    assert found == {"tags_added": (1, 2), "address_repeated": (1, 3)} and "as ms-swift does" in words["tags_added"]


# --- images ---

def test_kinds_of_pictures_and_what_the_options_make_of_them(docs):
    """B18, B20, B30."""
    exif = Image.Exif()
    exif[0x0112] = 6
    palette = Image.new("P", (64, 64))
    palette.putpalette([0, 0, 0, 255, 0, 0])
    frames = [Image.new("L", (64, 64), i) for i in range(3)]
    files = {
        "rgba.png": picture(Image.new("RGBA", (64, 64), (1, 2, 3, 100))),
        "palette.png": picture(palette, transparency=bytes([0, 128])),
        "key.png": picture(Image.new("RGB", (64, 64), (9, 9, 9)), transparency=(9, 9, 9)),
        "grey16.png": picture(Image.new("I;16", (64, 64), 40000)),
        "turned.jpg": picture(Image.new("RGB", (64, 96), (1, 2, 3)), "JPEG", exif=exif),
        "cmyk.jpg": picture(Image.new("CMYK", (64, 64), (1, 2, 3, 4)), "JPEG"),
        "frames.png": picture(frames[0], save_all=True, append_images=frames[1:]),
        "plain.png": plain(),
        "frames.gif": picture(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "cmyk.tif": picture(Image.new("CMYK", (64, 64), (1, 2, 3, 4)), "TIFF"),
    }
    docs.write([ask("<image>?", image=name) for name in files], files)
    found, words = docs.findings()
    assert found == {"transparent": (3, 1), "grey_16_bit": (1, 4), "turned": (1, 5), "cmyk": (2, 6), "animated": (2, 7)}
    assert "almost white under this reference" in words["grey_16_bit"] and "convert them to 8 bits" in words["grey_16_bit"]
    assert "is dropped" in words["transparent"] and "first picture" in words["animated"] and "turned upright" in words["turned"]
    assert "almost white under this reference" in docs().stdout
    assert "blended on white (alpha: white)" in docs.findings("--alpha", "white")[1]["transparent"]
    assert "stay as they are stored" in docs.findings("--orientation", "ignore")[1]["turned"]
    words = docs.findings("--profile", "qwen-vl-utils")[1]
    assert "RGBA pictures is blended on white" in words["transparent"] and "is ignored" in words["turned"]


def test_broken_parts_beside_the_pixels(docs):
    """Field reports B04 and B16: they cost nothing but themselves, and are counted."""
    jpeg, png = picture(Image.new("RGB", (64, 64)), "JPEG"), plain()
    exif = b"Exif\0\0" + b"II*\0\x08\0\0\0\x05\0"
    doubled = b"Exif\0\0Exif\0\0" + b"II*\0\x08\0\0\0\0\0"
    text = b"tEXt" + b"Comment\0words"

    def with_exif(block):
        return jpeg[:2] + b"\xff\xe1" + (len(block) + 2).to_bytes(2, "big") + block + jpeg[2:]

    def with_chunk(chunk, check):
        return png[:33] + (len(chunk) - 4).to_bytes(4, "big") + chunk + check.to_bytes(4, "big") + png[33:]

    files = {
        "exif-cut.jpg": with_exif(exif),
        "exif-doubled.jpg": with_exif(doubled),
        "text-sum.png": with_chunk(text, zlib.crc32(text) ^ 1),
        "text-good.png": with_chunk(text, zlib.crc32(text)),
        "exif-good.jpg": with_exif(b"Exif\0\0II*\0\x08\0\0\0\0\0"),
    }
    docs.write([ask("<image>?", image=name) for name in files], files)
    found, words = docs.findings()
    assert found == {"parts_skipped": (3, 1)} and "the pixels are whole" in words["parts_skipped"]


def test_media_used_twice(docs):
    tail = plain(7) + b"another end"
    files = {"a.png": plain(1), "copy-of-a.png": plain(1), "b.png": plain(2), "c.png": plain(7), "c-longer.png": tail}
    names = ["a.png", "b.png", "a.png", "copy-of-a.png", "copy-of-a.png", "c.png", "c-longer.png"]
    docs.write([ask("<image>?", image=n) for n in names] + [ask("<image><image>?", images=["b.png", "./b.png"])], files)
    for flags in [], ["--index", "verify"]:
        assert docs.findings(*flags)[0] == {"address_repeated": (4, 3), "content_repeated": (1, 4)}


def test_pictures_of_several_files_are_compared_with_each_other(docs):
    (docs.folder / "one.jsonl").write_text(json.dumps(ask("<image>?", image="a.png", id="x")) + "\n")
    docs.write([ask("<image>?", image="a.png", id="x"), ask("<image>?", image="b.png")], {"a.png": plain(), "b.png": plain()},
               data={"path": ["one.jsonl", "docs.jsonl"]})
    report = docs.report()
    assert {k: (v["count"], v["line"], os.path.basename(v["file"])) for k, v in report["findings"].items()} == {
        "ids_repeated": (1, 1, "docs.jsonl"), "address_repeated": (1, 1, "docs.jsonl"), "content_repeated": (1, 2, "docs.jsonl")}


def test_stated_sizes_and_large_pictures(docs):
    stated = {"path": "a.png", "width": 64, "height": 64}
    large = [picture(Image.effect_noise((400, 400), 90 + i).convert("RGB"), "PNG") for i in range(2)]
    assert all(len(data) > 65536 for data in large)
    docs.write([ask("<image>?", images=[stated])] + [ask("<image>?", image=f"{i}.png") for i in range(3)],
               {"a.png": plain(), "0.png": large[0], "1.png": large[1], "2.png": large[0]})
    found, words = docs.findings()
    assert found == {"size_stated": (1, 1), "content_repeated": (1, 4)} and "--index verify" in words["size_stated"]
    assert docs.findings("--index", "verify")[0] == {"content_repeated": (1, 4)}


# --- lengths and usability ---

def test_over_long_records_with_the_longest_and_the_limit(docs):
    """C07: what the limit cuts is left out before any batch is planned."""
    docs.write([ask(), ask("word " * 100), ask("word " * 300), ask("word " * 200)], max_tokens=120)
    report = docs.report()
    assert report["usable"] + report["unusable"]["longer than max_tokens"]["count"] == 4
    assert report["longest"]["line"] == 3 and report["longest"]["tokens"] > 300 and report["max_tokens"] == 120
    assert [e["line"] for e in report["unusable"]["longer than max_tokens"]["examples"]][-2:] == [3, 4]
    words = docs().stdout
    assert "over the limit of 120: left out (overlong: drop)" in words
    assert "a run refuses them (overlong: error)" in docs("index", "--overlong", "error").stdout
    assert report["refusal"] is None                                    # a choice of the run, with an option of its own


def test_nothing_to_learn_is_unusable_and_stops_a_run(docs):
    """C13."""
    record = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!", "train": False}]}
    docs.write([record] * 12 + [ask()], errors={"unusable": 0.5})
    done = docs("run", status=3)
    assert "12 of 13 records are unusable" in done.stderr and "nothing to learn; is labels right?" in done.stderr


def test_unusable_records_have_up_to_three_examples_with_file_and_line(docs):
    """F21: the others move up, none is replaced."""
    docs.write([ask("<image>?", image=f"lost-{i}.png") for i in range(5)] + [ask()])
    report = docs.report()
    assert report["unusable"]["media missing"]["count"] == 5 and report["usable"] == 1
    words = docs().stdout
    for i in range(3):
        assert f"docs.jsonl:{i + 1}: image 1, {docs.folder}/lost-{i}.png: the file does not exist" in words
    assert "lost-3.png" not in words


# --- the budget ---

def one_line(text):
    assert text.startswith("stoker: ") and text.count("\n") == 1, text
    return text


def test_a_wrong_media_root_stops_the_run_before_it_starts_in_one_line(docs):
    """A19: the message shows the path as it was resolved."""
    docs.write([ask("<image>?", image=f"pictures/{i}.png") for i in range(40)], data={"media_root": "wrong"}, errors={})
    for command in "run", "plan":
        line = one_line(docs(command, status=3).stderr)
        assert "docs: 40 of 40 records are unusable (100 %, errors.unusable is 1 %): media missing, first " in line
        # The end of a long path.
        assert "/wrong/pictures/0.png; is media_root right? it is " in line and line.endswith("/wrong\n")
        assert f"{docs.folder}/wrong"[-50:] in line
        assert line.startswith(f"stoker: {docs.folder}/docs.jsonl:1: ")
    done = docs("index", status=3)
    assert "40 of 40 records" in one_line(done.stderr) and "unusable                     40   media missing" in done.stdout
    done = docs("index", "--json", status=3)
    assert one_line(done.stderr) == f"stoker: {json.loads(done.stdout)['sets'][0]['refusal']}\n"
    docs("index", "--set", "errors.unusable=1")


@pytest.mark.parametrize("records, data, words", [
    ([{"dialog": []}] * 12, {}, "not a known form of record; set the data set's format, or its columns; first: no `conversations`"),
    ([ask("<image>?", picture="a.png")] * 12, {}, "tags and media do not match; do columns name the key of the media?"),
    ([messages(("martian", "?"), ("assistant", "!"))] * 12, {}, "a role without a mapping; set the data set's roles"),
    ([ask("<image>?", image="/etc/a.png")] * 12, {}, "or name the folder in allow"),
    ([ask("<image>?", image="a.png")] * 7 + [{"dialog": []}] * 6, {}, "a.png; is media_root right?"),
    ([ask("<image>?", image="a.png")] * 5 + [{"dialog": []}] * 4 + [ask("<image>?")] * 4, {}, "a.png; `stoker index` lists"),
    ([ask("<image>?", image="\u00e9" * 120 + ".png")] * 12, {"media_root": "\u00e9" * 100}, "..."),
])
def test_the_message_fits_what_is_wrong(docs, records, data, words):
    docs.write(records + [ask()], data=data, errors={})
    line = one_line(docs("run", status=3).stderr)
    assert words in line and f"docs: {len(records)} of {len(records) + 1} records" in line


def test_a_few_bad_records_stop_nothing(docs):
    docs.write([ask("<image>?", image="lost.png")] * 10 + [ask()] * 2, errors={})
    docs("run")
    docs("index")


# --- leaving records out ---

def listed(docs, *lines, name="list"):
    path = docs.folder / name
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def fingerprint(docs):
    return json.loads(docs("plan", "--json").stdout)["fingerprint"]


def test_excluded_records_stay_out_until_all_are_taken_back(docs):
    docs.write([ask(id="a"), ask(id="b"), ask(), ask("<image>?", image="lost.png", id="d"), ask(id="tab\there")])
    before = fingerprint(docs)
    report = docs.report("--exclude", listed(docs, "docs/b", "", "  docs#3\r", "docs/d"))
    assert report["excluded"] == 3 and report["usable"] == 2 and report["unusable"] == {}
    assert json.loads(docs("plan", "--json").stdout)["epoch_rows"] == 2 and fingerprint(docs) != before
    text = (docs.folder / "docs.jsonl.stoker-excluded").read_text().splitlines()
    assert text[0] == "stoker-excluded 1" and text[2:] == ["record 1 line 2 docs/b", "record 2 line 3 docs#3", "record 3 line 4 docs/d", "end"]
    words = docs().stdout
    assert "left out by a list            3" in words and "docs.jsonl:2: docs/b" in words and "lost.png" not in words
    assert "left out by a list" in docs("show", "docs/b", status=None).stderr
    docs("index", "--max-pixels", "4096", "--labels", "last")            # other options, the same list
    assert docs.report("--labels", "last")["excluded"] == 3

    again = docs.report("--exclude", listed(docs, "docs/tab\\there"), "--exclude", listed(docs, "docs/b", name="other"))
    assert again["excluded"] == 4 and again["usable"] == 1
    replaced = docs.report("--include-all", "--exclude", listed(docs, "docs/a"))
    assert replaced["excluded"] == 1 and replaced["usable"] == 3
    assert docs.report("--include-all")["excluded"] == 0 and fingerprint(docs) == before
    assert not (docs.folder / "docs.jsonl.stoker-excluded").exists()


@pytest.mark.parametrize("line, words", [
    ("docs/nope", 'list:2: "docs/nope" names no record'),
    ("docs#99", '"docs#99" names no record'),
    ("docs#", "names no record"),
    ("other/a", '"other/a" names no record'),
    ("", None),
    ('{"line": 3}', "list:2: an object without `id`"),
    ('{"id": ', "list:2: not valid JSON"),
])
def test_a_line_that_names_no_record_is_an_error_and_leaves_nothing_out(docs, line, words):
    docs.write([ask(id="a"), ask(id="b")])
    path = listed(docs, "docs/a", line)
    if words is None:
        assert docs.report("--exclude", path)["excluded"] == 1
        return
    done = docs("index", "--exclude", path, status=2)
    assert words in done.stderr and done.stdout == ""
    assert docs.report()["excluded"] == 0


def test_a_list_that_is_not_there_is_named(docs):
    docs.write([ask()])
    assert "no-such-list" in docs("index", "--exclude", "no-such-list", status=None).stderr


def test_dead_letters_of_a_run_are_a_list(docs):
    """A picture that breaks after the index was made is masked, named in the dead letters, and left out for good."""
    noise = picture(Image.effect_noise((300, 300), 90).convert("RGB"))
    docs.write([ask("<image>?", image=f"{i}.png", **({"id": i} if i % 2 else {})) for i in range(6)], {f"{i}.png": noise for i in range(6)},
               dead_letter="dead.jsonl")
    docs("index")
    for i in (2, 3):
        data = bytearray(noise)
        data[2000:-2000] = bytes(len(data) - 4000)                       # the header stays
        (docs.folder / f"{i}.png").write_bytes(data)
    masked = json.loads(docs("run", "--json").stdout)["failures"]
    assert masked["masked"] == 2
    letters = [json.loads(line) for line in (docs.folder / "dead.jsonl").read_text().splitlines()]
    assert sorted(letter["id"] for letter in letters) == ["docs#3", "docs/3"]
    report = docs.report("--exclude", docs.folder / "dead.jsonl")
    assert report["excluded"] == 2 and report["usable"] == 4
    assert json.loads(docs("run", "--json").stdout)["failures"]["masked"] == 0


def test_ids_that_are_lines_take_their_file_from_the_dead_letter(docs):
    (docs.folder / "one.jsonl").write_text((json.dumps(ask()) + "\n") * 3)
    docs.write([ask()] * 3, data={"path": ["one.jsonl", "docs.jsonl"]})
    assert '"docs#2" names 2 records' in docs("index", "--exclude", listed(docs, "docs#2"), status=2).stderr
    letter = {"id": "docs#2", "set": "docs", "file": "/elsewhere/one.jsonl", "line": 2}
    report = docs.report("--exclude", listed(docs, letter))
    assert report["excluded"] == 1
    assert (docs.folder / "one.jsonl.stoker-excluded").exists() and not (docs.folder / "docs.jsonl.stoker-excluded").exists()
    report = docs.report("--exclude", listed(docs, {**letter, "file": str(docs.folder / "docs.jsonl"), "id": "docs#3"}))
    assert report["excluded"] == 2 and (docs.folder / "docs.jsonl.stoker-excluded").read_text().splitlines()[2] == "record 2 line 3 docs#3"


def test_what_is_left_out_does_not_count_against_the_budget(docs):
    lost = [ask("<image>?", image="lost.png", id=f"lost{i}") for i in range(11)]
    docs.write(lost + [ask(id=f"r{i}") for i in range(20)], errors={})
    docs("run", status=3)
    report = docs.report("--exclude", listed(docs, *(f"docs/lost{i}" for i in range(11))))
    assert report["refusal"] is None and report["excluded"] == 11
    docs("run")


def test_a_list_of_another_state_of_the_manifest_is_refused_not_forgotten(docs):
    docs.write([ask(id="a"), ask(id="b")])
    docs.report("--exclude", listed(docs, "docs/a"))
    with open(docs.folder / "docs.jsonl", "a") as file:
        file.write(json.dumps(ask(id="c")) + "\n")
    for command in "index", "run", "plan":
        stderr = docs(command, status=1).stderr
        assert "docs.jsonl.stoker-excluded" in stderr and "another state of its manifest" in stderr and "--include-all" in stderr
    assert "another state" in docs("index", "--exclude", listed(docs, "docs/a"), status=1).stderr
    assert docs.report("--include-all", "--exclude", listed(docs, "docs/a"))["excluded"] == 1


@pytest.mark.parametrize("damage", [b"end\n", b"record 0", b"docs/a", b"stoker-excluded 1\n"])
def test_a_damaged_list_is_refused(docs, damage):
    docs.write([ask(id="a"), ask(id="b")])
    docs.report("--exclude", listed(docs, "docs/a"))
    path = docs.folder / "docs.jsonl.stoker-excluded"
    path.write_bytes(path.read_bytes().replace(damage, b""))
    assert "docs.jsonl.stoker-excluded" in docs("index", status=1).stderr
    assert docs.report("--include-all")["excluded"] == 0


def test_lists_lie_in_index_dir_and_are_of_their_set(docs):
    (docs.folder / "two.jsonl").write_text(json.dumps(ask(id="a")) + "\n")
    docs.write([ask(id="a"), ask(id="b")])
    options = json.loads(docs.config.read_text())
    options["data"].append({"name": "two", "path": "two.jsonl"})
    options["index_dir"] = "facts"
    docs.config.write_text(json.dumps(options))
    sets = json.loads(docs("index", "--json", "--exclude", listed(docs, "two/a")).stdout)["sets"]
    assert [s["excluded"] for s in sets] == [0, 1]
    lists = [p.name for p in (docs.folder / "facts").iterdir() if p.name.endswith(".stoker-excluded")]
    assert len(lists) == 1 and lists[0].startswith("two.jsonl-")
    assert not list(docs.folder.glob("*.stoker-*"))


def test_a_state_notices_that_records_were_left_out(docs):
    docs.write([ask(id=f"r{i}") for i in range(6)])
    state = docs.folder / "state"
    docs("run", "--steps", "2", "--state", state)
    docs.report("--exclude", listed(docs, "docs/r5"))
    done = docs("run", "--resume", state, status=2)
    assert "its data differs" in done.stderr or "another stream" in done.stderr
