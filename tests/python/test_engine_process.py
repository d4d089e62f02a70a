"""Loaders that share an engine process: the same stream, whoever reads it and whatever is killed."""
import os
import pathlib
import signal

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
    found = [int(folder.name) for folder in pathlib.Path("/proc").iterdir()
             if folder.name.isdigit() and f"\0{run_name}\0".encode() in (folder / "cmdline").read_bytes()]
    assert len(found) == 1, found
    return found[0]


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


def test_a_killed_engine_changes_nothing(load, run_name, whole):
    loader, got = load(run=run_name), []
    for batch in loader:
        got.append(batch.digest())
        if batch.step in (3, 12):
            array, before = batch["input_ids"], batch["input_ids"].copy()
            os.kill(engine_of(run_name), signal.SIGKILL)
    assert got == whole and (array == before).all()


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


def test_what_is_no_name_of_an_engine_is_refused(package, load, monkeypatch):
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
