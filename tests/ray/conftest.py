"""Where Ray is installed (`make test-ray`: .venv-train) these tests run; elsewhere they are not collected.

A cluster is several raylets on this machine, one set a module.  Engines end with their loaders, or are stopped by name.
"""
import importlib.util
import os

import pytest

HAS_RAY = importlib.util.find_spec("ray") is not None
collect_ignore_glob = [] if HAS_RAY else ["test_*.py"]

os.environ.update(RAY_AUTH_MODE="disabled", RAY_USAGE_STATS_ENABLED="0", RAY_memory_monitor_refresh_ms="0", OMP_NUM_THREADS="1")
MIB = 1 << 20
WORLD, STEPS = 4, 100
# What finds a lost node in seconds.
FAST = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_timeout_ms": 500, "health_check_failure_threshold": 3}


class Nodes:
    """A cluster: a head, and nodes beside it."""

    def __init__(self, count, store=120 * MIB, cpus=2, system=None):
        from ray.cluster_utils import Cluster
        self.store, self.cpus = store, cpus
        head = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store}
        if system:
            head["_system_config"] = system
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.add() for _ in range(count - 1)]

    def add(self):
        return self.cluster.add_node(num_cpus=self.cpus, object_store_memory=self.store)

    def join(self):
        import ray
        ray.init(address=self.cluster.address, namespace="stoker", log_to_driver=False, logging_level="ERROR")

    def end(self):
        import ray
        ray.shutdown()
        self.cluster.shutdown()


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
