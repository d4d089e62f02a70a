"""transformers' Trainer on Stoker, on several processes: exact resume, and evaluations that leave training alone."""
import json
import pathlib

import pytest
from hf_fixtures import cluster, launch, package, sample  # noqa: F401

STEPS, SAVED = 6, 3
RUN = {"max_steps": STEPS, "per_device_train_batch_size": 1, "per_device_eval_batch_size": 2, "save_steps": SAVED, "save_total_limit": 3}


def told(out, processes):
    """What the ranks wrote down: of the first, and the rows of all."""
    ranks = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(processes)]
    rows = {int(step): sorted(row for rank in ranks for row in rank["rows"][step]) for step in ranks[0]["rows"]}
    return ranks[0] | {"rows": rows, "trained": {int(step): values for step, values in ranks[0]["trained"].items()}}


@pytest.fixture(scope="module")
def run(launch, sample, tmp_path_factory):
    """Train: ``run(processes, checkpoint="", cluster=None, **arguments)`` gives the folder, and what was told."""
    def train(processes, checkpoint="", cluster=None, **arguments):
        out = tmp_path_factory.mktemp("out")
        given = [out, sample, json.dumps({**RUN, "gradient_accumulation_steps": 4 // processes, **arguments}), checkpoint]
        if cluster:
            given += ["stoker.ray", json.dumps({"placement": "spread", "num_cpus": 1})]
        launch(processes, pathlib.Path(__file__).with_name("hf_run.py"), *given, **(cluster or {}))
        return out, told(out, processes)

    return train


@pytest.fixture(scope="module")
def whole(run):
    """Two processes, with accumulation, an evaluation in the middle, never interrupted."""
    return run(2, eval_strategy="steps", eval_steps=SAVED - 1)


def test_a_resumed_run_is_the_rest_of_the_whole_one(run, whole):
    """It evaluates nothing, and so shows that evaluations between the steps change nothing."""
    out, wanted = whole
    assert sorted(wanted["rows"]) == list(range(STEPS)) and wanted["evaluated"].keys() == {"2", "4", "6"}
    assert all(len(rows) == 4 for rows in wanted["rows"].values()) and len({rows[0][1] for rows in wanted["rows"].values()}) == STEPS
    _, resumed = run(2, out / f"checkpoint-{SAVED}")
    assert resumed["rows"] == {step: rows for step, rows in wanted["rows"].items() if step >= SAVED}
    rest = {step: values for step, values in wanted["trained"].items() if step > SAVED}
    assert {step: resumed["trained"][step] for step in rest} == rest and len(rest) == STEPS - SAVED     # losses, gradient norms, epochs


def test_engines_on_a_ray_cluster_are_the_same_training(run, whole, cluster):
    """From a checkpoint of the machine's own engine on, with its evaluations, to the same checkpoint at the end."""
    out, wanted = whole
    later, resumed = run(2, out / f"checkpoint-{SAVED}", cluster, eval_strategy="steps", eval_steps=SAVED - 1)
    assert resumed["rows"] == {step: rows for step, rows in wanted["rows"].items() if step >= SAVED}
    assert resumed["trained"] == wanted["trained"] and resumed["evaluated"] == wanted["evaluated"]
    assert (later / f"checkpoint-{STEPS}/stoker.state").read_text() == (out / f"checkpoint-{STEPS}/stoker.state").read_text()
    engine, = resumed["engines"]
    assert engine.endswith("/0")    # of those that are spread, the first


def test_another_number_of_processes_trains_on_the_same_steps(run, whole):
    out, wanted = whole
    _, resumed = run(1, out / f"checkpoint-{SAVED}")
    assert resumed["rows"] == {step: rows for step, rows in wanted["rows"].items() if step >= SAVED}
    for step in range(SAVED + 1, STEPS + 1):
        assert resumed["trained"][step] == pytest.approx(wanted["trained"][step], rel=1e-3)


def test_a_checkpoint_holds_the_place_of_its_step(whole, package, sample):
    out, _ = whole
    for step in (SAVED, STEPS):
        state = (out / f"checkpoint-{step}/stoker.state").read_text()
        assert f"\nstep {step}\n" in state and "\nmicro " not in state
