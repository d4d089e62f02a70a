"""`stoker diff`: equal things are equal, and where others first differ is said in words."""
import json
import re
import shutil
import struct

import pytest


@pytest.fixture(scope="module")
def sample(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff") / "sample"
    shutil.copytree(source / "examples/sample", folder, ignore=shutil.ignore_patterns("*.stk*", "*.stoker-*"))
    return folder


@pytest.fixture(scope="module")
def dumped(stoker, sample, tmp_path_factory):
    """Two steps on two ranks, two micro-batches each."""
    folder = tmp_path_factory.mktemp("diff") / "dump"
    for step in 1, 12:
        stoker("replay", sample / "stoker.yaml", "--step", step, "--world", 2, "--micro-batch", 1, "--dump", folder)
    return folder


@pytest.fixture
def copy(dumped, tmp_path):
    return shutil.copytree(dumped, tmp_path / "copy")


def change(path, at, value, form="<q"):
    """Overwrite item `at` of a .npy file; what was there."""
    data = bytearray(path.read_bytes())
    begin = 10 + struct.unpack_from("<H", data, 8)[0] + at * struct.calcsize(form)
    [before] = struct.unpack_from(form, data, begin)
    struct.pack_into(form, data, begin, value)
    path.write_bytes(data)
    return before


def batch_of(folder):
    return json.loads((folder / "batch.json").read_text())


# --- dumps ---

def test_equal_dumps_are_equal(stoker, dumped, copy):
    assert stoker("diff", dumped, copy).stdout == "equal: 8 micro-batches\n"
    one = "step-00000012.rank-001.micro-000"
    assert stoker("diff", dumped / one, copy / one).stdout == "equal: one micro-batch\n"


def test_a_changed_token_is_found_with_its_sample(stoker, dumped, copy):
    folder = copy / "step-00000012.rank-001.micro-000"
    before = change(folder / "input_ids.npy", 17, 5)
    [sample] = batch_of(folder)["samples"]
    out = stoker("diff", dumped, copy, status=1).stdout
    length = sample["tokens"]
    assert out == (f"step 12, rank 1, micro-batch 0: row 0, sample {sample['id']}, token 17: input_ids[0, 17] is {before} in A and 5 in B; "
                   f"1 of {length} values differ\n")


def test_a_changed_pixel_is_found_with_its_sample(stoker, dumped, copy):
    folder = next(f for f in sorted(copy.iterdir()) if len(batch_of(f)["samples"]) == 1 and batch_of(f)["samples"][0]["visual_tokens"])
    sample, width = batch_of(folder)["samples"][0], 768
    change(folder / "pixel_bytes.npy", 3 * width + 7, 255, "<B"), change(folder / "pixel_bytes.npy", 5 * width, 255, "<B")
    out = stoker("diff", dumped, copy, status=1).stdout
    assert re.search(rf"sample {re.escape(sample['id'])}, patch 3 of it: pixel_bytes\[3, 7\] is \d+ in A and 255 in B; 2 of ", out)


@pytest.mark.parametrize("flags", [["--layout", "packed", "--row-tokens", 1024], ["--layout", "flat"], ["--pixels", "bfloat16"]])
def test_places_are_found_in_every_layout(stoker, sample, tmp_path, flags):
    folders = []
    for name in "a", "b":
        stoker("replay", sample / "stoker.yaml", "--step", 0, "--dump", tmp_path / name, "--batch", 2, *flags)
        folders.append(tmp_path / name / "step-00000000.rank-000.micro-000")
    inside = batch_of(folders[1])["samples"][1]
    length = int(re.search(rb"'shape': \(\d+, (\d+)", (folders[1] / "labels.npy").read_bytes())[1])
    row_length = 0 if "flat" in flags else length
    change(folders[1] / "labels.npy", inside["row"] * row_length + inside["offset"] + 2, 1234567)
    out = stoker("diff", *folders, status=1).stdout
    assert f"row {inside['row']}, sample {inside['id']}, token 2: labels[0" in out or f"token 2: labels[{inside['row']}, " in out
    assert "1234567 in B; 1 of" in out
    if "bfloat16" in flags:
        change(folders[1] / "pixel_values.npy", 0, 0x3FC0, "<H")
        assert "is 1.5 in B" not in out and "in A and 1.5 in B; 1 of" in stoker("diff", *folders, status=1).stdout


def test_padding_is_called_so(stoker, dumped, sample, tmp_path):
    stoker("replay", sample / "stoker.yaml", "--step", 0, "--dump", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    folder = tmp_path / "b/step-00000000.rank-000.micro-000"
    samples = batch_of(folder)["samples"]
    longest = max(s["tokens"] for s in samples)
    short = next(s for s in samples if s["tokens"] < longest)
    change(folder / "attention_mask.npy", short["row"] * longest + longest - 1, 1)
    out = stoker("diff", tmp_path / "a", tmp_path / "b", status=1).stdout
    assert f"row {short['row']}, padding: attention_mask[{short['row']}, {longest - 1}] is 0 in A and 1 in B" in out


def test_other_samples_are_named_before_what_follows_from_them(stoker, sample, dumped, tmp_path):
    for step in 1, 12:
        stoker("replay", sample / "stoker.yaml", "--step", step, "--world", 2, "--micro-batch", 1, "--dump", tmp_path / "b", "--seed", 9)
    first = stoker("diff", dumped, tmp_path / "b", status=1).stdout.splitlines()[0]
    a, b = (batch_of(folder / "step-00000001.rank-000.micro-000")["samples"][0]["id"] for folder in (dumped, tmp_path / "b"))
    assert first == f'step 1, rank 0, micro-batch 0: row 0, sample 0: id is "{a}" in A and "{b}" in B'


def test_what_only_one_has_is_named(stoker, dumped, copy):
    (copy / "step-00000001.rank-000.micro-001/labels.npy").unlink()
    assert "rank 0, micro-batch 1: only A has the field labels" in stoker("diff", dumped, copy, status=1).stdout
    shutil.rmtree(copy / "step-00000001.rank-000.micro-001")
    assert stoker("diff", dumped, copy, status=1).stdout == "only A has step-00000001.rank-000.micro-001\n"
    assert stoker("diff", copy, dumped, status=1).stdout == "only B has step-00000001.rank-000.micro-001\n"


def test_another_number_of_ranks_is_said_first(stoker, sample, dumped, tmp_path):
    stoker("replay", sample / "stoker.yaml", "--step", 1, "--world", 1, "--micro-batch", 1, "--dump", tmp_path / "b")
    assert "world is 2 in A and 1 in B" in stoker("diff", dumped, tmp_path / "b", status=1).stdout.splitlines()[0]


@pytest.mark.parametrize("damage, words", [
    (lambda f: f.write_bytes(f.read_bytes()[:-3]), "it was cut"), (lambda f: f.write_bytes(b"text"), "no .npy file"),
    (lambda f: f.write_bytes(f.read_bytes()[:40]), "inside its header"),
    (lambda f: f.write_bytes(f.read_bytes().replace(b"False", b"True ")), "Fortran"),
    (lambda f: f.write_bytes(f.read_bytes().replace(b"'<i8'", b"'>i8'")), "little-endian"),
    (lambda f: f.write_bytes(f.read_bytes().replace(b"'<i8'", b"'<i" + b"\0'")), "has not descr"),
    (lambda f: f.write_bytes(f.read_bytes().replace(b"'shape': (1", b"'shape': (x")), "no list of numbers"),
    (lambda f: f.write_bytes(re.sub(rb"'shape': \([^)]*\)", b"'shape': (9999999999, 9999999999)", f.read_bytes())), "too large")])
def test_a_broken_file_cannot_be_compared(stoker, dumped, copy, damage, words):
    damage(copy / "step-00000001.rank-000.micro-000/input_ids.npy")
    done = stoker("diff", dumped, copy, status=2)
    assert words in done.stderr and "input_ids.npy" in done.stderr


def test_a_broken_batch_json_cannot_be_compared(stoker, dumped, copy):
    (copy / "step-00000001.rank-000.micro-000/batch.json").write_text('{"step": ')
    done = stoker("diff", copy, dumped, status=2)
    assert "batch.json: line 1" in done.stderr


# --- states ---

@pytest.fixture(scope="module")
def states(stoker, sample, tmp_path_factory):
    folder = tmp_path_factory.mktemp("states")
    for name, flags in {"three": ["--steps", 3], "again": ["--steps", 3], "four": ["--steps", 4], "seed": ["--steps", 3, "--seed", 2]}.items():
        stoker("run", sample / "stoker.yaml", "--state", folder / name, *flags)
    return folder


def test_states_are_compared_in_words(stoker, states):
    assert stoker("diff", states / "three", states / "again").stdout == "equal: both go on at step 3\n"
    out = stoker("diff", states / "three", states / "four", status=1).stdout
    assert out == "rows is 12 in A and 16 in B\nstep is 3 in A and 4 in B\n"
    assert stoker("diff", states / "three", states / "seed", status=1).stdout == "seed is 1 in A and 2 in B\n"
    broken = states / "broken"
    broken.write_text((states / "three").read_text().replace("rows 12", "rows 13"))
    assert "checksum" in stoker("diff", states / "three", broken, status=2).stderr


# --- plans ---

def variant(sample, name, **options):
    """The configuration with other options."""
    text = (sample / "stoker.yaml").read_text()
    for key, value in options.items():
        text = re.sub(rf"^{key}:.*\n", "", text, flags=re.MULTILINE) + f"{key}: {value}\n"
    path = sample / f"{name}.yaml"
    path.write_text(text)
    return path


def test_plans_that_are_equal(stoker, sample):
    here = sample / "stoker.yaml"
    other = variant(sample, "other", memory="300MiB", workers=1)
    assert re.fullmatch(r"equal: 23 steps, fingerprint [0-9a-f]{32}\n", stoker("diff", here, other).stdout)


def listed(stoker, config, step, ranks=1):
    return json.loads(stoker("plan", config, "--json", "--step", step, "--ranks", ranks).stdout)["samples"]


def test_another_seed_differs_at_once(stoker, sample):
    here, other = sample / "stoker.yaml", variant(sample, "seed", seed=5)
    lines = stoker("diff", here, other, status=1).stdout.splitlines()
    assert lines[0] == "seed is 1 in A and 5 in B" and len(lines) == 2
    a, b = (next(s["id"] for s in listed(stoker, c, 0) if s["step_row"] == 0) for c in (here, other))
    assert a != b and lines[-1] == f"step 0, row 0: {a} in A and {b} in B"


def test_a_later_end_differs_in_the_number_of_steps(stoker, sample):
    out = stoker("diff", sample / "stoker.yaml", variant(sample, "steps", steps=30), status=1).stdout.splitlines()
    # The last step of two epochs has two rows; that of 30 steps goes on into the third.
    assert out[-1].startswith("step 22, row 2: ") and " in A and sample" in out[-1]
    out = stoker("diff", variant(sample, "ten", steps=10), variant(sample, "twelve", steps=12), status=1).stdout.splitlines()
    assert out[-2:] == ["the first 10 steps hold the same samples in the same places", "the number of steps is 10 in A and 12 in B"]


def test_smaller_images_differ_in_tokens(stoker, sample):
    out = stoker("diff", sample / "stoker.yaml", variant(sample, "small", max_pixels=20000), status=1).stdout.splitlines()
    assert out[0] == "max_pixels is 200704 in A and 20000 in B"
    assert re.match(r"step \d+, row \d+, sample sample[/#].*: tokens is \d+ in A and \d+ in B", out[-1])


def test_another_dealing_differs_in_ranks(stoker, sample):
    here, other = variant(sample, "even", batch=12), variant(sample, "none", batch=12, balance="none")
    out = stoker("diff", here, other, "--ranks", 4, status=1).stdout.splitlines()
    assert out[0] == "balance is model+vision in A and none in B" and re.match(r"step 0, row \d+, sample .*: rank is \d in A and \d in B", out[-1])


def test_options_of_plans_are_set_on_both_sides_or_on_one(stoker, sample):
    here = sample / "stoker.yaml"
    assert stoker("diff", here, here, "--set", "seed=5", "--set", "data.sample.first=9").stdout.startswith("equal: ")
    of_file = stoker("diff", here, variant(sample, "seed", seed=5), status=1).stdout
    assert stoker("diff", here, here, "--set-b", "seed=5", status=1).stdout == of_file
    assert stoker("diff", here, here, "--set", "seed=5", "--set-a", "seed=1", status=1).stdout == of_file
    assert "did you mean seed?" in stoker("diff", here, here, "--set-b", "sed=5", status=2).stderr
    assert "--set-b takes KEY=VALUE, not seed" in stoker("diff", here, here, "--set-b", "seed", status=2).stderr


def test_plans_of_eval_are_compared(stoker, sample):
    here = variant(sample, "eval", eval="{data: [{name: sample, path: train.jsonl}], batch: 5}")
    assert stoker("diff", here, here, "--split", "eval").stdout.startswith("equal: 9 steps, ")
    assert "batch is 5 in A and 9 in B" in stoker("diff", here, here, "--split", "eval", "--set-b", "batch=9", status=1).stdout
    assert "has no `eval`" in stoker("diff", here, sample / "stoker.yaml", "--split", "eval", status=2).stderr


def test_flags_of_plans_are_refused_beside_others(stoker, dumped, states):
    for one in dumped, states / "three":
        for flag in (["--set", "seed=1"], ["--ranks", 2], ["--split", "eval"]):
            assert "flags are of plans" in stoker("diff", one, one, *flag, status=2).stderr


# --- what cannot be compared ---

@pytest.mark.parametrize("a, b, words", [("stoker.yaml", "images", "no micro-batches"), ("stoker.yaml", "missing.yaml", "No such file"),
                                         ("stoker.yaml", "train.jsonl", "train.jsonl")])
def test_what_cannot_be_compared_is_refused(stoker, sample, a, b, words):
    done = stoker("diff", sample / a, sample / b, status=2)
    assert words in done.stderr and done.stdout == ""


def test_two_kinds_are_refused(stoker, sample, dumped, states):
    assert "a configuration, and B is a dump" in stoker("diff", sample / "stoker.yaml", dumped, status=2).stderr
    assert "a state, and B is a configuration" in stoker("diff", states / "three", sample / "stoker.yaml", status=2).stderr
    one = dumped / "step-00000001.rank-000.micro-000"
    assert "a folder of them" in stoker("diff", one, dumped, status=2).stderr
