"""How a cluster is set up: token mode, workers that may not lower their niceness, a head that comes back."""
import json
import os
import re
import subprocess
import sys

import pytest
from ray_nodes import end_session, free_port
from stoker._fleet import hindrances

OPTIONS = {"run": "setup", "batch": 1, "epochs": 100000, "memory": "128MiB", "workers": 1, "max_pixels": 16384, "min_pixels": 4096, "timeout": 120}
WITHOUT_THE_RIGHT = ["setpriv", "--bounding-set=-sys_nice"] if os.geteuid() == 0 else []
BEGIN = """
import json, os, subprocess, sys, time
sys.path.insert(0, sys.argv[2])
import ray_nodes, stoker, stoker.ray
nodes = ray_nodes.Nodes(2, gcs_server_port=ray_nodes.free_port())
nodes.join()
options = json.loads(sys.argv[4]) | {"index_dir": sys.argv[3], "placement": "nodes", "nodes": [nodes.nodes[0].node_id]}
loader = stoker.ray.Loader(sys.argv[1], 0, 1, **options)
got = [next(loader).digest().hex()]
engine = next(iter(loader.metrics()["ray"]["engines"].values()))["pid"]
print("begun", flush=True)
"""


@pytest.fixture
def run(config, source, index_dir):
    """A program that begins so, in a session of its own, of which nothing stays; (its status, what it said last, its errors)."""

    def run_one(program, before=(), **environment):
        ran = subprocess.Popen([*before, sys.executable, "-c", BEGIN + program, config, source / "tests/ray", index_dir, json.dumps(OPTIONS)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **environment})
        try:
            said, errors = ran.communicate(timeout=600)
        finally:
            end_session(ran.pid)
        assert said.startswith("begun"), errors[-3000:]
        return ran.returncode, [line for line in said.splitlines() if line.startswith(("begun", "["))][-1], errors  # Ray speaks between

    return run_one


@pytest.fixture(scope="session")
def first_twenty(config, index_dir):
    import stoker
    with stoker.Loader(config, engine="inprocess", index_dir=index_dir, **OPTIONS) as loader:
        return [batch.digest().hex() for _, batch in zip(range(20), loader)]


def test_a_cluster_in_token_mode(run, first_twenty):
    """Who has the token reads; who has not is told what to set."""
    status, said, errors = run("""
got += [next(loader).digest().hex() for _ in range(19)]
stranger = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_gcs_rpc_server_reconnect_timeout_s": "3"}
refused = subprocess.run([sys.executable, "-c", f"import stoker.ray; stoker.ray.connect({nodes.cluster.address!r})"], env=stranger, capture_output=True, text=True, timeout=300)
print(json.dumps([got, refused.returncode, refused.stderr[-4000:]]))
""", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0123456789abcdef0123456789abcdef")
    assert status == 0, errors[-3000:]
    got, refused, words = json.loads(said)
    assert got == first_twenty and refused != 0 and "RAY_AUTH_MODE" in words, words


LOSES_ITS_HEAD = """
head = nodes.cluster.head_node
head.kill_gcs_server()
"""
COMES_BACK = """
time.sleep(1)
head.start_gcs_server()
"""
KILLS_AN_ENGINE = """
os.kill(engine, 9)
"""
AND_READS = """
try:
    got += [next(loader).digest().hex() for _ in range(19)]
    print(json.dumps(got))
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def test_without_its_head_a_rank_ends_with_an_error(run):
    """Ray ends the process itself, or next() does: whichever finds out first."""
    status, said, errors = run(LOSES_ITS_HEAD + AND_READS.replace("range(19)", "range(10**9)"), RAY_gcs_rpc_server_reconnect_timeout_s="3")
    assert status != 0 and said == "begun" and ("GCS" in errors or "ray status" in errors), errors


def test_a_head_that_comes_back_without_its_memory_ends_the_run_or_changes_nothing(run, first_twenty):
    """It is another cluster, says Ray to whoever asks it for something: until then nobody needs it."""
    status, said, errors = run(LOSES_ITS_HEAD + COMES_BACK + AND_READS)
    assert json.loads(said) == first_twenty if status == 0 else "GCS" in errors, errors


def test_a_head_that_comes_back_with_its_memory_changes_nothing(run, first_twenty, tmp_path):
    """Its memory is in Redis.  An engine is killed beside it."""
    port = free_port()
    redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path], stdout=subprocess.DEVNULL)
    try:
        status, said, errors = run(LOSES_ITS_HEAD + KILLS_AN_ENGINE + COMES_BACK + AND_READS, RAY_REDIS_ADDRESS=f"127.0.0.1:{port}")
    finally:
        redis.kill()
        redis.wait()
    assert status == 0, errors[-3000:]
    assert json.loads(said) == first_twenty


@pytest.mark.parametrize("niceness", ["15", "0"])
def test_ranks_are_warned_of_engines_that_stand_back_behind_others(run, first_twenty, niceness):
    """Who has not the right to (root has it) cannot take back the niceness that Ray gives its workers."""
    status, said, errors = run("""
got += [next(loader).digest().hex() for _ in range(19)]
print(json.dumps([got, next(iter(loader.metrics()["ray"]["engines"].values()))["nice"]]))
""", WITHOUT_THE_RIGHT, RAY_worker_niceness=niceness)
    assert status == 0, errors[-3000:]
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + int(niceness), 19)  # Ray adds its own to that of who starts it
    assert json.loads(said) == [first_twenty, nice]
    told = re.findall("RuntimeWarning: .* runs with niceness (.*), behind everything else there: start its raylet with RAY_worker_niceness=0", errors)
    assert told == ([str(nice)] if nice > 0 else []), errors


def test_a_store_that_shared_memory_has_no_room_for_is_told():
    assert hindrances("node", 0, 2 << 30, 2 << 30) == ()
    (words,) = hindrances("node", 0, 2 << 30, 64 << 20)
    assert "/dev/shm of node node has 64 MiB" in words and "2048 MiB" in words and "--shm-size" in words
