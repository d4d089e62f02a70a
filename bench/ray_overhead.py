"""What a batch costs on its way through Ray: microseconds in ray.get, copies per byte, and the time from made to in hand.

    .venv-train/bin/python bench/ray_overhead.py --build build [--steps 300]

Two nodes of a cluster on this machine; the rank is on the first.  Its engine is on the same node, then on the other, from which batches are
pulled over loopback.  Copies are counted, as bytes that the object stores of both nodes have created per byte that came.
"""
import argparse
import os
import pathlib
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
MIB = 1 << 20


def created():
    """Bytes that all object stores have created since they began."""
    import ray
    from ray._private.internal_api import node_stats
    return sum(node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], include_memory_info=False).store_stats.cumulative_created_bytes
               for node in ray.nodes() if node["Alive"])


def measure(name, node, steps, folder):
    import stoker.ray
    before = created()
    with stoker.ray.Loader(SOURCE / "examples/sample/stoker.yaml", run=name.replace(" ", "-"), placement="nodes", nodes=[node], batch=8, steps=steps,
                           epochs=1000, index_dir=folder, memory="1GiB", workers=2, outstanding=4) as loader:
        for _ in loader:
            pass
        told = loader.metrics()
    ray = told["ray"]
    print(f"{name:12} {steps} batches of {ray['received_bytes'] / steps / MIB:.2f} MiB: get {ray['get_s'] / steps * 1e6:.0f} us, "
          f"made to in hand {ray['arrival_s'] / steps * 1e3:.1f} ms, copies per byte {(created() - before) / ray['received_bytes']:.2f}, "
          f"{steps / told['wall_s']:.0f} batches/s")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--build", default=SOURCE / "build")
    arguments.add_argument("--steps", type=int, default=300)
    options = arguments.parse_args()
    package = str(pathlib.Path(options.build).resolve() / "python")
    sys.path.insert(0, package)
    os.environ.update(PYTHONPATH=os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])), RAY_AUTH_MODE="disabled",
                      RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0")
    import ray
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, "object_store_memory": 500 * MIB})
    other = cluster.add_node(num_cpus=2, object_store_memory=500 * MIB)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, node in (("same node", ray.get_runtime_context().get_node_id()), ("other node", other.node_id)):
                measure(name, node, options.steps, folder)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
