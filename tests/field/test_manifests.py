"""Field reports (a): faults of manifests."""
import io
import tarfile

import numpy
import pytest
from field_set import chat, data_uri, encode, gradient, lines, messages, same, talk

PICTURE = encode(gradient(32, 64))
BOM = b"\xef\xbb\xbf"


def ids_of(samples):
    return [sample.id for sample in samples]


# --- bytes and lines ---

ROWS = [{**chat("One?", "1"), "id": "a"}, {"key": [1], **chat("Two?", "2")}, {"extra": {"x": None}, **messages(("user", "3"), ("assistant", "4"))}]


def test_a01_a_byte_order_mark_changes_nothing(field):
    array = b"[" + b",".join(lines(ROWS).splitlines()) + b"]"
    for manifest in (lines(ROWS), array):
        plain, marked = field(manifest).samples(), field(BOM + manifest).samples()
        assert same(plain, marked) and len(plain) == 3


@pytest.mark.parametrize("manifest, line", [(BOM + BOM + lines(ROWS), 1), (lines(ROWS[:1]) + BOM + lines(ROWS[1:]), 2)])
def test_a01_a_byte_order_mark_elsewhere_is_a_record_error(field, manifest, line):
    one = field(manifest)
    assert [at for at, _ in one.reasons()["not valid JSON"]] == [line] and len(one.samples()) == 2


def test_a03_the_last_line_of_a_file_needs_no_line_end(field):
    files = {name: lines([{"id": f"{name[0]}{i}", **chat("?", "!")} for i in range(3)]).rstrip(b"\n") for name in ("b.jsonl", "a.jsonl")}
    one = field(manifests=files)
    assert one.index()["records"] == 6
    assert [name.split("/")[1] for name in ids_of(one.samples())] == ["b0", "b1", "b2", "a0", "a1", "a2"]


def test_a04_blank_lines_are_skipped_counted_and_numbered(field):
    row = lines([chat("?", "!")])
    one = field(row + b"\n" + row + b"  \n" + row + b"\t\r\n" + b"{broken\n" + row)
    report = one.index()
    assert (report["records"], report["usable"], report["blank_lines"]) == (5, 4, 3)
    assert [at for at, _ in one.reasons()["not valid JSON"]] == [7]
    assert [sample.line for sample in one.samples()] == [1, 3, 5, 8]


# --- forms ---

def test_a07_a_missing_comma_in_an_array_refuses_to_start(field):
    rows = lines(ROWS).splitlines()
    one = field(b"[\n" + rows[0] + b",\n" + rows[1] + b"\n  " + rows[2] + b"\n]\n", name="train.json")
    offset = 2 + len(rows[0]) + 2 + len(rows[1]) + 1 + 2
    for command in ("index", "run"):
        done = one(command, status=None)
        assert done.returncode in (1, 2) and done.stdout == ""
        assert f"line 4, column 3, offset {offset}: a comma is missing" in done.stderr


def test_a07_the_first_byte_tells_the_form_and_not_the_name(field):
    rows = lines(ROWS)
    array = b" \t[" + b",\n".join(rows.splitlines()) + b"\r\n]\n"
    expected = field(rows).samples()
    assert len(expected) == 3
    assert same(field(rows, name="train.json").samples(), expected)
    assert same(field(array, name="train.jsonl").samples(), expected)


def test_a08_a_null_key_is_an_absent_key(field):
    part = {"type": "text", "text": "hi"}
    rows = [messages(("user", content), ("assistant", "yes")) for content in ("hi", [part], [{**part, "image": None, "video": None}])]
    first, second, third = field(rows + [{**rows[0], "images": None, "videos": None}]).samples()[:3]
    assert (first.ids == second.ids).all() and (second.ids == third.ids).all() and not third.grids
    image = {"type": "image", "image": data_uri(PICTURE), "text": None, "video": None}
    (sample,) = field([messages(("user", [image, part]), ("assistant", "yes"))]).samples()
    assert len(sample.grids) == 1


# --- tags and media ---

@pytest.mark.parametrize("dialect", ["llava", "sharegpt", "ms-swift"])
@pytest.mark.parametrize("images, turns", [(1, ["<image>", "<image>"]), (5, ["<image>" * 5] * 4)])
def test_a10_more_placeholders_than_media_are_a_record_error_with_both_counts(field, images, turns, dialect):
    faulty = talk(*[turn for text in turns for turn in (("human", text), ("gpt", "?"))], images=["a.png"] * images)
    one = field([chat("?"), faulty, chat("!")], {"a.png": PICTURE}, data={"format": dialect})
    tags = sum(text.count("<image>") for text in turns)
    ((line, message),) = one.reasons()["tags and media do not match"]
    assert line == 2 and f"{tags} <image> tags and {images} image" in message
    assert [sample.line for sample in one.samples()] == [1, 3] and one.index()["images"] == 0


def test_a12_a_text_is_one_path(field):
    rows = [chat("<image>?", image="dir/x.jpg"), chat("<image>?", images="dir/x.jpg"), chat("<image>?", image=["dir/x.jpg"])]
    samples = field(rows, {"dir/x.jpg": PICTURE}).samples()
    assert len(samples) == 3 and all(len(s.grids) == 1 and (s.pictures[0] == gradient(32, 64)).all() for s in samples)


# --- turns ---

