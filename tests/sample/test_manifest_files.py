"""Manifests as people have them: compressed, in shards, with the line ends and marks of other systems."""
import gzip
import json
import shutil
import signal
import subprocess
import time

import pytest


def zstd_frame(data):
    """A zstd frame that stores: enough to be read, without a package."""
    blocks = [data[at:at + 100_000] for at in range(0, len(data), 100_000)] or [b""]
    out = b"\x28\xb5\x2f\xfd\x00\x58"
    for i, block in enumerate(blocks):
        out += ((len(block) << 3) | (i + 1 == len(blocks))).to_bytes(3, "little") + block
    return out


def two_parts(pack, data):
    half = len(data) // 2
    return pack(data[:half]) + pack(data[half:])


PACKINGS = {
    "train.jsonl.gz": gzip.compress,
    "train.jsonl.zst": zstd_frame,
    "members.json.gz": lambda data: two_parts(gzip.compress, data),
    "frames": lambda data: two_parts(zstd_frame, data),  # the content tells, not the name
}


@pytest.fixture
def sample(copy_sample, tmp_path):
    """A copy of the sample set without index files."""
    return copy_sample(tmp_path)


@pytest.fixture
def lines(sample):
    return (sample / "train.jsonl").read_bytes().split(b"\n")[:-1]


def with_path(path):
    return ["--set", f"data.sample.path={path if isinstance(path, str) else json.dumps([str(p) for p in path])}"]


def index(stoker, sample, path, *more, **options):
    return json.loads(stoker("index", sample / "stoker.yaml", "--json", *with_path(path), *more, cwd=sample, **options).stdout)["sets"][0]


def stream(stoker, sample, path, *more):
    """What a run is: its fingerprint, and its content."""
    plan = json.loads(stoker("plan", sample / "stoker.yaml", "--json", *with_path(path), *more, cwd=sample).stdout)
    return plan["fingerprint"], stoker("run", sample / "stoker.yaml", "--digest", *with_path(path), *more, cwd=sample).stdout.strip()


# --- compressed ---

def test_a_packed_manifest_gives_the_same_stream(stoker, sample):
    plain = stream(stoker, sample, "train.jsonl")
    data = (sample / "train.jsonl").read_bytes()
    for name, pack in PACKINGS.items():
        (sample / name).write_bytes(pack(data))
        assert stream(stoker, sample, name) == plain, name


def test_errors_and_ids_name_the_manifest_that_people_know(stoker, sample):
    data = (sample / "faulty.jsonl").read_bytes()
    (sample / "faulty.jsonl.gz").write_bytes(gzip.compress(data))
    said = {}
    for name in ("faulty.jsonl", "faulty.jsonl.gz"):
        found = index(stoker, sample, name, "--set", "errors.unusable=1")
        examples = [e for reason in found["unusable"].values() for e in reason["examples"]]
        assert len(examples) > 5 and all(e["file"] == str(sample / name) for e in examples)
        said[name] = [(e["line"], e["message"]) for e in examples]
    assert said["faulty.jsonl"] == said["faulty.jsonl.gz"]
    shown = stoker("show", sample / "stoker.yaml", *with_path("faulty.jsonl.gz"), "--record", "1", cwd=sample).stdout
    assert "sample/good-1" in shown and "stoker-unpacked" not in shown


def test_media_start_from_the_manifest_and_not_from_its_index(stoker, sample, tmp_path):
    (sample / "train.jsonl.gz").write_bytes(gzip.compress((sample / "train.jsonl").read_bytes()))
    kept = tmp_path / "kept"
    found = index(stoker, sample, "train.jsonl.gz", "--index-dir", kept)
    assert found["usable"] == found["records"] == 45
    assert not list(sample.glob("*.stoker-*"))
    assert len(list(kept.glob("train.jsonl.gz-*.stoker-unpacked-*"))) == 1


def test_unpacked_once_and_again_when_the_bytes_change(stoker, sample, lines):
    packed = sample / "train.jsonl.gz"
    packed.write_bytes(gzip.compress(b"\n".join(lines)))
    index(stoker, sample, packed.name)
    (first,) = sample.glob("*.stoker-unpacked-*")
    before = first.stat()
    assert index(stoker, sample, packed.name)["records_parsed"] == 0
    assert first.stat() == before
    packed.write_bytes(gzip.compress(b"\n".join(lines[:7])))
    assert index(stoker, sample, packed.name)["records"] == 7
    (second,) = sample.glob("*.stoker-unpacked-*")
    assert second != first


