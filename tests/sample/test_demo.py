"""The demo's stream: one digest however it is run (invariants 1, 2), and the reference's (tools/check-demo-digest)."""
import json
import re
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def demo(source, stoker, tmp_path_factory):
    """Run a command on the sample set, its index in a folder of its own."""
    folder = tmp_path_factory.mktemp("index")

    def run(command, *arguments, **more):
        return stoker(command, source / "examples/sample/stoker.yaml", "--index-dir", folder, *arguments, **more)

    return run


@pytest.fixture(scope="module")
def digest(demo):
    return demo("run", "--digest").stdout.strip()


@pytest.mark.parametrize("flags", [["--serial"], ["--workers", "1"], ["--workers", "2"], ["--workers", "8"], ["--workers", "inline"],
                                   ["--prefetch", "1", "--fetch-ahead", "1MiB"], ["--step-ms", "3"]], ids=" ".join)
def test_however_it_is_run_the_digest_is_one(demo, digest, flags):
    assert re.fullmatch("[0-9a-f]{32}", digest)
    assert demo("run", "--digest", *flags).stdout.strip() == digest


@pytest.mark.parametrize("level", ["none", "avx2", "avx512"])
def test_on_every_cpu_level_the_digest_is_one(demo, digest, level, monkeypatch):
    monkeypatch.setenv("STK_CPU", level)
    assert demo("run", "--digest").stdout.strip() == digest


def test_the_smallest_budget_waits_and_gives_the_same(demo, digest):
    """The message of a budget that is too small names the least one."""
    said = demo("run", "--memory", "1MiB", "--workers", "2", "--prefetch", "1", status=None)
    assert said.returncode == 2, said.stderr
    least = re.search(r" = (\d+): raise memory", said.stderr).group(1)
    report = json.loads(demo("run", "--json", "--workers", "2", "--prefetch", "1", "--memory", least).stdout)
    assert report["digest"] == digest and report["memory"]["waits"] > 0
    assert report["memory"]["peak_bytes"] <= report["memory"]["budget_bytes"]


@pytest.mark.parametrize("flags", [["--world", "2"], ["--world", "3"], ["--world", "4"], ["--micro-batch", "1"], ["--micro-batch", "2"],
                                   ["--world", "2", "--micro-batch", "1"]], ids=" ".join)
def test_ranks_and_micro_batches_do_not_change_a_step(demo, flags):
    for step in (0, 11, 22):                    # 11 crosses an epoch, 22 ends with filler
        wanted = demo("replay", "--step", step, "--digest").stdout.splitlines()
        got = demo("replay", "--step", step, "--digest", *flags).stdout.splitlines()
        assert wanted[-1].startswith("step ") and got[-1] == wanted[-1]


def test_an_interrupted_run_goes_on_where_it_stood(demo, source, interrupt, tmp_path):
    whole = json.loads(demo("run", "--json").stdout)
    status, _, said, _ = interrupt("run", source / "examples/sample/stoker.yaml", "--index-dir", tmp_path, "--json", "--state",
                                   tmp_path / "state", "--step-ms", "500")
    done = int(re.search(r"interrupted after (\d+) steps", said).group(1))
    assert status == 130 and done < whole["steps"]
    rest = json.loads(demo("run", "--json", "--resume", tmp_path / "state").stdout)
    assert done + rest["steps"] == whole["steps"] and rest["state"] == whole["state"]


def test_the_digest_is_that_of_the_references_tensors(source, build):
    pytest.importorskip("transformers")
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, source / "tools/check-demo-digest", "--stoker", build / "cli/stoker"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
