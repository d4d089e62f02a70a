"""What the tests of stoker.hf share: the sample set with an `eval`, indexed, runs of several processes, and a Ray cluster beside them."""
import os
import shutil
import subprocess
import sys

import pytest


@pytest.fixture(scope="session")
def package():
    return pytest.importorskip("stoker")


@pytest.fixture(scope="session")
def sample(package, source, tmp_path_factory):
    """Its configuration, in which nothing is stated that TrainingArguments decide."""
    pytest.importorskip("stoker._core")
    folder = tmp_path_factory.mktemp("hf") / "sample"
    shutil.copytree(source / "examples/sample", folder)
    config = folder / "stoker.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(("batch:", "epochs:"))]
    config.write_text("\n".join([*lines, "workers: 1", "memory: 256MiB", "eval: {data: [{name: sample, path: train.jsonl, first: 6}]}", ""]))
    for split in ("train", "eval"):
        package.plan(config, batch=4, split=split, **({} if split == "train" else {"eval.batch": 4}))
    return config


@pytest.fixture(scope="session")
def launch():
    """Start a script on some processes by torchrun, and wait for all to end well: ``launch(2, script, *arguments, **environment)``."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(processes, script, *arguments, **more):
        by_torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes > 1 else []
        done = subprocess.run([sys.executable, *by_torchrun, str(script), *map(str, arguments)], capture_output=True, text=True, timeout=240,
                              env={**environment, **more})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout

    return run


@pytest.fixture(scope="session")
def cluster(source):
    """A cluster of one node: the environment of processes that join it."""
    pytest.importorskip("ray.cluster_utils")
    environment = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(source / "tests/ray")
        for name, value in environment.items():
            patch.setenv(name, value)
        from ray_nodes import Nodes
        nodes = Nodes(1)
        yield {**environment, "RAY_ADDRESS": nodes.cluster.address}
        nodes.end()
