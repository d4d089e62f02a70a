"""`index: stream` on the sample set: the digest of a full index, without one; what cannot be used is named and counted."""
import json

import pytest

SMALL = ("--max_tokens", 2048, "--limits.media_pixels", 4000000, "--limits.media_bytes", "8MiB")


@pytest.fixture(scope="module")
def sample(copy_sample, tmp_path_factory):
    return copy_sample(tmp_path_factory.mktemp("stream"))


def run(stoker, config, *options, status=0):
    return json.loads(stoker("run", config, "--json", "--digest", *options, *SMALL, status=status).stdout)


def sidecars(folder):
    return sorted(path.name.split(".stoker-")[1].split("-")[0] for path in folder.glob("*.stoker-*"))


@pytest.mark.parametrize("layout", ["padded", "flat"])
def test_the_digest_is_that_of_a_full_index(stoker, sample, layout):
    for path in sample.glob("*.stoker-*"):
        path.unlink()
    stream = run(stoker, sample / "stoker.yaml", "--index", "stream", "--layout", layout)
    assert sidecars(sample) == ["lines"]
    full = run(stoker, sample / "stoker.yaml", "--balance", "none", "--layout", layout)
    assert stream["digest"] == full["digest"] and stream["samples"] == full["samples"] == 90
    assert stream["facts_read"]["records"] == 90 and stream["facts_read"]["headers"] == stream["images"]
    assert full["facts_read"] == {"records": 0, "headers": 0}
    for options in (("--workers", 1), ("--workers", 4), ("--serial",)):
        assert run(stoker, sample / "stoker.yaml", "--index", "stream", "--layout", layout, *options)["digest"] == stream["digest"]


def test_a_run_resumes_on_other_ranks(stoker, sample, tmp_path):
    whole = json.loads(stoker("run", sample / "stoker.yaml", "--index", "stream", "--json", *SMALL).stdout)
    state = tmp_path / "state"
    stoker("run", sample / "stoker.yaml", "--index", "stream", "--steps", 0, "--state", state, *SMALL)
    for ranks in (3, 2, 1):
        stoker("run", sample / "stoker.yaml", "--index", "stream", "--steps", 5, "--ranks", ranks, "--resume", state, "--state", state, *SMALL)
    rest = json.loads(stoker("run", sample / "stoker.yaml", "--index", "stream", "--json", "--resume", state, *SMALL).stdout)
    assert rest["steps"] == 8 and rest["state"] == whole["state"]
    refused = stoker("run", sample / "stoker.yaml", "--balance", "none", "--resume", state, *SMALL, status=None)
    assert refused.returncode != 0 and "index" in refused.stderr


def test_faulty_records_are_filler_and_named(stoker, sample, tmp_path):
    letters = tmp_path / "letters.jsonl"
    report = json.loads(stoker("index", sample / "faulty.yaml", "--json", status=None).stdout)["sets"][0]
    unusable = {reason: entry["count"] for reason, entry in report["unusable"].items()}
    found = run(stoker, sample / "faulty.yaml", "--index", "stream", "--epochs", 1, "--errors.unusable", 1, "--errors.masked", 1,
                "--dead_letter", letters)
    assert found["samples"] == report["usable"] and found["filler"] >= sum(unusable.values())
    masked = found["failures"]["by_reason"]
    assert {reason: masked.get(reason) for reason in unusable} == unusable
    lines = [json.loads(line) for line in letters.read_text().splitlines()]
    assert len(lines) == found["failures"]["masked"]
    assert all(line["id"].startswith(report["name"]) and line["message"] for line in lines)
    assert sum(line["stage"] == "index" for line in lines) == sum(unusable.values())


def test_index_plan_show_and_replay_know_it(stoker, sample, tmp_path):
    config = sample / "stoker.yaml"
    report = json.loads(stoker("index", config, "--index", "stream", "--json").stdout)["sets"][0]
    assert report["only_lines"] and report["records"] == 45 and report["records_parsed"] == 0
    plan = json.loads(stoker("plan", config, "--index", "stream", "--json").stdout)
    assert plan["only_rows"] and plan["steps"] == 23 and plan["rows"] == 90
    assert "found when samples are drawn" in stoker("plan", config, "--index", "stream").stdout
    for options in (("--step", 1), ("--csv", tmp_path / "steps.csv")):
        refused = stoker("plan", config, "--index", "stream", *options, status=None)
        assert refused.returncode != 0 and "index: auto" in refused.stderr
    assert stoker("show", config, "sample#2", "--index", "stream").stdout == stoker("show", config, "sample#2").stdout
    replay = stoker("replay", config, "--step", 3, "--index", "stream").stdout
    assert "step 3" in replay and "sample" in replay


def test_what_does_not_go_with_it_is_refused(stoker, sample):
    for options, words in ((("--layout", "packed"), "layout: packed"), (("--balance", "model+vision"), "balance"),
                           (("--modality", "aligned"), "modality"), (("--set", "data.sample.where=images > 0"), "where"),
                           (("--memory", "64MiB"), "limits.media_pixels")):
        refused = stoker("run", sample / "stoker.yaml", "--index", "stream", *options, status=None)
        assert refused.returncode == 2 or "memory" in refused.stderr
        assert words in refused.stderr and "index: stream" in refused.stderr
