"""Where Ray is installed (`make test-ray`: .venv-train) these tests run; elsewhere they are not collected.

A cluster is several raylets on this machine, one set a module.  Engines are stopped by the run's name.
"""
import importlib.metadata
import os
import pathlib

import pytest
from ray_nodes import STEPS, WORLD

HAS_RAY = bool(list(importlib.metadata.distributions(name="ray")))  # this folder would do for an import
collect_ignore_glob = [] if HAS_RAY else ["test_*.py"]

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_memory_monitor_refresh_ms="0", OMP_NUM_THREADS="1")
os.environ["PYTHONPATH"] += f"{os.pathsep}{pathlib.Path(__file__).parent}"  # so that workers find what the tests hand them


@pytest.fixture(scope="session")
def small(index_dir):
    """Options of a run of many small steps."""
    return {"index_dir": index_dir, "memory": "128MiB", "workers": 1, "batch": WORLD, "steps": STEPS, "max_pixels": 16384, "min_pixels": 4096}


@pytest.fixture(scope="session")
def whole(config, small):
    """The digests and states that an engine of this process gives, by rank."""
    import stoker
    made = []
    for rank in range(WORLD):
        with stoker.Loader(config, rank, WORLD, engine="inprocess", **small) as loader:
            made.append([(batch.digest(), batch.state) for batch in loader])
    assert all(len(rank) == STEPS for rank in made) and len({digest for rank in made for digest, _ in rank}) > 40
    return made


@pytest.fixture
def load(config, small):
    """Open a loader; closed at the end."""
    import stoker.ray
    opened = []

    def open_one(rank=0, world=WORLD, **options):
        loader = stoker.ray.Loader(config, rank, world, **{**small, "run": "test", **options})
        opened.append(loader)
        return loader

    yield open_one
    for loader in opened:
        loader.close()
    for run in {loader._fleet.run for loader in opened}:
        stoker.ray.stop(run)
