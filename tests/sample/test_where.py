"""`where` and `first`: exactly the selected samples, counted, and part of what a state belongs to."""
import json
import re

import pytest


@pytest.fixture(scope="module")
def sample(copy_sample, tmp_path_factory):
    return copy_sample(tmp_path_factory.mktemp("where"))


def chosen(**options):
    return [part for name, value in options.items() for part in ("--set", f"data.sample.{name}={value}")]


@pytest.fixture(scope="module")
def facts(stoker, sample):
    """Images, tokens and supervised tokens of each line, from one plan of each record alone."""
    found = []
    for line in range(1, 46):
        plan = json.loads(stoker("plan", sample / "stoker.yaml", "--json", "--epochs", 1, "--batch", 1, *chosen(where=f"line == {line}")).stdout)
        assert plan["samples"] == 1 and plan["not_selected"] == 44
        found.append({name: plan[name] for name in ("images", "tokens", "visual_tokens", "supervised_tokens")} | {"line": line})
    return found


@pytest.mark.parametrize("where, first, wanted", [
    ("images > 0", None, lambda f: f["images"] > 0),
    ("images == 0 or images > 2", None, lambda f: f["images"] == 0 or f["images"] > 2),
    ("tokens >= 150 and not visual_tokens > 300", None, lambda f: f["tokens"] >= 150 and f["visual_tokens"] <= 300),
    ("supervised > 20 and line <= 30", None, lambda f: f["supervised_tokens"] > 20 and f["line"] <= 30),
    (None, 10, lambda f: True),
    ("images > 0", 7, lambda f: f["images"] > 0),
])
def test_a_run_has_exactly_the_selected_samples(stoker, sample, facts, where, first, wanted):
    options = chosen(**{k: v for k, v in (("where", where), ("first", first)) if v is not None})
    picked = [f for f in facts if wanted(f)][:first]
    assert 0 < len(picked) < 45
    plan = json.loads(stoker("plan", sample / "stoker.yaml", "--json", "--epochs", 1, *options).stdout)
    for count, name in (("samples", None), ("images", "images"), ("tokens", "tokens"), ("supervised_tokens", "supervised_tokens")):
        assert plan[count] == (sum(f[name] for f in picked) if name else len(picked)), count
    assert plan["not_selected"] == 45 - len(picked)

    # The stream is that of a manifest of only these records: the ids of this set are its records' own.
    kept = sample / "kept.jsonl"
    all_lines = (sample / "train.jsonl").read_bytes().split(b"\n")
    kept.write_bytes(b"".join(all_lines[f["line"] - 1] + b"\n" for f in picked))
    assert stoker("run", sample / "stoker.yaml", "--digest", *options).stdout == \
        stoker("run", sample / "stoker.yaml", "--digest", *chosen(path=kept)).stdout


def test_index_counts_what_is_left_out(stoker, sample):
    options = chosen(where="images > 0", first=5)
    found = json.loads(stoker("index", sample / "stoker.yaml", "--json", *options).stdout)["sets"][0]
    assert found["usable"] == 45 and found["not_selected"] == 40 and not found["unusable"]
    assert re.search(r"left out +40 +of the usable, by `where` and `first`", stoker("index", sample / "stoker.yaml", *options).stdout)
    assert "by `where`" not in stoker("index", sample / "stoker.yaml").stdout
    assert re.search(r"left out +40 ", stoker("plan", sample / "stoker.yaml", *options).stdout)


def test_a_selection_resumes(stoker, sample, facts, tmp_path):
    """Invariant 8, over a selection; another selection is another stream."""
    def in_two(name, *options):
        """Three steps, then the rest from a state."""
        state = tmp_path / name
        stoker("run", sample / "stoker.yaml", "--steps", 3, "--state", state, *options)
        return state, json.loads(stoker("run", sample / "stoker.yaml", "--json", "--resume", state, *options).stdout)

    options = chosen(where="images > 0 or tokens < 80", first=20)
    state, rest = in_two("selected", *options)
    assert rest["state"] == json.loads(stoker("run", sample / "stoker.yaml", "--json", *options).stdout)["state"]
    same = chosen(where="(images>0) or  tokens<80", first=20)  # blanks and parentheses say nothing
    assert json.loads(stoker("run", sample / "stoker.yaml", "--json", "--resume", state, "--workers", 1, *same).stdout)["digest"] == rest["digest"]

    lines = (sample / "train.jsonl").read_bytes().split(b"\n")
    picked = [f["line"] for f in facts if f["images"] > 0 or f["tokens"] < 80][:20]
    (sample / "twenty.jsonl").write_bytes(b"".join(lines[n - 1] + b"\n" for n in picked))
    assert in_two("twenty", *chosen(path=sample / "twenty.jsonl"))[1]["digest"] == rest["digest"]

    for other in (chosen(where="images > 1 or tokens < 80", first=20), chosen(where="images > 0 or tokens < 80", first=21), []):
        refused = stoker("run", sample / "stoker.yaml", "--resume", state, *other, status=None)
        assert refused.returncode == 2 and re.search(r"stream: (where has changed|first was 20 and is 21)", refused.stderr)


def test_a_faulty_expression_is_refused_at_open(stoker, sample):
    refused = stoker("plan", sample / "stoker.yaml", *chosen(where="images > 0 and tokns < 80"), status=2)
    assert "data.sample.where: column 16" in refused.stderr and "tokns" in refused.stderr and "supervised" in refused.stderr
    refused = stoker("plan", sample / "stoker.yaml", *chosen(where="images > 99"), status=2)
    assert "where leaves none of 45" in refused.stderr
    refused = stoker("plan", sample / "stoker.yaml", *chosen(first=0), status=2)
    assert "first" in refused.stderr
