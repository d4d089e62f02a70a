"""`eval` beside training: evaluations of the same engine between the steps, and what they leave alone."""
import json

import pytest

EVAL = "eval: {data: [{name: val, path: train.jsonl, first: 11}], batch: 3, max_pixels: 50176}\n"


@pytest.fixture(scope="module")
def config(copy_sample, tmp_path_factory):
    folder = copy_sample(tmp_path_factory.mktemp("eval"))
    path = folder / "both.yaml"
    path.write_text((folder / "stoker.yaml").read_text() + EVAL)
    return path


@pytest.fixture(scope="module")
def alone(stoker, config):
    """The digests of the splits, each by itself."""
    return [stoker("run", config, "--split", split, "--digest").stdout.strip() for split in ("train", "eval")]


@pytest.mark.parametrize("flags", [["--workers", 1], ["--workers", 8], ["--serial"], ["--workers", 2, "--prefetch", 3, "--keep", 2]])
@pytest.mark.parametrize("every", [1, 7])
def test_neither_split_sees_the_other(stoker, config, alone, flags, every):
    r = json.loads(stoker("run", config, "--eval-every", every, "--json", *flags).stdout)
    e = r["eval"]
    assert [r["digest"], e["digest"]] == alone
    assert e["evaluations"] == r["steps"] // every and e["same"] and e["samples"] == 11 * e["evaluations"]
    assert r["memory"]["peak_bytes"] <= r["memory"]["budget_bytes"]


def test_the_counts_of_training_are_its_own(stoker, config):
    with_eval, without = (json.loads(stoker("run", config, "--json", *flags).stdout) for flags in (["--eval-every", 5], []))
    assert "eval" not in without
    for key in ("steps", "samples", "tokens", "supervised_tokens", "images", "filler", "digest", "state"):
        assert with_eval[key] == without[key]
    assert all(with_eval["stages"][s]["count"] == without["stages"][s]["count"] for s in ("fetch", "decode", "text"))


def test_ranks_evaluate_together(stoker, config):
    ranks = ["--ranks", 3]
    eval_alone = stoker("run", config, "--split", "eval", "--digest", *ranks).stdout.strip()
    train_alone = stoker("run", config, "--digest", *ranks).stdout.strip()
    r = json.loads(stoker("run", config, "--eval-every", 4, "--json", *ranks).stdout)
    assert r["eval"]["digest"] == eval_alone and r["eval"]["same"] and r["digest"] == train_alone


def test_a_resumed_run_evaluates_at_the_same_steps(stoker, config, alone, tmp_path):
    state = tmp_path / "state"
    first = json.loads(stoker("run", config, "--eval-every", 4, "--steps", 6, "--state", state, "--json").stdout)
    rest = json.loads(stoker("run", config, "--eval-every", 4, "--resume", state, "--json").stdout)
    assert first["eval"]["evaluations"] == 1
    assert first["eval"]["evaluations"] + rest["eval"]["evaluations"] == (first["steps"] + rest["steps"]) // 4
    assert first["eval"]["digest"] == rest["eval"]["digest"] == alone[1]


def test_it_is_said_in_words(stoker, config, alone):
    said = stoker("run", config, "--eval-every", 10).stdout
    assert "evaluations: " in said and alone[1] in said


def test_a_budget_too_small_for_both_names_both(stoker, config):
    said = stoker("run", config, "--eval-every", 1, "--memory", "1MiB", status=2).stderr
    assert "slots of training" in said and "of eval" in said


def test_flags_are_for_eval_too_but_for_what_it_states(stoker, config, alone):
    run = json.loads(stoker("run", config, "--eval-every", 20, "--max-tokens", 100, "--max-pixels", 16384, "--batch", 4, "--json").stdout)
    of_its_own = stoker("run", config, "--split", "eval", "--max-tokens", 100, "--digest").stdout.strip()
    assert run["eval"]["digest"] == of_its_own != alone[1]


def test_eval_needs_a_split(stoker, source, config):
    assert "`eval`" in stoker("run", config.parent / "stoker.yaml", "--eval-every", 1, status=2).stderr
    assert "`eval`" in stoker("run", config, "--split", "eval", "--eval-every", 1, status=2).stderr


def test_an_evaluation_is_interrupted_too(interrupt, config, tmp_path):
    state = tmp_path / "run.state"
    status, out, said, _ = interrupt("run", config, "--eval-every", 1, "--step-ms", 200, "--json", "--state", state)
    assert status == 130 and "interrupted" in said
    assert json.loads(out)["digest"] is None and state.exists()
