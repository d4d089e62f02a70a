"""Batches from a cluster are those of one machine, whoever makes them."""
import pytest
import ray
import stoker
import stoker.ray
from conftest import MIB, STEPS, WORLD, Nodes


@pytest.fixture(scope="module", autouse=True)
def cluster():
    nodes = Nodes(3)
    nodes.join()
    yield nodes
    nodes.end()


def read(loaders, steps):
    """So many micro-batches of each rank, in turn."""
    got = [[] for _ in loaders]
    for _ in range(steps):
        for rank, loader in enumerate(loaders):
            batch = next(loader)
            got[rank].append((batch.digest(), batch.state))
    return got


@pytest.mark.parametrize("engines", [1, 2, 3])
def test_any_number_of_engines_makes_the_same_stream(load, whole, engines):
    loaders = [load(rank, run=f"count-{engines}", placement="spread", engines=engines) for rank in range(WORLD)]
    assert read(loaders, STEPS) == whole
    with pytest.raises(StopIteration):
        next(loaders[0])
    told = loaders[0].metrics()["ray"]["engines"]
    assert len(told) == engines and len({engine["node"] for engine in told.values()}) == engines
    assert all(engine["made"] > 0 for engine in told.values()) and sum(engine["made"] for engine in told.values()) == WORLD * STEPS
