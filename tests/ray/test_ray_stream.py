"""Batches from a cluster are those of one machine, whoever makes them, and only references go another way than to who reads them."""
import os
import re
import shutil
import time

import numpy as np
import pytest
import ray
import stoker
import stoker.ray
from ray._private.internal_api import memory_summary
from ray_nodes import MIB, STEPS, WORLD, Nodes, Rank, Reader, bound_to, node_ids, read, store_of, wait_for


@pytest.fixture(scope="module", autouse=True)
def cluster():
    nodes = Nodes(3)
    nodes.join()
    yield nodes
    nodes.end()


@pytest.mark.parametrize("engines", [1, 2, 3])
def test_any_number_of_engines_makes_the_same_stream(load, whole, engines):
    loaders = [load(rank, run=f"count-{engines}", placement="spread", engines=engines) for rank in range(WORLD)]
    assert read(loaders, STEPS) == whole
    with pytest.raises(StopIteration):
        next(loaders[0])
    counts = loaders[0].metrics()["ray"]
    told, here = counts["engines"], node_ids()[0]
    assert set(counts["links"]) == {engine["node"] for engine in told.values()} - {here}
    assert all(link["bytes"] > 0 for link in counts["links"].values())
    assert sum(link["bytes"] for link in counts["links"].values()) <= counts["received_bytes"]
    assert len(told) == engines and len({engine["node"] for engine in told.values()}) == engines
    assert all(engine["made"] > 0 for engine in told.values()) and sum(engine["made"] for engine in told.values()) == WORLD * STEPS


def test_the_configuration_says_where_engines_are(config, small, whole, tmp_path):
    shutil.copytree(config.parent, tmp_path / "set")
    with open(tmp_path / "set/stoker.yaml", "a", encoding="utf-8") as file:
        file.write("\nplacement: spread\nrun: configured\n")
    with stoker.ray.Loader(tmp_path / "set/stoker.yaml", 1, WORLD, **small) as loader:
        assert loader.run == "configured" and read([loader], 6) == [whole[1][:6]]
        assert len({engine["node"] for engine in loader.metrics()["ray"]["engines"].values()}) == 3
    assert stoker.ray.stop("configured") == 3


