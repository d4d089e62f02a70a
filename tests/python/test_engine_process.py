"""Loaders that share an engine process: the same stream, whoever reads it and whatever is killed."""
import contextlib
import errno
import itertools
import os
import pathlib
import re
import signal
import socket
import time
import subprocess
import sys

import numpy as np
import pytest


@pytest.fixture
def run_name(request):
    """A name that no other test has."""
    return f"{request.node.originalname[:40]}-{os.getpid()}"


@pytest.fixture
def engine():
    return "process"


def engine_of(run_name):
    """Its process."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if folder.name.isdigit() and f"\0{run_name}\0".encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    assert len(found) == 1, found
    return found[0]


def arenas():
    """What this process has mapped of other processes' memory, read-only: [first address, behind the last, inode, bytes that were looked at]."""
    found = []
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        if words := re.match(r"([0-9a-f]+)-([0-9a-f]+) (....) \S+ \S+ (\d+)", line):
            ours = "stoker-arena" in line and words[3].startswith("r--")
            if ours:
                found.append([int(words[1], 16), int(words[2], 16), int(words[4]), 0])
        elif ours and line.startswith("Rss:"):
            found[-1][3] = 1024 * int(line.split()[1])
    return found


def place_of(field):
    """Where a field lies in which engine's memory."""
    for first, behind, inode, _ in arenas():
        if first <= field.address and field.address + field.nbytes <= behind:
            return inode, field.address - first
    raise AssertionError(f"{field.name} lies in no engine's memory")


def digests(loader):
    return [batch.digest() for batch in loader]


@pytest.fixture
def whole(package, config, index_dir):
    with package.Loader(config, index_dir=index_dir, engine="inprocess", workers=2) as loader:
        return digests(loader)


def test_siblings_read_the_same_memory_and_only_the_fields_they_want(load, run_name, whole):
    first = load(run=run_name, readers=2)
    last = load(run=run_name, readers=2, fields=["labels", "input_ids"])
    for wanted, batch, sibling in zip(whole, first, last):
        assert batch.digest() == wanted and set(sibling) == {"input_ids", "labels"}
        assert batch.step == sibling.step and (batch["labels"] == sibling["labels"]).all()
        assert all(place_of(batch.field(name)) == place_of(sibling.field(name)) for name in sibling)


def test_who_asks_for_labels_touches_no_pixels(load, run_name):
    """As in a last pipeline stage: what it maps of the memory is what it reads."""
    loader, pixels = load(run=run_name, fields=["labels"], max_pixels=802816, memory="1GiB"), 0
    full = load(run=run_name[-40:] + "-full", max_pixels=802816, memory="1GiB")
    for batch, other in zip(itertools.islice(loader, 2), full):
        assert batch["labels"].sum() == other["labels"].sum()
        pixels += int(other["pixel_bytes"].sum() > 0) * other["pixel_bytes"].nbytes
    touched = {inode: size for _, _, inode, size in arenas()}
    part, all_of_it = (touched[place_of(some.field("labels"))[0]] for some in (batch, other))
    assert pixels > 2 << 20 and part < pixels / 8 and all_of_it >= pixels, (pixels, part, all_of_it)


@pytest.mark.parametrize("options", [{"layout": "padded"}, {"layout": "flat"}, {"layout": "packed", "row_tokens": 2048},
                                     {"layout": "flat", "targets": "shifted"}, {"pixels": "float32"}], ids=lambda options: " ".join(map(str, options.values())))
def test_readers_of_a_rank_see_pixels_where_they_were_made(load, run_name, options):
    """Each maps the arena at an address of its own; behind both are the same bytes."""
    readers = [load(run=run_name, readers=2, **options) for _ in range(2)]
    name, places, seen = "pixel_values" if "pixels" in options else "pixel_bytes", set(), 0
    for batches in zip(*readers):
        fields = [batch.field(name) for batch in batches if name in batch]
        if fields:
            place, same = map(place_of, fields)
            assert place == same and fields[0].address != fields[1].address
            places.add(place)
            seen += 1
    assert seen > 1 and len({inode for inode, _ in places}) == 1 and len(places) > 1


def test_a_killed_engine_changes_nothing(load, run_name, whole):
    loader, got = load(run=run_name), []
    for batch in loader:
        got.append(batch.digest())
        if batch.step in (3, 12):
            array, before = batch["input_ids"], batch["input_ids"].copy()
            os.kill(engine_of(run_name), signal.SIGKILL)
    assert got == whole and (array == before).all()


