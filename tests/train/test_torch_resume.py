"""Steps are the same however many processes train, and whoever goes on: DistributedDataParallel, stopped and resumed on another number."""
import collections
import json
import pathlib
import re

import pytest
import xxhash
from hf_fixtures import launch  # noqa: F401

RUN = pathlib.Path(__file__).parent / "torch_run.py"
STOP = 7


class Told:
    """Of all ranks of a run: by step the digest and the loss; where it stopped."""

    def __init__(self, folder, processes):
        ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(processes)]
        rows, self.losses = collections.defaultdict(list), collections.defaultdict(float)
        for rank in ranks:
            for step, found in rank["rows"].items():
                rows[int(step)] += found
            for step, loss in rank["losses"].items():
                self.losses[int(step)] += loss
        self.digests = {step: xxhash.xxh3_128(b"".join(bytes.fromhex(digest) for _, digest in sorted(found))).hexdigest() for step, found in rows.items()}
        self.state, = {rank["state"] for rank in ranks}
        self.checkpoint = folder / "checkpoint.pt"


@pytest.fixture(scope="module")
def train(launch, config, index_dir, tmp_path_factory):
    """Train on some processes to some step, from the beginning or a checkpoint."""
    copy = tmp_path_factory.mktemp("config") / "stoker.yaml"
    text = config.read_text().replace("model: model", f"model: {config.parent / 'model'}").replace("path: ", f"path: {config.parent}/")
    copy.write_text(text + f"index_dir: {index_dir}\nmemory: 256MiB\nworkers: 1\n")

    def run(processes, steps, *checkpoint):
        out = tmp_path_factory.mktemp("out")
        launch(processes, RUN, out, copy, steps, *checkpoint)
        return Told(out, processes)

    return run


@pytest.fixture(scope="module")
def whole(train):
    """The run that nobody interrupts."""
    return train(1, -1)


@pytest.fixture(scope="module")
def stopped(train):
    return {processes: train(processes, STOP) for processes in (2, 4)}


def test_digests_are_those_of_replay(whole, stoker, config, index_dir):
    assert list(whole.digests) == list(range(23))
    for step in (0, STOP, 22):      # the last one has filler
        said = stoker("replay", config, "--index-dir", index_dir, "--step", step, "--digest").stdout
        assert re.search(r"^step (\w+)$", said, re.MULTILINE).group(1) == whole.digests[step]


def test_where_it_stopped_is_one_place(stopped):
    assert stopped[2].state == stopped[4].state and f"\nstep {STOP}\n" in stopped[2].state


@pytest.mark.parametrize("before, after", [(2, 4), (4, 2), (2, 1)])
def test_another_number_of_processes_goes_on_exactly(train, stopped, whole, before, after):
    first = stopped[before]
    rest = train(after, -1, first.checkpoint)
    assert list(first.digests) == list(range(STOP)) and list(rest.digests) == list(range(STOP, 23))
    assert {**first.digests, **rest.digests} == whole.digests and rest.state == whole.state
    assert {**first.losses, **rest.losses} == {step: pytest.approx(loss, rel=1e-4) for step, loss in whole.losses.items()}