def test_a_rank_that_is_alone_shares_its_engine_with_nobody(load, monkeypatch):
    """Whatever else runs in the launcher's job; as stoker.Loader."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    one, two = load(0, 1, run=None, batch=1), load(0, 1, run=None, batch=2)
    assert len(next(one).samples) == 1 and len(next(two).samples) == 2 and one.run != two.run


def test_the_first_batches_are_made_while_the_trainer_sets_up(load):
    loader, end = load(0, run="cold"), time.monotonic() + 60
    while not loader.metrics()["ray"]["received_bytes"]:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert next(iter(loader.metrics()["ray"]["engines"].values()))["made"] > 0


def test_no_tensor_goes_through_the_driver(config, small):
    """Ranks and engines on two nodes, the driver on a third, in whose object store nothing of theirs ever is."""
    here, others = node_ids()
    large = {**small, "max_pixels": 200704}  # what is under 100 KiB travels in the answer itself, and through no store
    before = [store_of(node).cumulative_created_bytes for node in (here, *others)]
    options = {**large, "run": "apart", "placement": "nodes", "nodes": others, "detached": True}
    ranks = [ray.remote(Rank).options(num_cpus=0.1, scheduling_strategy=bound_to(others[rank % 2])).remote() for rank in range(WORLD)]
    told = ray.get([rank.read.remote(str(config), i, 30, options) for i, rank in enumerate(ranks)], timeout=600)
    with stoker.Loader(config, 1, WORLD, engine="inprocess", **large) as local:
        assert told[1][0] == read([local], 30)[0]
    grown = [store_of(node).cumulative_created_bytes - start for node, start in zip((here, *others), before)]
    assert grown[0] < 100_000 and min(grown[1:]) > 1_000_000 and sum(grown[1:]) > 0.8 * sum(size for _, size in told)
    assert stoker.ray.stop("apart") == 2


def test_a_rank_owns_what_it_is_given(load, monkeypatch):
    core = ray._private.worker.global_worker.core_worker
    owners, get = [], ray.get

    def spy(refs, **more):
        if not isinstance(refs, list):
            owners.append(core.get_owner_address(refs))
        return get(refs, **more)

    monkeypatch.setattr(ray, "get", spy)
    read([load(0, 1, run="owner", batch=1, placement="spread", engines=2)], 10)
    assert len(owners) >= 10 and set(owners) == {core.get_owner_address(ray.put(0))}


def test_ray_memory_lists_the_rank_as_the_owner_of_all(load, cluster):
    """And the engine, on another node, of nothing."""
    _, others = node_ids()
    loader = load(0, 1, run="memory", batch=1, max_pixels=200704, placement="nodes", nodes=others[:1])
    held = [next(loader) for _ in range(2)]
    rows = [[column.strip() for column in line.split("|")] for line in memory_summary(cluster.cluster.address, stats_only=False).splitlines()]
    pinned = [row for row in rows if "PINNED_IN_MEMORY" in row]
    assert len(pinned) >= len(held) and {row[1] for row in pinned} == {str(os.getpid())}
    assert sum(float(row[6].split()[0]) for row in pinned) >= sum(view.nbytes for batch in held for view in batch.values())


def test_an_engine_stays_when_the_loader_that_created_it_closes(config, small, whole):
    first, second = (ray.remote(num_cpus=0)(Reader).remote() for _ in range(2))
    for rank, reader in enumerate((first, second)):
        ray.get(reader.open.remote(str(config), rank, {**small, "run": "stays", "placement": "spread", "engines": 1}), timeout=600)
    ray.get(first.read.remote(2), timeout=600)
    _, before = ray.get(second.read.remote(1), timeout=600)
    ray.get(first.close.remote(), timeout=600)
    got, after = ray.get(second.read.remote(30), timeout=600)
    assert got == [digest for digest, _ in whole[1][1:31]] and before == after
    assert stoker.ray.stop("stays") == 1


def test_states_go_from_one_kind_of_loader_to_the_other(load, config, small, whole):
    loaders = [load(rank, run="state") for rank in range(WORLD)]
    assert read(loaders, 37) == [rank[:37] for rank in whole]
    states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] == whole[0][36][1] for state in states)
    with stoker.Loader(config, 2, WORLD, engine="inprocess", state=states[0], **small) as local:
        assert [(batch.digest(), batch.state) for batch in local] == whole[2][37:]
    there = load(3, run="state", state=whole[1][80][1])
    assert read([there], 5) == [whole[3][81:86]]
    there.load_state_dict(states[1])
    assert read([there], 4) == [whole[3][37:41]]
    there.reset()
    assert read([there], 2) == [whole[3][:2]] and len(there) == STEPS == there.steps
    with stoker.Loader(config, engine="inprocess", **{**small, "seed": 77}) as other, pytest.raises(stoker.StateError, match="seed"):
        load(0, run="state", state=other.state_dict())


def test_a_batch_is_that_of_a_local_loader(load, config, small):
    """Mapping, attributes, dict, samples; views of the object store, which keep it; read-only; aligned."""
    remote = load(1, run="views")
    with stoker.Loader(config, 1, WORLD, engine="inprocess", **{**small, "keep": 2}) as local:
        for a, b in zip(remote, local):
            assert type(a) is type(b) and list(a) == list(b) and a.samples == b.samples and a.state == b.state
            assert (a.step, a.rank, a.tokens, a.loss_tokens, a.step_loss_tokens) == (b.step, b.rank, b.tokens, b.loss_tokens, b.step_loss_tokens)
            for name, view in a.items():
                assert np.array_equal(view, b[name]) and view.ctypes.data % 64 == 0 and not view.flags.writeable, name
            plain = a.dict()
            assert plain.keys() == b.dict().keys() and plain["labels"].flags.writeable
            assert (a.pixel_rule.table == b.pixel_rule.table).all()
            if a.step == 20:
                break
    view, copy = a["input_ids"], a["input_ids"].copy()
    a.release()
    remote.close()
    assert (view == copy).all()


def test_siblings_get_what_was_made_once_and_only_the_fields_they_want(load):
    loader, wanted = load(2, run="fields", readers=2), ("labels", "image_grid_thw")
    some = load(2, run="fields", readers=2, fields=wanted)
    for _, full, part in zip(range(20), loader, some):
        assert set(part) == set(wanted) & set(full) and all((part[name] == full[name]).all() and part[name].ctypes.data % 64 == 0 for name in part)
        assert part.samples == full.samples and part.loss_tokens == full.loss_tokens
    told = [one.metrics() for one in (loader, some)]
    assert told[1]["ray"]["received_bytes"] < told[0]["ray"]["received_bytes"] / 3
    assert told[1]["micro_batches"] <= 30 and next(iter(told[1]["ray"]["engines"].values()))["made"] >= 40


@pytest.fixture
def both(config, tmp_path):
    """A configuration of training and evaluation."""
    shutil.copytree(config.parent, tmp_path / "set")
    with open(tmp_path / "set/stoker.yaml", "a", encoding="utf-8") as file:
        file.write("\neval:\n  batch: 4\n  data: [{name: sample, path: train.jsonl, first: 12}]\n")
    return tmp_path / "set/stoker.yaml"


def test_training_and_evaluation_and_tensors(both, small):
    torch = pytest.importorskip("torch")
    import stoker.torch

    class Loader(stoker.torch.Loader, stoker.ray.Loader):
        pass

    options = {**small, "run": "both", "node_ranks": range(2), "max_pixels": 16384}
    with Loader(both, 0, 2, split="eval", device="cpu", **options) as evaluation, \
            Loader(both, 0, 2, device="cpu", dtype=torch.bfloat16, **options) as training:
        for _ in range(2):
            seen = list(evaluation)
            assert len(seen) == 3 and max(int(batch["image_grid_thw"].prod(1).max()) for batch in seen if "image_grid_thw" in batch) <= 64
            evaluation.reset()
        for _, batch in zip(range(8), training):
            assert all(isinstance(value, torch.Tensor) for value in batch.values())
            assert "pixel_bytes" not in batch and batch.get("pixel_values", torch.zeros(1, dtype=torch.bfloat16)).dtype == torch.bfloat16
        assert training.state_dict() == batch.state and batch.step == 7
    assert stoker.ray.stop("both") == 1


def test_training_and_evaluation_share_the_part_of_the_stores(both, small):
    """What the loader of one may have in them, that of the other may not."""
    def load(split, **options):
        return stoker.ray.Loader(both, 0, 1, split=split, **{**small, "run": "share", "outstanding": 2, **options})

    with load("eval") as first, load("train") as second:
        need = [loader._opener.batch_bytes * (loader._opener.keep + 2) for loader in (first, second)]
        store = min(node["Resources"]["object_store_memory"] for node in ray.nodes() if node["Alive"])
        share = 1.01 * max(need) / store
        second.close()
        first.close()
        with load("train", store_share=share):
            with pytest.raises(stoker.SetupError, match="bytes of its loader for training take"):
                load("eval", store_share=share)
            with load("eval", store_share=1.01 * sum(need) / store) as beside:
                assert sum(1 for _ in beside) == 3
        with load("eval", store_share=share) as alone:
            assert sum(1 for _ in alone) == 3


def test_what_does_not_fit_together_is_refused(load, config, small):
    first = load(0, run="agree")
    for wrong, words in (({"seed": 5}, "seed"), ({"world": 2, "rank": 1}, "world of 4")):
        with pytest.raises(stoker.SetupError, match=words):
            load(**{"rank": 1, "run": "agree", **wrong})
    for wrong, words in (({"placement": "near"}, "placement"), ({"nodes": ["x"]}, "nodes"), ({"placement": "nodes", "nodes": ["10.0.0.77"]}, "10.0.0.77"),
                         ({"placement": "spread", "engines": 9}, "9 engines"), ({"placement": "spread", "num_cpus": 64}, "num_cpus=64"),
                         ({"outstanding": 4000}, "--object-store-memory="), ({"placement": "local", "num_cpus": 64, "start_timeout": 2}, "num_cpus=64")):
        with pytest.raises(stoker.Error, match=words):
            load(**{"run": re.sub(r"\W", "", f"refused{sorted(wrong.items())[0][1]}"), **wrong})
    with pytest.raises(stoker.Error, match="`run`"):
        load(run=None)
    with pytest.raises(stoker.CallError, match="cannot name a run"):
        load(run="a/b")
    with pytest.raises(stoker.SetupError, match="no_such_option"):
        load(run="option", no_such_option=1)
    with pytest.raises(TimeoutError):
        first.next(0)
        for _ in range(STEPS):
            first.next(0)
    held = [next(first) for _ in range(3)]
    with pytest.raises(stoker.SetupError, match="holds 3 batches, and keep is 2"):
        next(first)
    assert held[2].step == held[0].step + 2


def test_the_object_store_stays_flat(load):
    """More goes through it than it holds."""
    here, _ = node_ids()
    before = store_of(here).object_store_bytes_used
    loader = load(0, 1, run="flat", batch=1, steps=1000, epochs=100, max_pixels=65536)
    most = (loader._outstanding + loader._opener.keep + 1) * loader._opener.batch_bytes
    for number, batch in enumerate(loader):
        if number % 100 == 99:  # what was let go goes in batches, or after a while
            wait_for(lambda: store_of(here).object_store_bytes_used - before <= most)
    told = loader.metrics()["ray"]
    assert number == 999 and told["received_bytes"] > 120 * MIB and told["spilled_bytes"] == 0 and most < 20 * MIB


def test_a_reader_that_stands_still_fills_no_store(load):
    """Field report G07: what is under way is bounded by calls, and these by the bytes of the store, however long nobody reads."""
    here, _ = node_ids()
    before = store_of(here).object_store_bytes_used
    loader = load(0, 1, run="still", batch=1, steps=1000, epochs=100, max_pixels=65536)
    for read_so_far in (1, 20, 21):
        while loader._reader.counts["calls"] - loader._reader.metrics()["ray"]["outstanding"] < read_so_far:
            batch = next(loader)
        made = -1
        for _ in range(100):
            told = loader.metrics()["ray"]
            last, made = made, sum(engine["made"] for engine in told["engines"].values())
            if last == made == read_so_far + told["outstanding"]:
                break
            time.sleep(0.1)
        assert last == made == read_so_far + told["outstanding"]
        most = (told["outstanding"] + loader._opener.keep + 1) * loader._opener.batch_bytes
        assert batch.step == read_so_far - 1 and store_of(here).object_store_bytes_used - before <= most
