"""Megatron's own pretrain() on Stoker: the same training on any number of data-parallel ranks, under a schedule of batch sizes, stopped and resumed."""
import json
import pathlib

import pytest
from hf_fixtures import cluster, launch, package, sample  # noqa: F401

torch = pytest.importorskip("torch")
pytest.importorskip("megatron")

RUN = pathlib.Path(__file__).with_name("megatron_run.py")
#: Two steps of 4 rows, then 8; thresholds in tokens.
ARGUMENTS = ["--train-iters", "4", "--step-batch-size-schedule", "0:4 5120:8", "--eval-global-batch-size", "4", "--ckpt-format", "torch"]
EVALUATION = ["--eval-iters", "1", "--eval-interval", "2"]


@pytest.fixture(scope="module")
def pretrain(launch, sample, tmp_path_factory):
    def run(ranks, options, *arguments, **environment):
        out = tmp_path_factory.mktemp("run")
        launch(ranks, RUN, out, sample, json.dumps(options), *ARGUMENTS, *arguments, **environment)
        return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(ranks)]

    return run


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoint")


@pytest.fixture(scope="module")
def one(pretrain):
    """A rank that holds the engine's own memory: ready-made pixels are not copied."""
    return pretrain(1, {"pixels": "float32"}, *EVALUATION)


@pytest.fixture(scope="module")
def two(pretrain, checkpoint):
    return pretrain(2, {"dataloader_save": str(checkpoint / "data")}, "--save", checkpoint, "--save-interval", "2")


def rows_by_iteration(ranks):
    """Sorted: ranks and micro-batches share the rows of a step as they like."""
    rows = {}
    for told in ranks:
        for micro in told["train"]["micros"]:
            rows.setdefault(micro["iteration"], []).extend(micro["rows"])
    return {iteration: sorted(each) for iteration, each in rows.items()}


def norms(told):
    return [norm for _, _, norm, _ in told["log"]]


def test_two_ranks_train_as_one_does(one, two):
    assert rows_by_iteration(two) == rows_by_iteration(one) and [len(rows) for rows in rows_by_iteration(one).values()] == [4, 4, 8, 8]
    for told in two:
        assert [consumed for *_, consumed in told["log"]] == [4, 8, 16, 24] == [consumed for *_, consumed in one[0]["log"]]
        assert [loss for _, loss, *_ in told["log"]] == pytest.approx([loss for _, loss, *_ in one[0]["log"]], rel=1e-5)
        assert norms(told) == pytest.approx(norms(one[0]), rel=1e-4)
    assert one[0]["log"][0][1] > one[0]["log"][3][1]


def test_a_step_that_is_kept_whole_does_not_stop_the_engine(one):
    """The default rerun mode keeps all micro-batches of a step, here views of the engine's memory, and eight of them."""
    assert one[0]["train"]["most_alive"] == 8
    assert sum(micro["lent"] for micro in one[0]["train"]["micros"]) > 12


def test_pixels_that_were_made_of_bytes_hold_no_memory_of_the_engine(two):
    assert not any(micro["lent"] for told in two for micro in told["train"]["micros"])


def test_each_evaluation_reads_the_same(one):
    micros = [micro["rows"] for micro in one[0]["valid"]["micros"]]
    passes = len(one[0]["evaluations"])
    assert passes >= 2 and len(micros) == 4 * passes and micros == micros[:4] * passes
    assert len(set(one[0]["evaluations"][:2])) == 2                 # of another model each time


def test_a_run_goes_on_by_samples_on_another_number_of_ranks(pretrain, two, checkpoint):
    resumed = pretrain(1, {}, "--load", checkpoint, "--ckpt-step", "2", "--override-opt-param-scheduler")
    later = {iteration: rows for iteration, rows in rows_by_iteration(two).items() if iteration >= 2}
    assert rows_by_iteration(resumed) == later and len(later) == 2
    assert norms(resumed[0]) == pytest.approx(norms(two[0])[2:], rel=1e-4)
    assert resumed[0]["begun"] == torch.load(state_file(checkpoint), weights_only=True)["dataloader_state_dict"]["stoker"]


def state_file(checkpoint, rank=0):
    return next((checkpoint / "data" / "iter_0000002").rglob(f"train_dataloader_dprank{rank:03d}.pt"))


def test_engines_on_a_ray_cluster_are_the_same_training(pretrain, one, two, checkpoint, cluster):
    """From the state of the machine's own engine on, with evaluations."""
    options = {"loader": "stoker.ray", "placement": "spread", "num_cpus": 1, "dataloader_save": str(checkpoint / "data")}
    ranks = pretrain(2, options, "--load", checkpoint, "--ckpt-step", "2", "--override-opt-param-scheduler", *EVALUATION, **cluster)
    assert rows_by_iteration(ranks) == {iteration: rows for iteration, rows in rows_by_iteration(two).items() if iteration >= 2}
    assert [told["log"] for told in ranks] == [told["log"][2:] for told in two]
    assert ranks[0]["evaluations"] == pytest.approx(one[0]["evaluations"][1:], rel=1e-4)
    assert sorted(row for told in ranks for micro in told["valid"]["micros"][:2] for row in micro["rows"]) == sorted(
        row for micro in one[0]["valid"]["micros"][:4] for row in micro["rows"])
    assert ranks[0]["engines"] == ranks[1]["engines"] and ranks[0]["engines"][0].endswith("/0")


def test_or_by_the_state_beside_the_checkpoint_which_must_be_that_of_its_step(pretrain, two, checkpoint):
    assert state_file(checkpoint, 1).exists()
    options = {"dataloader_save": str(checkpoint / "data")}
    resumed = pretrain(1, options, "--load", checkpoint, "--ckpt-step", "2", "--override-opt-param-scheduler", "--exit-interval", "3")
    assert rows_by_iteration(resumed) == {2: rows_by_iteration(two)[2]}
    other = torch.load(next((checkpoint / "data" / "iter_0000004").rglob("*dprank000.pt")), weights_only=True)
    torch.save(other, state_file(checkpoint))
    with pytest.raises(AssertionError, match="is not that of step 2"):
        pretrain(1, options, "--load", checkpoint, "--ckpt-step", "2", "--override-opt-param-scheduler")
