"""Ranks that Ray Train started, and ranks that torchrun started beside the cluster, read the same stream."""
import json
import os
import subprocess
import sys

import pytest
import ray
import stoker.ray
from ray_nodes import WORLD, Nodes


@pytest.fixture(scope="module", autouse=True)
def cluster():
    nodes = Nodes(1, cpus=4)
    nodes.join()
    yield nodes
    nodes.end()


def train(told):
    """What runs on each worker of Ray Train."""
    import ray.train
    import stoker.ray
    place = ray.train.get_context()
    with stoker.ray.Loader(told["config"], place.get_world_rank(), place.get_world_size(), node_ranks=range(2), **told["options"]) as loader:
        for _, batch in zip(range(10), loader):
            pass
        with open(f"{told['folder']}/{batch.rank}.json", "w", encoding="utf-8") as file:
            json.dump([batch.state, batch.digest().hex()], file)


def local(config, small, rank, world, steps):
    with stoker.Loader(config, rank, world, engine="inprocess", **small) as loader:
        return [(batch.digest(), batch.state) for _, batch in zip(range(steps), loader)]


def test_workers_of_a_torch_trainer(config, small, tmp_path):
    torch = pytest.importorskip("ray.train.torch")
    trainer = torch.TorchTrainer(train, train_loop_config={"config": str(config), "options": small, "folder": str(tmp_path)},
                                 scaling_config=ray.train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
                                 run_config=ray.train.RunConfig(storage_path=str(tmp_path / "runs"), name="stoker"))
    trainer.fit()
    for rank in range(2):
        state, digest = json.loads((tmp_path / f"{rank}.json").read_text())
        assert (bytes.fromhex(digest), state) == local(config, small, rank, 2, 10)[-1]


TORCHRUN = """
import json, os, sys
import stoker.ray
options = json.loads(sys.argv[2])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
with stoker.ray.Loader(sys.argv[1], rank, world, **options) as loader:
    told = [loader.run, [batch.digest().hex() for _, batch in zip(range(20), loader)]]
with open(f"{sys.argv[3]}/{rank}.json", "w", encoding="utf-8") as file:
    json.dump(told, file)
"""


def test_ranks_that_torchrun_started(config, small, whole, cluster, tmp_path):
    """Each joins the cluster by itself; the launcher's id is the run's name."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TORCHRUN, encoding="utf-8")
    options = json.dumps({**small, "index_dir": str(small["index_dir"]), "detached": True})
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc-per-node={WORLD}", "--rdzv-backend=c10d",
                           "--rdzv-endpoint=127.0.0.1:0", "--rdzv-id=job-7", tmp_path / "train.py", config, options, tmp_path],
                          env={**os.environ, "RAY_ADDRESS": cluster.cluster.address}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(WORLD)]
    assert [digests for _, digests in told] == [[digest.hex() for digest, _ in rank[:20]] for rank in whole]
    (run,) = {run for run, _ in told}
    assert run.startswith("torch-job-7-") and stoker.ray.stop(run) == 1


def test_a_process_that_finds_no_cluster_is_told(config, small):
    program = f"import stoker.ray\nstoker.ray.Loader({str(config)!r}, address='127.0.0.1:1', memory='128MiB')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "2", "RAY_raylet_start_wait_time_s": "2"})
    assert done.returncode != 0 and ("CallError" in done.stderr or "Failed to connect" in done.stderr), done.stderr[-2000:]