def test_a14_two_turns_of_one_role_in_a_row_are_rendered_as_given(field):
    orders = ["uua", "uauu", "aua", "suasua", "u", "su"]
    names = {"s": "system", "u": "user", "a": "assistant"}
    rows = [messages(*[(names[c], f"{c}{i}") for i, c in enumerate(order)]) for order in orders]
    one = field(rows)
    for order, sample in zip(orders[:4], one.samples(), strict=True):
        text = "".join(f"<|im_start|>{names[c]}\n{c}{i}<|im_end|>\n" for i, c in enumerate(order))
        assert field.text(sample) == text
        assert field.trained(sample) == [f"a{i}<|im_end|>\n" for i, c in enumerate(order) if c == "a"]
    assert one.findings()["no_final_answer"] == 1
    assert [at for at, _ in one.reasons()["no assistant turn"]] == [5, 6]


def test_a14_the_published_template_takes_them_too(field):
    rows = [messages(("user", "1"), ("user", "2"), ("assistant", "3")), messages(("assistant", "1"), ("user", "2"), ("assistant", "3"))]
    for sample, roles in zip(field(rows, template="qwen3-vl").samples(), (["user", "user", "assistant"], ["assistant", "user", "assistant"])):
        assert field.text(sample) == "".join(f"<|im_start|>{role}\n{i + 1}<|im_end|>\n" for i, role in enumerate(roles))


def test_a16_half_a_surrogate_pair_becomes_a_replacement_character_and_is_counted(field):
    def row(text):
        return b'{"conversations":[{"from":"human","value":"' + text + b'"},{"from":"gpt","value":"ok"}]}\n'
    one = field(row(rb"a\ud83c\udf78b") + row(rb"a\ud83db") + row(rb"a\udf78\ud83cb") + row(rb"a\ud83c\u0041"))
    texts = [field.text(sample).split("\n")[1].removesuffix("<|im_end|>") for sample in one.samples()]
    assert texts == ["a\U0001f378b", "a\ufffdb", "a\ufffd\ufffdb", "a\ufffdA"]
    assert one.findings()["lone_surrogates"] == 3


# --- addresses ---

def test_a19_where_paths_start_from(field, tmp_path):
    other = tmp_path / "abs"
    other.mkdir()
    for name in ("a.png", "a b.png", "a%20b.png"):
        (other / name).write_bytes(PICTURE)
    addresses = ["a.png", "./a.png", f"{other}/a.png", f"file://{other}/a%20b.png", f"file://localhost{other}/a.png", "~/a.png",
                 "a%20b.png", "C:\\pictures\\a.png", f"{other}/a%20b.png"]
    rows = [chat("<image>", image=address) for address in addresses]
    files = {"a.png": PICTURE, "~/a.png": PICTURE, "a%20b.png": PICTURE, "C:\\pictures\\a.png": PICTURE}
    assert field(rows, files, allow=[str(other)]).index()["usable"] == len(rows)
    # With a media root all relative ones start there: it has none of `~`, `C:` and ...
    one = field(rows[:2] + rows[5:], data={"media_root": str(other)})
    assert [sample.line for sample in one.samples()] == [1, 2, 4, 6]
    missing = one.reasons()["media missing"]
    assert [line for line, _ in missing] == [3, 5]
    assert all(f"{other}/{name}" in message for (_, message), name in zip(missing, ("~/a.png", "C:\\pictures\\a.png")))


def test_a19_a_path_outside_the_allowed_places_shows_the_line_to_add(field, tmp_path):
    ((_, message),) = field([chat("<image>", image=f"{tmp_path}/a.png")]).reasons()["media outside the allowed places"]
    assert f"allow: [{tmp_path}]" in message


def test_a20_image_url_may_be_an_object_or_a_text(field):
    forms = [{"url": data_uri(PICTURE), "detail": "low"}, data_uri(PICTURE), {"url": "a.png"}, "a.png", {"url": "a.png", "detail": "low"}]
    rows = [messages(("user", [{"type": "image_url", "image_url": form}, {"type": "text", "text": "?"}]), ("assistant", "!")) for form in forms]
    one = field(rows, {"a.png": PICTURE})
    first, *others = one.samples()
    assert len(others) == 4 and (first.pictures[0] == gradient(32, 64)).all()
    assert all((s.ids == first.ids).all() and (s.pictures[0] == first.pictures[0]).all() for s in others)
    assert one.findings()["detail_ignored"] == 2 and len([line for line in one("index").stdout.splitlines() if line.startswith("  detail")]) == 1


def test_a21_a_name_is_opaque(field):
    names = ["22.0/1.1.png", "Track 2.0 (x).mp3", "v1.tar/x.jsonl", ".png", "noending."]
    samples = field([chat("<image>", image=name) for name in names], {name: PICTURE for name in names}).samples()
    assert [s.line for s in samples] == [1, 2, 3, 4, 5] and all(numpy.array_equal(s.pictures[0], gradient(32, 64)) for s in samples)


def test_a21_members_of_a_tar_are_named_whole(field):
    """Nothing is split at a dot, so nothing is put together by what stands before it."""
    names, pictures = ["/p/22.0/1.1.png", "22.0/1.1.png", "22.0/1.2.png", "Track 2.0 (x).mp3", "22.0/1"], {}
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as out:
        for i, name in enumerate(names):
            pictures[name] = gradient(32, 32 * (1 + i))
            content, info = encode(pictures[name]), tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    rows = [chat("<image>", image=f"tar://{name}::v1.0.tar") for name in names] + [chat("<image>", image={"tar": "v1.0.tar", "member": name}) for name in names]
    samples = field(rows, {"v1.0.tar": tar.getvalue()}).samples()
    assert len(samples) == 10 and all(numpy.array_equal(s.pictures[0], pictures[name]) for s, name in zip(samples, 2 * names))
