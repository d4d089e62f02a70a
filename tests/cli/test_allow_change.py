"""`run --resume FILE --allow-change NAME`: another option is refused with its name, or goes on where people say so."""
import json
import re
import shutil

import pytest


@pytest.fixture(scope="module")
def sample(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("change") / "sample"
    shutil.copytree(source / "examples/sample", folder, ignore=shutil.ignore_patterns("*.stk*", "*.stoker-*"))
    return folder


@pytest.fixture(scope="module")
def state(stoker, sample, tmp_path_factory):
    path = tmp_path_factory.mktemp("change") / "run.state"
    stoker("run", sample / "stoker.yaml", "--steps", 3, "--state", path)
    return path


def test_a_change_is_refused_with_what_was_and_is(stoker, sample, state):
    done = stoker("run", sample / "stoker.yaml", "--resume", state, "--seed", 2, status=2)
    assert "seed was 1 and is 2" in done.stderr and "--allow-change seed" in done.stderr and done.stdout == ""


def test_an_allowed_change_goes_on_and_is_recorded(stoker, sample, state, tmp_path):
    done = stoker("run", sample / "stoker.yaml", "--resume", state, "--batch", 8, "--seed", 2, "--allow-change", "seed,batch", "--json",
                  "--state", tmp_path / "next.state", "--steps", 1)
    assert "going on at step 2, row 16 of epoch 0" in done.stderr
    run = json.loads(done.stdout)
    assert run["steps"] == 1 and re.findall("^changed (.*)$", run["state"], re.MULTILINE) == ["batch", "seed"]
    assert "rows 24\nstep 3\n" in run["state"] and (tmp_path / "next.state").read_text() == run["state"]
    # From there on it is an ordinary state.
    again = stoker("run", sample / "stoker.yaml", "--resume", tmp_path / "next.state", "--batch", 8, "--seed", 2, "--json")
    assert "going on" not in again.stderr
    assert re.findall("^changed (.*)$", json.loads(again.stdout)["state"], re.MULTILINE) == ["batch", "seed"]
    out = stoker("diff", state, tmp_path / "next.state", status=1).stdout
    assert "batch is 4 in A and 8 in B\n" in out and "only B records that seed was changed\n" in out


def test_the_rows_behind_it_are_those_of_the_new_options(stoker, sample, state):
    flags = [sample / "stoker.yaml", "--seed", 2, "--json"]
    rest = json.loads(stoker("run", *flags, "--resume", state, "--allow-change", "seed").stdout)
    whole = json.loads(stoker("plan", *flags).stdout)
    steps = json.loads(stoker("plan", *flags, "--steps-table").stdout)
    tokens = [row[steps["columns"].index("tokens")] for row in steps["steps_table"]]
    assert rest["steps"] == whole["steps"] - 3 and rest["tokens"] == sum(tokens[3:])


@pytest.mark.parametrize("flags, words", [(["--allow-change", "sed"], '"sed" cannot be allowed'), (["--allow-change", "workers"], "cannot be allowed"),
                                          (["--allow-change", "batch"], "seed was 1 and is 2")])
def test_a_change_must_be_named_as_it_is(stoker, sample, state, flags, words):
    assert words in stoker("run", sample / "stoker.yaml", "--resume", state, "--seed", 2, *flags, status=2).stderr


def test_it_goes_with_resume(stoker, sample):
    assert "--resume" in stoker("run", sample / "stoker.yaml", "--allow-change", "seed", status=2).stderr


def test_a_state_of_the_first_format_is_refused_in_words(stoker, sample, source):
    done = stoker("run", sample / "stoker.yaml", "--resume", source / "fuzz/corpus/state/format-1.state", status=2)
    assert "format 1" in done.stderr and "format 2" in done.stderr


def test_rows_that_were_added_are_named(stoker, sample, state, tmp_path):
    grown = tmp_path / "sample"
    shutil.copytree(sample, grown)
    manifest = grown / "train.jsonl"
    stoker("run", grown / "stoker.yaml", "--resume", state, "--steps", 0)  # another place is no change
    manifest.write_text(manifest.read_text() + manifest.read_text().splitlines()[3] + "\n")
    done = stoker("run", grown / "stoker.yaml", "--resume", state, status=2)
    assert "data (the manifests or their media) has changed" in done.stderr and "--allow-change data" in done.stderr
    assert "going on at step 3" in stoker("run", grown / "stoker.yaml", "--resume", state, "--allow-change", "data", "--steps", 0).stderr


def test_a_schedule_has_micro_batches_of_its_own_number_in_each_step(stoker, sample, tmp_path):
    flags = [sample / "stoker.yaml", "--batch", "[[0, 2], [2, 12]]", "--micro-batch", 1, "--ranks", 2]
    whole = json.loads(stoker("run", *flags, "--json").stdout)
    assert whole["steps"] == 10 and whole["samples"] == 90
    state = tmp_path / "run.state"
    parts = [json.loads(stoker("run", *flags, "--json", "--steps", 3, "--state", state).stdout),
             json.loads(stoker("run", *flags, "--json", "--resume", state).stdout)]
    assert [p["steps"] for p in parts] == [3, 7] and sum(p["samples"] for p in parts) == 90
    assert parts[1]["state"] == whole["state"]
