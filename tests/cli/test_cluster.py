"""`stoker cluster plan`: needs that follow from a measured report, by arithmetic done again here; faults named with the flag."""
import json

import pytest


@pytest.fixture(scope="module")
def config(copy_sample, tmp_path_factory):
    """A copy of the sample set."""
    return copy_sample(tmp_path_factory.mktemp("cluster")) / "stoker.yaml"


@pytest.fixture(scope="module")
def report(stoker, config, tmp_path_factory):
    """Made by a run, with its costs replaced by round ones: 100 samples in 10 steps, each 10 ms of a core, 125 kB and 1250 kB."""
    made = json.loads(stoker("run", config, "--json", "--ranks", 2, "--steps", 10).stdout)
    assert made["ranks"] == 2 and made["cpu_s"] > 0
    made |= {"samples": 100, "steps": 10, "images": 200, "cpu_s": 1.0, "batch_bytes": 125_000_000}
    made["stages"]["fetch"]["bytes"] = 12_500_000
    path = tmp_path_factory.mktemp("report") / "run.json"
    path.write_text(json.dumps(made))
    return path


@pytest.fixture(scope="module")
def plan(stoker, report):
    return lambda *flags: json.loads(stoker("cluster", "plan", "--report", report, "--json", *flags).stdout)


def test_bytes_of_batches_are_those_of_their_fields(stoker, config, tmp_path):
    """The number behind node-to-node traffic, held against what `replay --dump` writes."""
    run = json.loads(stoker("run", config, "--json", "--steps", 3).stdout)
    for step in range(3):
        stoker("replay", config, "--step", step, "--dump", tmp_path)
    import numpy
    assert run["batch_bytes"] == sum(numpy.load(path).nbytes for path in tmp_path.glob("*/*.npy"))


def test_needs_follow_from_the_report(plan):
    out = plan("--ranks", 8, "--step-ms", 10, "--ranks-per-node", 4)
    assert out["samples_per_s"] == 1000 and out["nodes"] == 2
    assert out["sample"]["cpu_ms"] == 10 and out["sample"]["compressed_bytes"] == 125_000 and out["sample"]["batch_bytes"] == 1_250_000
    assert out["all"] == {"cores": 10, "store_gbit": 1, "media_per_s": 2000}
    assert out["local"]["node"] == {"cores": 5, "in_gbit": 0.5, "out_gbit": 0}
    assert out["recommended"] is None and out["local"]["fits"] is None


@pytest.mark.parametrize("cores, gbit, recommended, feeders", [(8, 1, "local", 0), (4, 20, "spread", 2), (2, 2, "neither", None)])
def test_a_recommendation_is_made_of_what_nodes_have(stoker, report, plan, cores, gbit, recommended, feeders):
    flags = ["--ranks", 8, "--step-ms", 10, "--ranks-per-node", 4, "--cores-per-node", cores, "--gbit-per-node", gbit]
    out = plan(*flags)
    assert out["recommended"] == recommended
    words = stoker("cluster", "plan", "--report", report, *flags).stdout
    assert f"recommended: {recommended}" in words
    if recommended == "spread":
        assert out["spread"]["feeders"] == feeders and f"{feeders} nodes without GPUs" in words
    if recommended == "neither":
        assert out["local"]["lacks"] == "cores" and out["spread"]["lacks"] == "card_in" and "max_pixels" in words


def test_spare_is_left_free(plan):
    flags = ["--ranks", 8, "--step-ms", 10, "--ranks-per-node", 4, "--cores-per-node", 5, "--gbit-per-node", 20]
    assert plan(*flags, "--spare", 0)["recommended"] == "local"
    assert plan(*flags)["recommended"] == "spread"


def test_a_larger_step_needs_more(plan):
    out = plan("--ranks", 8, "--step-ms", 10, "--samples", 40)
    assert out["samples_per_s"] == 4000 and out["all"]["cores"] == 40


def test_costs_are_measured_where_no_report_is_given(stoker, config):
    """Of one rank of them; a step is that of all."""
    out = json.loads(stoker("cluster", "plan", config, "--ranks", 2, "--step-ms", 100, "--measure-steps", 3, "--json").stdout)
    run = json.loads(stoker("run", config, "--json", "--ranks", 2, "--steps", 3).stdout)
    assert 0 < out["sample"]["measured"] < run["samples"]
    assert out["samples_per_s"] == pytest.approx(out["sample"]["measured"] / 3 * 2 * 10)
    assert out["sample"]["cpu_ms"] > 0 and out["sample"]["batch_bytes"] > out["sample"]["compressed_bytes"] > 0


@pytest.mark.parametrize("flags, words", [
    ([], "--ranks is missing"),
    (["--ranks", 2], "--step-ms is missing"),
    (["--ranks", 2, "--step-ms", 0], "--step-ms: 0 is no number"),
    (["--ranks", 2, "--step-ms", "fast"], "--step-ms: fast is no number"),
    (["--ranks", 2, "--step-ms", 5, "--spare", 95], "--spare: 95"),
    (["--ranks", 2, "--step-ms", 5, "--cores-per-node", 4], "--gbit-per-node go together"),
    (["--ranks", 2, "--step-ms", 5], "CONFIG is missing"),
    (["CONFIG", "--ranks", 2, "--step-ms", 5, "--report", "x.json"], "not both"),
    (["--ranks", 2, "--step-ms", 5, "--report", "no-such.json"], "--report no-such.json"),
])
def test_faults_name_the_flag(stoker, config, flags, words):
    done = stoker("cluster", "plan", *[config if f == "CONFIG" else f for f in flags], status=2)
    assert done.stdout == "" and words in done.stderr


def test_the_word_behind_it_is_needed(stoker):
    assert "say `stoker cluster plan`" in stoker("cluster", status=2).stderr
    assert "say `stoker cluster plan`" in stoker("cluster", "play", "--ranks", 2, status=2).stderr


def test_a_report_that_is_none_is_refused(stoker, report, tmp_path):
    path = tmp_path / "old.json"
    old = json.loads(report.read_text())
    del old["cpu_s"]
    path.write_text(json.dumps(old))
    done = stoker("cluster", "plan", "--report", path, "--ranks", 2, "--step-ms", 5, status=2)
    assert f"{path} has no number `cpu_s`" in done.stderr
    path.write_text("[")
    assert "old.json" in stoker("cluster", "plan", "--report", path, "--ranks", 2, "--step-ms", 5, status=2).stderr
    path.write_text(json.dumps(old | {"cpu_s": 1, "samples": 0}))
    assert "no samples" in stoker("cluster", "plan", "--report", path, "--ranks", 2, "--step-ms", 5, status=2).stderr