def test_who_only_looks_whether_it_is_there_does_not_hold_an_engine(load, run_name):
    """As each engine that starts does with the sockets of the others."""
    loader = load(run=run_name)
    next(loader)
    (log,) = [link for link in map(os.path.realpath, pathlib.Path(f"/proc/{engine_of(run_name)}/fd").iterdir()) if link.endswith(f"/{run_name}.log")][:1]
    place = pathlib.Path(log).parent
    loader.close()
    for _ in range(400):
        with socket.socket(socket.AF_UNIX) as looking:
            if looking.connect_ex(str(place / f"{run_name}.sock")):
                return
        time.sleep(0.1)
    pytest.fail("the engine is still there")


def test_training_and_evaluation_share_one(package, load, run_name, config, tmp_path):
    import shutil
    folder = tmp_path / "set"
    shutil.copytree(config.parent, folder)
    with open(folder / "stoker.yaml", "a", encoding="utf-8") as file:
        file.write("\neval:\n  batch: 2\n  data: [{name: sample, path: train.jsonl, first: 6}]\n")
    both = [package.Loader(folder / "stoker.yaml", run=run_name, split=split, memory="512MiB", workers=1) for split in ("train", "eval")]
    assert engine_of(run_name)
    for _ in range(2):
        assert next(both[0])["labels"].shape[0] == 4
        assert [[sample.line for sample in batch.samples] for batch in both[1]] == [[1, 2], [3, 4], [5, 6]]
        both[1].reset()
    for loader in both:
        loader.close()


def test_who_asks_for_something_else_is_refused(package, load, run_name):
    loader = load(run=run_name, readers=2)
    with pytest.raises(package.Error, match="seed"):
        load(run=run_name, readers=2, seed=77)
    with pytest.raises(package.Error):
        load(1, 2, run=run_name)
    assert next(loader).step == 0


def test_a_rank_may_go_back_to_what_is_gone(package, load, run_name, config, index_dir):
    """The other one goes on where it is."""
    wanted = [[], []]
    for rank, got in enumerate(wanted):
        with package.Loader(config, rank, 2, index_dir=index_dir, engine="inprocess", workers=2, memory="256MiB") as alone:
            got += digests(alone)
    loaders, got, state = [load(rank, 2, run=run_name, node_ranks=[0, 1]) for rank in (0, 1)], [[], []], None
    for step in range(9):
        for loader, mine in zip(loaders, got):
            mine.append(next(loader).digest())
        if step == 2:
            state = loaders[0].state_dict()
    loaders[0].load_state_dict(state)
    assert [next(loaders[0]).digest() for _ in range(6)] == wanted[0][3:9]
    assert [[*mine, next(loader).digest()] for loader, mine in zip(loaders, got)] == [one[:10] for one in wanted]


def test_processes_of_a_job_find_their_engine_by_the_launchers_id(load, monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", str(os.getpid()))
    monkeypatch.setenv("SLURM_STEP_ID", "3")
    loaders = [load(rank, 5, node_ranks=np.array([4, 1])) for rank in (1, 4)]
    assert engine_of(f"slurm-{os.getpid()}-3")
    assert [next(loader).rank for loader in loaders] == [1, 4]


def test_what_is_no_name_of_an_engine_is_refused(package, load, run_name, monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(package.CallError, match="set `run`"):
        load(0, 2)
    with pytest.raises(package.Error):
        load(0, 2, run="../outside")
    for wrong, words in (({"engine": "thread"}, "inprocess"), ({"engine": "inprocess", "readers": 2}, "readers"),
                         ({"engine": "inprocess", "fields": ["labels"]}, "fields")):
        with pytest.raises(package.SetupError, match=words):
            load(**wrong)
    with pytest.raises(TypeError):
        load(fields=[3])
    with pytest.raises(package.CallError, match="rank 9 is not in a world of 2"):
        load(0, 2, run=run_name, node_ranks=[0, 9])
    for rank, world in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(package.CallError, match=f"rank {rank} is not in a world of {world}"):
            load(rank, world)
    with pytest.raises(package.CallError, match="not among node_ranks"):
        load(0, 2, run=run_name, node_ranks=[1])


LIMITED = """
import pathlib, resource, stoker, sys
config, index_dir, run = sys.argv[1:]
loader = stoker.Loader(config, index_dir=index_dir, workers=2, memory="64GiB", keep=1500, run=run)
here = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (here, here))
for _ in range(2):
    try:
        next(loader)
    except stoker.CallError as error:
        print(error.status.name, error.code, error.message)
"""


def test_a_trainer_that_may_map_no_more_is_told(config, index_dir, run_name):
    """Memory is mapped with the first batch; nothing is retried."""
    done = subprocess.run([sys.executable, "-c", LIMITED, config, index_dir, run_name], stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].startswith(f"ERR_SYSTEM {errno.ENOMEM} cannot map the engine's memory of ")
