"""`stoker plan`: counts, a table of steps and the samples of a step, each held against what the run makes."""
import base64
import csv
import io
import json
import re
import signal
import subprocess
import time

import pytest


@pytest.fixture(scope="module")
def config(copy_sample, tmp_path_factory):
    """A copy of the sample set, indexed."""
    return copy_sample(tmp_path_factory.mktemp("plan")) / "stoker.yaml"


@pytest.fixture(scope="module")
def plan(stoker, config):
    return lambda *arguments, **more: json.loads(stoker("plan", config, "--json", *arguments, **more).stdout)


PACKED = ["--layout", "packed", "--row-tokens", 1024, "--batch", 4, "--epochs", 3, "--micro-batch", 1]


# --- counts ---

@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("layout", [[], ["--layout", "flat"], PACKED])
def test_counts_are_those_of_the_run(stoker, config, plan, layout, ranks):
    before = plan(*layout, "--ranks", ranks)
    run = json.loads(stoker("run", config, "--json", *layout, "--ranks", ranks).stdout)
    for name in "steps", "samples", "tokens", "supervised_tokens", "images":
        assert before[name] == run[name], name
    assert before["filler_rows"] == run["filler"]
    # Pictures that stand in their records are bytes of the records.
    inline = sum(len(base64.b64decode(uri)) for uri in re.findall(r'base64,([^"]+)"', (config.parent / "train.jsonl").read_text()))
    assert inline > 0 and before["media_bytes"] + inline * before["sets"][0]["passes"] == run["stages"]["fetch"]["bytes"]
    assert before["fingerprint"] in run["state"]


@pytest.mark.parametrize("flags", [["--csv", "-"], ["--json", "--steps-table"]])
def test_a_plan_that_is_refused_writes_no_table(stoker, config, flags):
    done = stoker("plan", config, "--index", "stream", *flags, status=2)
    assert done.stdout == "" and "set index: auto" in done.stderr


def test_counts_of_data_sets_add_up(plan):
    whole = plan("--set", "data.sample.first=7", "--epochs", 3)
    [one] = whole["sets"]
    assert one["name"] == "sample" and one["records"] == 7 and one["passes"] == 3 and one["samples"] == 21
    assert all(one[name] == whole[name] for name in ["samples", "tokens", "visual_tokens", "supervised_tokens", "images"])


def test_fill_is_of_the_layout(plan):
    packed = plan(*PACKED, "--ranks", 3)
    assert packed["room_tokens"] == packed["rows"] * 1024 and packed["fill"] == pytest.approx(packed["tokens"] / packed["room_tokens"])
    assert plan("--layout", "flat", "--ranks", 3)["fill"] == 1
    padded = plan("--ranks", 3)
    room = 0
    for step in range(padded["steps"]):
        samples = plan("--step", step, "--ranks", 3)["samples"]
        for rank in range(3):
            mine = [s for s in samples if s["rank"] == rank]
            room += max(s["tokens"] for s in mine) * sum(not s["filler"] for s in mine)
    assert padded["room_tokens"] == room


def test_balance_is_told_beside_what_would_be_without(plan):
    options = ["--batch", 12, "--ranks", 4]
    with_it, without = plan(*options), plan(*options, "--balance", "none")
    for cost in "all", "vision":
        assert 1 <= with_it["imbalance"][cost]["balanced"] < with_it["imbalance"][cost]["unbalanced"]
        assert without["imbalance"][cost]["balanced"] == without["imbalance"][cost]["unbalanced"]
        assert without["imbalance"][cost]["unbalanced"] == with_it["imbalance"][cost]["unbalanced"]
        assert with_it["imbalance"][cost]["worst_balanced"] >= with_it["imbalance"][cost]["balanced"]
    assert plan()["imbalance"]["all"]["balanced"] == 1


