"""Whatever is killed, stopped or full: the same stream, or an error that says what to do, and no wait without an end."""
import itertools
import os
import shutil
import signal

import numpy as np
import pytest
import ray
import stoker
import stoker.ray
from ray_nodes import FAST, MIB, STEPS, WORLD, Nodes, node_ids, read, wait_for


@pytest.fixture(scope="module", autouse=True)
def cluster():
    nodes = Nodes(3, system=FAST)
    nodes.join()
    yield nodes
    nodes.end()


def engines_of(loader):
    return loader.metrics()["ray"]["engines"]


def test_engines_killed_every_ten_steps_change_nothing(load, whole):
    loaders = [load(rank, run="killed", placement="spread", engines=2) for rank in range(WORLD)]
    got, killed = [[] for _ in range(WORLD)], set()
    for start in range(0, STEPS, 10):
        for rank, more in enumerate(read(loaders, 10)):
            got[rank] += more
        told = sorted(engines_of(loaders[0]).values(), key=lambda engine: engine["node"])
        if told:  # one that is just coming up says nothing
            engine = told[start // 10 % len(told)]
            killed.add(engine["pid"])
            os.kill(engine["pid"], signal.SIGKILL)
    assert got == whole and len(killed) >= 8


def test_an_engine_that_opens_another_index_is_refused_and_loses_nothing(config, small, whole, tmp_path):
    """Its plan is another: mixed, the streams of both would lose samples and repeat some, and nobody would see it."""
    shutil.copytree(small["index_dir"], tmp_path / "index")
    options = {**small, "index_dir": tmp_path / "index", "run": "other", "placement": "spread", "engines": 2, "outstanding": 2}
    with stoker.ray.Loader(config, 0, WORLD, **options) as loader:
        assert [(batch.digest(), batch.state) for batch in itertools.islice(loader, 5)] == whole[0][:5]
        first = next(loader)
        reached = first.step
        (tmp_path / "out").write_text(f"{first.samples[0].id}\n")
        stoker.index(config, exclude=[tmp_path / "out"], index_dir=tmp_path / "index")
        name, engine = [(name, engine["pid"]) for name, engine in engines_of(loader).items()][1]
        os.kill(engine, signal.SIGKILL)
        with pytest.raises(stoker.StateError, match=f"engine {name}: .*same index"):
            for batch in loader:
                reached = batch.step
        with pytest.raises(stoker.StateError, match="same index"):
            next(loader)
        assert loader.state_dict() == whole[0][reached][1]
    stoker.ray.stop("other")


def test_a_micro_batch_that_cannot_be_taken_is_not_lost(load, whole, monkeypatch):
    loader = load(0, run="taken", placement="spread", engines=1)
    assert read([loader], 3) == [whole[0][:3]]

    def fail(*arguments):
        raise RuntimeError("for a moment")

    class Broken:
        open = fail

        def __getattr__(self, name):
            return getattr(loader._opener, name)

    for name, broken in (("_ask", fail), ("_opener", Broken())):
        with monkeypatch.context() as patch:
            patch.setattr(loader._reader, name, broken)
            for _ in range(2):
                with pytest.raises(RuntimeError, match="for a moment"):
                    loader.next()
    assert read([loader], 5) == [whole[0][3:8]]


def test_calls_of_an_engine_that_stands_still_are_asked_of_another(load, whole):
    loaders = [load(rank, run="still", placement="spread", engines=2, late=3, timeout=40) for rank in range(WORLD)]
    assert read(loaders, 5) == [rank[:5] for rank in whole]
    name, stopped = [(name, engine["pid"]) for name, engine in engines_of(loaders[0]).items()][0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert read(loaders, 15) == [rank[5:20] for rank in whole]
        assert sum(loader._reader.counts["asked_again"] for loader in loaders) > 0
    finally:
        os.kill(stopped, signal.SIGCONT)
    wait_for(lambda: not any(loader._reader._silent for loader in loaders))
    made = engines_of(loaders[0])[name]["made"]
    assert read(loaders, 20) == [rank[20:40] for rank in whole] and engines_of(loaders[0])[name]["made"] > made


def test_an_engine_that_was_ended_for_good_is_created_anew(load, whole):
    """Such as one whose creator has ended."""
    loader = load(1, run="ended")
    assert read([loader], 5) == [whole[1][:5]]
    before = engines_of(loader)
    assert stoker.ray.stop("ended") == 1
    assert read([loader], 15) == [whole[1][5:20]]
    after = engines_of(loader)
    assert after.keys() == before.keys() and [one["pid"] for one in after.values()] != [one["pid"] for one in before.values()]


def test_a_node_that_goes_without_a_word_changes_nothing(load, whole, cluster):
    """With an engine on it and results in its store; another node takes its place."""
    cluster.nodes.append(cluster.add())
    here, _ = node_ids()
    loaders = [load(rank, run="node", placement="spread", engines=3, late=2) for rank in range(WORLD)]
    assert read(loaders, 10) == [rank[:10] for rank in whole]
    # Neither the head, nor the node that Ray has put this process on, which may be another.
    mine = {node.node_id: node for node in cluster.nodes if node.node_id != here}
    lost = next(engine["node"] for engine in engines_of(loaders[0]).values() if engine["node"] in mine)
    cluster.cluster.remove_node(mine[lost], allow_graceful=False)
    assert read(loaders, STEPS - 10) == [rank[10:] for rank in whole]
    told = engines_of(loaders[0]).values()
    assert all(engine["node"] != lost for engine in told) and sum(loader._reader.counts["asked_again"] for loader in loaders) > 0


def test_an_object_store_that_is_full_is_an_error_of_configuration(load):
    loader = load(0, 1, run="full", batch=1, steps=100_000, epochs=100_000, max_pixels=65536)
    next(loader)
    held = [ray.put(np.zeros(20 * MIB, np.uint8)) for _ in range(6)]  # of 120 MiB
    with pytest.raises(stoker.SetupError, match="--object-store-memory="):
        for _ in loader:
            pass
    assert held and loader.metrics()["ray"]["spilled_bytes"] > 0
    with pytest.raises(stoker.SetupError):
        next(loader)


def test_a_wait_has_an_end_that_says_for_what(load):
    with pytest.raises(stoker.SetupError, match="batch"):
        load(run="batch", batch=0)
    loader = load(0, 1, run="short", timeout=10, batch=1, late=60)
    assert next(loader).step == 0
    pid = next(iter(engines_of(loader).values()))["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(stoker.WaitError, match="raise timeout"):
            for _ in loader:
                pass
    finally:
        os.kill(pid, signal.SIGCONT)