def test_commands_that_only_look_do_not_unpack(stoker, sample):
    (sample / "train.jsonl.gz").write_bytes(gzip.compress((sample / "train.jsonl").read_bytes()))
    stoker("options", cwd=sample)
    done = stoker("init", "train.jsonl.gz", "--model", "model", "-o", "made.yaml", cwd=sample)
    assert "no record was read" in done.stdout
    refused = stoker("run", "stoker.yaml", "--index", "require", *with_path("train.jsonl.gz"), status=1, cwd=sample)
    assert "run `stoker index` first" in refused.stderr
    assert not list(sample.glob("*.stoker-*"))


@pytest.mark.parametrize("name", ["train.jsonl.gz", "train.jsonl.zst"])
def test_a_manifest_that_is_cut_off_is_refused(stoker, sample, name):
    """E07: cut at 60 %."""
    packed = PACKINGS[name]((sample / "train.jsonl").read_bytes())
    (sample / name).write_bytes(packed[:len(packed) * 6 // 10])
    refused = stoker("index", sample / "stoker.yaml", *with_path(name), status=2, cwd=sample)
    assert name in refused.stderr and "cut off" in refused.stderr
    assert not list(sample.glob("*.stoker-*"))


def test_a_plain_array_that_is_cut_off_is_refused(stoker, sample, lines):
    """E07, of a form that says where it ends."""
    data = b"[" + b",\n".join(lines) + b"]"
    (sample / "cut.json").write_bytes(data[:len(data) * 6 // 10])
    refused = stoker("index", sample / "stoker.yaml", *with_path("cut.json"), status=2, cwd=sample)
    assert "cut.json" in refused.stderr


def test_a_packed_file_inside_a_packed_one_is_named(stoker, sample):
    (sample / "train.jsonl.gz").write_bytes(gzip.compress(gzip.compress((sample / "train.jsonl").read_bytes())))
    refused = stoker("index", sample / "stoker.yaml", *with_path("train.jsonl.gz"), status=2, cwd=sample)
    assert "unpack it once by hand" in refused.stderr and "train.jsonl.gz" in refused.stderr


def test_an_interrupt_while_unpacking_leaves_nothing(build, sample):
    """Ctrl-C in the middle of a large manifest."""
    record = (sample / "train.jsonl").read_bytes()
    with open(sample / "large.jsonl.gz", "wb") as to:
        member = gzip.compress(record * 200, 1)
        for _ in range(120):
            to.write(member)
    process = subprocess.Popen([build / "cli/stoker", "index", "stoker.yaml", *with_path("large.jsonl.gz")], cwd=sample,
                               stderr=subprocess.PIPE, text=True)
    while not list(sample.glob("*.tmp-*")):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert not list(sample.glob("*.stoker-*"))


# --- shards ---

def test_a_folder_and_a_prefix_of_shards(stoker, sample, lines):
    shards = sample / "shards"
    (shards / "more").mkdir(parents=True)
    (shards / "train-0.jsonl").write_bytes(b"\n".join(lines[:20]))
    (shards / "train-1.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines[20:30])))
    (shards / "train-2.json").write_bytes(b"[" + b",".join(lines[30:40]) + b"]")
    (shards / "more/train-3.jsonl.zst").write_bytes(zstd_frame(b"\n".join(lines[40:])))
    (shards / "val.jsonl").write_bytes(lines[0])
    (shards / "README.md").write_text("no manifest")
    root = ["--set", f"data.sample.media_root={sample}"]
    assert index(stoker, sample, "shards/train-", *root)["usable"] == 40
    folder = index(stoker, sample, "shards", *root)
    assert folder["usable"] == folder["records"] == 46
    assert index(stoker, sample, "shards/", *root)["usable"] == 46  # its own sidecars are none of it
    refused = stoker("index", sample / "stoker.yaml", *with_path("shards/test-"), status=2, cwd=sample)
    assert "does not exist" in refused.stderr


# --- line ends and marks ---

def ids(stoker, sample, path, count):
    """The ids of the samples and what the model sees of each, without the header that names the file."""
    out = []
    for k in range(1, count + 1):
        out.append(stoker("show", sample / "stoker.yaml", *with_path(path), "--record", str(k), cwd=sample).stdout.replace(str(path), "FILE"))
    return out


def test_a_byte_order_mark_changes_nothing(stoker, sample, lines):
    """A01: same samples, same token ids, same sample ids."""
    picked = lines[:1] + lines[10:12]  # records of differing keys
    (sample / "plain.jsonl").write_bytes(b"\n".join(picked) + b"\n")
    (sample / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + b"\n".join(picked) + b"\n")
    assert stream(stoker, sample, "plain.jsonl")[1] == stream(stoker, sample, "bom.jsonl")[1]
    assert ids(stoker, sample, "plain.jsonl", 3) == ids(stoker, sample, "bom.jsonl", 3)


def test_line_ends_of_windows_change_nothing(stoker, sample, lines):
    (sample / "plain.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (sample / "crlf.jsonl").write_bytes(b"\r\n".join(lines) + b"\r\n")
    assert stream(stoker, sample, "plain.jsonl")[1] == stream(stoker, sample, "crlf.jsonl")[1]


@pytest.mark.parametrize("names, pack", [(["a.jsonl", "b.jsonl"], bytes), (["a.jsonl.gz", "b.jsonl.gz"], gzip.compress)])
def test_files_without_a_final_line_end_are_not_glued(stoker, sample, lines, names, pack):
    """A03: two files of 3 rows are 6 records, in order, never 5."""
    for k, name in enumerate(names):
        (sample / name).write_bytes(pack(b"\n".join(lines[3 * k:3 * k + 3])))
    (sample / "whole.jsonl").write_bytes(b"\n".join(lines[:6]) + b"\n")
    paths = [sample / name for name in names]
    assert index(stoker, sample, paths)["records"] == 6
    assert stream(stoker, sample, paths, "--shuffle", "false")[1] == stream(stoker, sample, "whole.jsonl", "--shuffle", "false")[1]


def test_blank_lines_are_skipped_counted_and_still_lines(stoker, sample, lines):
    """A04: rows separated by an empty line, by "  " and by a tab with CRLF."""
    (sample / "gaps.jsonl").write_bytes(lines[0] + b"\n\n" + lines[1] + b"\n  \n" + lines[2] + b"\n\t\r\n" + b"{broken\n")
    found = index(stoker, sample, "gaps.jsonl", "--set", "errors.unusable=1")
    assert (found["records"], found["usable"], found["blank_lines"]) == (4, 3, 3)
    (reason,) = found["unusable"].values()
    assert reason["examples"][0]["line"] == 7


def test_the_first_byte_tells_the_form_not_the_name(stoker, sample, lines):
    """A07: (1) a missing comma is refused with its place; (2) rows in .json and (3) an array in .jsonl are read."""
    (sample / "rows.json").write_bytes(b"\n".join(lines) + b"\n")
    (sample / "array.jsonl").write_bytes(b"[" + b",\n".join(lines) + b"]\n")
    plain = stream(stoker, sample, "train.jsonl")[1]
    assert stream(stoker, sample, "rows.json")[1] == plain
    assert stream(stoker, sample, "array.jsonl")[1] == plain
    (sample / "comma.json").write_bytes(b"[" + lines[0] + b",\n" + lines[1] + b"\n" + lines[2] + b"]\n")
    refused = stoker("index", sample / "stoker.yaml", *with_path("comma.json"), status=2, cwd=sample)
    assert "comma.json:3" in refused.stderr and "column 1" in refused.stderr and "offset" in refused.stderr


def test_names_with_dots_are_opaque(stoker, sample, lines):
    """A21: a name says nothing of its parts or of what is in it."""
    (sample / "22.0").mkdir()
    shutil.copy(sample / "images/harbour.jpg", sample / "22.0/1.1.png")  # a JPEG: the type is of the content
    shutil.copy(sample / "images/harbour.jpg", sample / "22.0/harbour")
    turns = [{"from": "human", "value": "<image>\nWhat is this?"}, {"from": "gpt", "value": "A harbour."}]
    for name, image in (("dots.v1.2.jsonl", "22.0/1.1.png"), ("none.jsonl", "22.0/harbour")):
        (sample / name).write_text(json.dumps({"id": "one", "image": image, "conversations": turns}) + "\n")
    assert stream(stoker, sample, "dots.v1.2.jsonl")[1] == stream(stoker, sample, "none.jsonl")[1]
