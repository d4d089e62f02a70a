"""Accelerate leaves the loader as it is: nothing is sharded a second time, dispatched or cut; its checkpoints hold the place."""
import json
import pathlib

import pytest
from hf_fixtures import launch, package, sample  # noqa: F401


def test_two_processes_each_train_on_their_rows(launch, package, sample, tmp_path):
    """Field report G01: some micro-batches have a picture on one of them alone, beside a filler image of four patches on the other."""
    launch(2, pathlib.Path(__file__).with_name("hf_accelerate_run.py"), tmp_path, sample)
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2)]
    with package.Loader(sample, batch=4) as whole:
        wanted = [[batch.step, row.id] for batch, _ in zip(whole, range(4)) for row in batch.samples]
    assert sorted(ranks[0]["rows"] + ranks[1]["rows"]) == sorted(wanted) and len(ranks[0]["rows"]) == len(ranks[1]["rows"])
    assert any((one[1] == 4) != (other[1] == 4) for one, other in zip(*(told["patches"] for told in ranks)))
    for told in ranks:
        assert told["same"] and told["node_ranks"] == [0, 1] and told["updates"] == 4
        assert all(planned == there > 0 for planned, there in told["patches"])
        assert told["again"] == told["rows"][4:]


def test_what_accelerate_does_to_a_torch_loader_it_does_not_do_to_ours(package, sample):
    """One process, the same question asked of the type: a torch DataLoader is wrapped, a Stoker loader is not."""
    accelerate, torch = pytest.importorskip("accelerate"), pytest.importorskip("torch")
    import stoker.torch
    accelerator = accelerate.Accelerator(cpu=True)
    theirs = torch.utils.data.DataLoader([1, 2])
    with stoker.torch.Loader(sample, batch=4) as loader:
        assert accelerator.prepare(loader) is loader and accelerator.prepare(theirs) is not theirs
        assert not isinstance(loader, (torch.utils.data.IterableDataset, torch.utils.data.DataLoader))
