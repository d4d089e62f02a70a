"""Clusters of several nodes on this machine, and ranks that run on them."""
import contextlib
import os
import pathlib
import signal
import socket
import time

MIB = 1 << 20
WORLD, STEPS = 4, 100
# What finds a lost node in seconds.
FAST = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_timeout_ms": 2000, "health_check_failure_threshold": 5}


class Nodes:
    """A cluster: a head, and nodes beside it."""

    def __init__(self, count, store=120 * MIB, cpus=2, system=None, **more):
        from ray.cluster_utils import Cluster
        self.store, self.cpus = store, cpus
        head = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store, **more}
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


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Rank:
    """A rank in an actor of its own, as Ray's own workers and Ray Train's are."""

    def read(self, config, rank, steps, options):
        """Digests and states of its first micro-batches, and bytes that came to it."""
        import stoker.ray
        with stoker.ray.Loader(config, rank, WORLD, **options) as loader:
            got = [(batch.digest(), batch.state) for _, batch in zip(range(steps), loader)]
            return got, loader.metrics()["ray"]["received_bytes"]


class Reader:
    """A rank in an actor of its own, step by step."""

    def open(self, config, rank, options):
        import stoker.ray
        self.loader = stoker.ray.Loader(config, rank, WORLD, **options)

    def read(self, steps):
        """Digests, and the processes of its engines."""
        got = [next(self.loader).digest() for _ in range(steps)]
        return got, {told["pid"] for told in self.loader.metrics()["ray"]["engines"].values()}

    def close(self):
        import gc
        self.loader.close()
        del self.loader
        gc.collect()


def read(loaders, steps):
    """So many micro-batches of each rank, in turn: digests and states by rank."""
    got = [[] for _ in loaders]
    for _ in range(steps):
        for rank, loader in enumerate(loaders):
            batch = next(loader)
            got[rank].append((batch.digest(), batch.state))
    return got


def wait_for(what):
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


def store_of(node_id):
    """What a node's object store has counted since it began."""
    import ray
    from ray._private.internal_api import node_stats
    node = next(node for node in ray.nodes() if node["NodeID"] == node_id)
    return node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False).store_stats


def bound_to(node_id):
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


def node_ids():
    """This node's, and the others'."""
    import ray
    here = ray.get_runtime_context().get_node_id()
    return here, [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]


def end_session(leader):
    """Of the cluster that the process started nothing stays."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            pid, rest = stat.parent.name, stat.read_text().rpartition(")")[2].split()
            if int(rest[3]) == leader:
                os.kill(int(pid), signal.SIGKILL)
