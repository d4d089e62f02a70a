"""stoker.torch.agree: ranks have one stream, or stop together, told what differs and where."""
import json
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("stoker._core")

# Two processes go through these cases together; RUN + "{rank}" is an engine of each rank's own, as on two machines.
PROGRAM = """
import json, os, sys, torch.distributed as dist, stoker, stoker.torch
rank, folder, run = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
said = {}

def load(name, config="one", both=True, **options):
    own = f"{run}-{name}".replace(" ", "-").replace(",", "")
    places = {"run": own, "node_ranks": [0, 1]} if both else {"run": f"{own}-{rank}"}
    return stoker.torch.Loader(f"{folder}/{config}/stoker.yaml", rank, 2, device="cpu", memory="256MiB", workers=1, **places, **options)

def case(name, call, **options):
    try:
        said[name] = call(name, **options)
    except Exception as failed:
        said[name] = [type(failed).__name__, str(failed)]

def read(name, **options):
    with load(name, **options) as loader:
        return next(loader).step

def go_on(name):
    with load(name) as loader:
        states = [batch.state for _, batch in zip(range(4), loader)]
        loader.load_state_dict(states[1])
        together = next(loader).step
        try:
            loader.load_state_dict(states[1 + rank])
        except stoker.StateError as failed:
            try:
                next(loader)
            except stoker.CallError as closed:
                return [together, str(failed), str(closed)]

def agree(name, group=None):
    with stoker.Loader(f"{folder}/one/stoker.yaml", memory="256MiB", workers=1) as loader:
        stoker.torch.agree(loader, group, timeout=0.3)

case("one machine", read)
case("two machines", read, both=False)
case("seed, one machine", read, seed=1 + rank)
case("seed, two machines", read, both=False, seed=1 + rank, layout=["padded", "flat"][rank])
case("micro_batch", read, both=False, micro_batch=1 + rank)
case("data", read, both=False, config=["one", "other"][rank])
case("no data", read, both=False, config=["one", "none"][rank])
case("place", go_on)
group, alone = dist.new_group([0, 1]), dist.new_group([1])
case("alone", agree, group=alone)
for turn in (0, 1):     # the first rank, and then the one that it did not wait for any more
    if turn == rank:
        case("late", agree)
    dist.barrier()
if rank == 1:
    case("first is late", agree, group=group)
dist.barrier()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(config, tmp_path_factory):
    """What both ranks met, by case."""
    folder = tmp_path_factory.mktemp("agree")
    for name in ("one", "other", "none"):
        shutil.copytree(config.parent, folder / name)
    records = (folder / "one/train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "other/train.jsonl").write_text("".join(records[:-1]), encoding="utf-8")
    (folder / "none/train.jsonl").unlink()
    ranks = [subprocess.Popen([sys.executable, "-c", PROGRAM, str(rank), folder, f"agree-{os.getpid()}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) for rank in range(2)]
    try:
        ended = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "".join(errors for _, errors in ended)
    return [json.loads(out.splitlines()[-1]) for out, _ in ended]


def both(said, name):
    """What both were told, the same."""
    assert said[0][name] == said[1][name]
    return said[0][name]


def test_equal_ranks_read(said):
    assert both(said, "one machine") == both(said, "two machines") == 0


def test_an_option_that_differs_stops_both_and_is_named(said):
    kind, words = both(said, "seed, two machines")
    assert kind == "SetupError" and "seed is 1 on rank 0, and 2 on rank 1" in words and "layout is padded on rank 0, and flat on rank 1" in words
    kind, words = both(said, "micro_batch")
    assert kind == "SetupError" and "number of micro-batches is 46 on rank 0, and 23 on rank 1" in words


def test_who_was_refused_by_the_engine_stops_the_other_too(said):
    (kind, words), (other_kind, other) = (each["seed, one machine"] for each in said)
    assert kind == other_kind == "SetupError"
    refused = 0 if "could not open" in other else 1
    told = [words, other][1 - refused]
    assert "seed: 1" in words and "seed: 2" in words and "seed: 1" in other and f"rank {refused} could not open its loader: " in told


def test_data_that_differ_are_named(said):
    kind, words = both(said, "data")
    assert kind == "SetupError" and "data set sample is of 45 records" in words and "of 44 records" in words and "rank 1" in words
    (kind, words), (_, own_words) = (each["no data"] for each in said)
    assert kind == "SetupError" and "rank 1 could not open its loader: " in words and "train.jsonl" in words and own_words in words


def test_ranks_go_on_at_one_place(said):
    together, words, closed = both(said, "place")
    assert together == 2 and "step is 2 on rank 0, and 3 on rank 1" in words and "closed" in closed


def test_waiting_has_an_end_and_names_whom_it_waited_for(said):
    kind, words = both(said, "late")
    assert kind == "WaitError" and "rank 1 did not open a loader within 0.3 s" in words
    kind, words = said[1]["first is late"]
    assert kind == "WaitError" and "rank 0 did not open a loader" in words


def test_where_nobody_else_is_nothing_happens(said, load):
    import stoker.torch
    assert both(said, "alone") is None
    assert stoker.torch.agree(load()) is None       # no process group


def test_many_ranks_are_told_in_few_words():
    from stoker import _agree
    told = [{"seed": str(rank // 90), "batch": "4"} for rank in range(100)]
    words = _agree.differences(told, [str(rank) for rank in range(100)])
    assert words == {"seed": "seed is 0 on ranks 0, 1, 2, 3, 4, 5, 6, 7 and 82 more, and 1 on ranks 90, 91, 92, 93, 94, 95, 96, 97 and 2 more"}