def test_words_say_what_json_does(stoker, config, plan):
    numbers, text = plan(*PACKED, "--ranks", 2), stoker("plan", config, *PACKED, "--ranks", 2).stdout
    for value in [numbers["steps"], numbers["tokens"], numbers["supervised_tokens"], numbers["step_supervised_tokens"]["median"],
                  f"{100 * numbers['fill']:.2f} %", f"{numbers['imbalance']['vision']['balanced']:.3f}", numbers["fingerprint"]]:
        assert str(value) in text, value
    assert "fill" in text and "padding" not in text
    assert "padding" in stoker("plan", config).stdout and "imbalance" not in stoker("plan", config).stdout


def test_text_only_steps_have_no_vision_tower_to_balance(stoker, config, plan):
    options = ["--set", "data.sample.where=images == 0", "--ranks", 2]
    assert plan(*options)["imbalance"]["vision"]["balanced"] is None
    assert "vision tower" not in stoker("plan", config, *options).stdout
    [first, *_] = csv.DictReader(io.StringIO(stoker("plan", config, *options, "--csv", "-").stdout))
    assert first["imbalance"] and first["imbalance_vision"] == ""


# --- the table ---

def test_the_table_has_every_step(stoker, config, plan, tmp_path):
    whole = plan(*PACKED, "--ranks", 2)
    text = stoker("plan", config, *PACKED, "--ranks", 2, "--csv", "-").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(r["step"]) for r in rows] == list(range(whole["steps"]))
    for name in "rows", "samples", "tokens", "supervised_tokens", "images", "filler_rows":
        assert sum(int(r[name]) for r in rows) == whole[name], name
    assert max(float(r["imbalance"]) for r in rows) == pytest.approx(whole["imbalance"]["all"]["worst_balanced"], abs=1e-5)
    assert sorted(int(r["supervised_tokens"]) for r in rows)[(len(rows) - 1) // 2] == whole["step_supervised_tokens"]["median"]

    file = tmp_path / "steps.csv"
    summary = stoker("plan", config, *PACKED, "--ranks", 2, "--csv", file).stdout
    assert file.read_text() == text and whole["fingerprint"] in summary

    document = plan(*PACKED, "--ranks", 2, "--steps-table")
    table = document.pop("steps_table")
    assert document.pop("columns") == list(rows[0]) and document == whole
    assert [[str(v) for v in row[:10]] for row in table] == [list(r.values())[:10] for r in rows]


def test_a_table_that_cannot_be_written_leaves_none(stoker, config, tmp_path):
    assert "cannot write" in stoker("plan", config, "--csv", tmp_path / "not/there.csv", status=1).stderr
    assert "cannot write" in stoker("plan", config, "--csv", "/dev/full", status=1).stderr
    whole = tmp_path / "whole.csv"
    stoker("plan", config, "--csv", whole, "--epochs", 0, status=2)
    assert not whole.exists()


@pytest.mark.parametrize("flags, words", [(["--steps-table"], "--json"), (["--csv", "-", "--json"], "share"), (["--step", "x"], "whole number"),
                                          (["--step", "0", "--csv", "-"], "one step"), (["--csv", "a", "--steps-table", "--json"], "choose"),
                                          (["--ranks", "0"], "whole number"), (["--step", "9999"], "no step 9999")])
def test_flags_that_do_not_go_together_are_refused(stoker, config, flags, words):
    done = stoker("plan", config, *flags, status=2)
    assert words in done.stderr and done.stdout == ""


# --- one step ---

@pytest.mark.parametrize("flags", [[], PACKED])
def test_a_step_is_listed_as_it_is_replayed(stoker, config, plan, tmp_path, flags):
    listed = plan("--step", 2, "--ranks", 3, *flags)
    stoker("replay", config, "--step", 2, "--world", 3, "--dump", tmp_path / "dump", *flags)
    made = []
    for folder in sorted((tmp_path / "dump").iterdir()):
        batch = json.loads((folder / "batch.json").read_text())
        made += [(batch["rank"], batch["micro"], s["row"], s["offset"], s["tokens"], s.get("id"), s.get("visual_tokens")) for s in batch["samples"]]
    assert made == [(s["rank"], s["micro"], s["row"], s["offset"], s["tokens"], s.get("id"), None if s["filler"] else s["visual_tokens"])
                    for s in listed["samples"]]
    assert listed["supervised_tokens"] == sum(s["supervised_tokens"] for s in listed["samples"])
    assert sorted({s["step_row"] for s in listed["samples"] if not s["filler"]}) == list(range(listed["rows"]))
    text = stoker("plan", config, "--step", 2, "--ranks", 3, *flags).stdout
    assert all(s["id"] in text for s in listed["samples"] if not s["filler"])
    assert text.count("(filler)") == sum(s["filler"] for s in listed["samples"]) > 0


# --- interrupts ---

def test_ctrl_c_stops_the_sum_and_leaves_no_table(build, config, tmp_path):
    table = tmp_path / "steps.csv"
    process = subprocess.Popen([build / "cli/stoker", "plan", config, "--set", "steps=200000000", "--batch", "1", "--csv", table],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while (not table.exists() or table.stat().st_size < 100000) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err and out == ""
    assert not table.exists()


# --- what cannot be planned: refused when it is opened, with the option and the way out ---

@pytest.fixture(scope="module")
def two(config):
    """The sample set and a part of it, by weight."""
    path = config.parent / "two.yaml"
    path.write_text(config.read_text().replace("""  - name: sample
    path: train.jsonl       # media are looked for beside the manifest
""", """  - {name: a, path: train.jsonl, weight: 0.75}
  - {name: b, path: train.jsonl, first: 9, weight: 0.25}
"""))
    return path


@pytest.mark.parametrize("flags, words", [
    (["--set", "data.a.weight=0"], ["data[].weight", '"0" is not a number above 0']),
    (["--set", "data.a.weight=-1"], ["data[].weight", '"-1" is not a number above 0']),
    (["--set", "data.a.epochs=2"], ["weight and epochs of data sets do not go together", "use one of them"]),
    (["--set", "data.none.weight=1"], ["data.none.weight", "no data set has this name"]),
    (["--set", "data.b.where=images > 99"], ["b: no usable record takes part", "where", "take the set out"]),
    (["--set", "data.b.where=imges > 0"], ["data.b.where", "column 1", "no such name: images"]),
    (["--layout", "packed", "--row-tokens", 128, "--overlong", "error"], ["train.jsonl:", "tokens, over the limit of 128", "overlong: drop or shrink"]),
    (["--max-tokens", 128, "--overlong", "error"], ["train.jsonl:", "tokens, over the limit of 128", "raise max_tokens"]),
    (["--layout", "packed", "--row-tokens", 8], ["over the limit of 8 tokens", "raise max_tokens (packed: row_tokens)"]),
    (["--layout", "packed", "--row-tokens", 100, "--segment-multiple", 8], ["row_tokens: 100 is no multiple of segment_multiple: 8"]),
    (["--batch", 8, "--ranks", 3, "--uneven", "error"], ["batch: 8 rows cannot be shared evenly by 3 ranks", "uneven: filler"]),
    (["--batch", 8, "--ranks", 2, "--uneven", "error"], ["do not fill the last step", "uneven: filler"]),
    (["--batch", "[[0, 8], [4, 0]]"], ["batch: 0 is out of range"]),
    (["--batch", 4, "--micro-batch", 5], ["micro_batch: 5 is more than batch: 4"]),
    (["--set", f"steps={2**63 - 1}"], ["the run is too long: lower steps"]),
    (["--epochs", 2**40], ["epochs", "is out of range: 1 to 1000000"]),
    (["--split", "eval"], ["has no `eval`"]),
])
def test_what_cannot_be_planned_is_refused_in_words(stoker, two, flags, words):
    for command in "plan", "run":
        done = stoker(command, two, *flags, status=2)
        assert done.stdout == "" and all(word in done.stderr for word in words), done.stderr
        assert len(done.stderr.splitlines()) == 1 and "Traceback" not in done.stderr


def test_a_weight_of_some_sets_is_refused(stoker, two):
    path = two.parent / "some.yaml"
    path.write_text(two.read_text().replace(", weight: 0.25", ""))
    assert "give one to all, or to none" in stoker("plan", path, status=2).stderr
