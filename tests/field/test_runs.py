"""Field reports (f), and those of (g) on runs: memory, files, order, resuming, ranks."""
import concurrent.futures
import json
import resource

import numpy
import pytest
import xxhash
from field_set import chat, gradient

MIB = 1 << 20


def numbered(count, first=0, **more):
    return [{"id": str(first + i), **chat(f"Number {first + i}?", str(first + i), **more)} for i in range(count)]


def with_pictures(count):
    rows = [{"id": str(i), **chat(f"<image>{i}", image=f"images/{i}.png")} for i in range(count)]
    return rows, {f"images/{i}.png": gradient(32, 32) + numpy.uint8(i % 7) for i in range(count)}


def names(about):
    """The sample ids of a micro-batch, filler left out."""
    return [s["id"] for s in about["samples"] if s["status"] != "filler"]


def numbers(steps):
    """What a run's order is, in plain numbers."""
    return [int(name.split("/")[1]) for step in steps for name in step]


def steps_of(one, *flags):
    return json.loads(one("plan", "--json", *flags).stdout)["steps"]


# --- memory and files ---

def test_f01_memory_does_not_grow_with_the_manifest_nor_over_an_epoch(field):
    def rows(count):
        return [chat("x" * 900, str(i)) for i in range(count)]
    peaks = {}
    for count in (1000, 20000):
        one = field(rows(count), batch=20, shuffle=True, fetch_ahead="1MiB", pad_to=1000)
        one.index()
        for part in (10, steps_of(one)):
            code, _, err, peak = one.watch("run", "--json", "--workers", 16, "--steps", part)
            assert code == 0, err
            peaks[count, part] = peak["anonymous"]
    assert max(peaks.values()) < min(peaks.values()) + 8 * MIB, peaks


def test_f05_files_are_open_only_while_they_are_read(field):
    rows, files = with_pictures(1500)
    one = field(rows, files, batch=5, keep=100, fetch_ahead="1MiB")
    peaks = {}

    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    for command, part in (("index", []), ("run", ["--steps", 20]), ("run", [])):
        code, out, err, peak = one.watch(command, "--json", *part, limit=limit)
        assert code == 0, err
        peaks[command, bool(part)] = peak["files"]
    assert json.loads(out)["failures"]["masked"] == 0 and json.loads(out)["images"] == 1500
    assert max(peaks.values()) < 48


# --- order ---

def test_f08_the_order_comes_from_seed_and_epoch_alone(field):
    one = field(numbered(40), batch=40, shuffle=True, epochs=3, seed=5)
    runs = [one.order("--workers", workers) for workers in (1, 4, 16, "inline")]
    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert len({tuple(epoch) for epoch in runs[0]}) == 3 and all(sorted(epoch) == sorted(runs[0][0]) for epoch in runs[0])
    assert one.order("--seed", 6)[0] != runs[0][0]
    digests = {one("run", "--digest", "--workers", workers).stdout for workers in (1, 4, 16, "inline")}
    assert len(digests) == 1


def test_f19_the_number_of_files_is_nothing_to_the_workers(field):
    """Work is handed out by micro-batches of the plan; files have no part in it, in how it runs or in what comes."""
    rows, digests = numbered(950), set()
    for files in (1, 19, 190):
        each = 950 // files
        one = field(manifests={f"{i:03}.jsonl": rows[i * each:(i + 1) * each] for i in range(files)}, data={"name": "set"}, batch=10, shuffle=True)
        if files == 19:
            assert sorted(numbers(one.order("--batch", 950))) == list(range(950))
        for workers in (1, 8, 64):
            code, out, err, peak = one.watch("run", "--json", "--digest", "--step-ms", 1, "--workers", workers)
            assert code == 0 and peak["threads"] > workers, err
            digests.add(json.loads(out)["digest"])
    assert len(digests) == 1


def test_f10_what_fills_up_the_last_step_is_filler_of_weight_0_and_counted(field):
    one = field(numbered(10), batch=8)
    seen, filler = [], 0
    for step in range(steps_of(one, "--ranks", 4)):
        parts = one.dump("--world", 4, step=step)
        assert sorted(parts) == [(rank, 0) for rank in range(4)]
        for fields, about in parts.values():
            seen += names(about)
            for row in [s["row"] for s in about["samples"] if s["status"] == "filler"]:
                filler += 1
                assert (fields["labels"][row] == -100).all() and fields["attention_mask"][row].sum() == 1
    assert sorted(seen) == sorted(f"train/{i}" for i in range(10)) and filler == 6
    plan, run = json.loads(one("plan", "--json", "--ranks", 4).stdout), one.run("--ranks", 4)
    assert (plan["steps"], plan["filler_rows"]) == (2, 6) and (run["samples"], run["filler"]) == (10, 6)
    refused = one("run", "--ranks", 4, "--uneven", "error", status=2).stderr
    assert "10 rows" in refused and "uneven: filler" in refused
    assert one.run("--ranks", 4, "--uneven", "error", "--set", "steps=1")["filler"] == 0
    assert "by 3 ranks" in one("run", "--ranks", 3, "--uneven", "error", status=2).stderr


# --- resuming ---

def run_digest(one, steps, *flags):
    """Over the digests of micro-batches, as docs/determinism.md has it."""
    parts = b"".join(bytes.fromhex(one.batch(*flags, step=step)[1]["digests"]["micro_batch"]) for step in steps)
    return xxhash.xxh3_128_hexdigest(parts)


def test_f11_the_rest_of_a_run_equals_the_run_without_a_stop(field, tmp_path):
    one, state = field(numbered(1000), batch=25, shuffle=True), tmp_path / "state"
    one.run("--steps", 4, "--state", state)
    rest = one.run("--digest", "--resume", state)
    assert rest["samples"] == 900 and rest["steps"] == 36
    assert rest["digest"] == run_digest(one, range(4, 40))


def test_f16_a_state_loaded_and_saved_at_once_is_the_same(field, tmp_path):
    one, first, second = field(numbered(60), batch=5, shuffle=True), tmp_path / "first", tmp_path / "second"
    one.run("--steps", 4, "--state", first)
    one.run("--steps", 0, "--resume", first, "--state", second)
    assert first.read_text() == second.read_text()
    ends = [one.run("--digest", "--resume", state) for state in (first, second)]
    assert ends[0]["steps"] == 8 and (ends[0]["digest"], ends[0]["state"]) == (ends[1]["digest"], ends[1]["state"])


def test_f17_a_state_holds_what_was_delivered_and_no_prefetch(field, tmp_path):
    one = field(numbered(400), batch=4, shuffle=True)
    states = [one.run("--steps", 3, "--prefetch", prefetch)["state"] for prefetch in (1, 64)]
    assert states[0] == states[1] and "\nrows 12\n" in states[0] and "\nstep 3\n" in states[0]
    assert one.batch(step=2)[1]["state"] == states[0]


def test_f24_leaving_early_goes_on_where_it_stopped_or_starts_anew_each_time_the_same(field, tmp_path):
    one, state = field(numbered(10), batch=1, shuffle=True, epochs=2), tmp_path / "state"
    pieces, resume = [], []
    for _ in range(7):
        pieces.append(one.run("--digest", "--steps", 3, "--state", state, *resume))
        resume = ["--resume", state]
    assert [piece["steps"] for piece in pieces] == [3] * 6 + [2]
    assert [piece["digest"] for piece in pieces] == [run_digest(one, range(i, min(i + 3, 20))) for i in range(0, 20, 3)]
    assert len({piece["digest"] for piece in pieces}) == 7
    assert len({one.run("--digest", "--steps", 3)["digest"] for _ in range(4)}) == 1


def test_g12_after_a_stop_inside_an_epoch_the_next_ones_are_complete(field, tmp_path):
    one, state = field(numbered(20), batch=2, shuffle=True, epochs=4), tmp_path / "state"
    one.run("--steps", 4, "--state", state)
    rest = one.run("--digest", "--resume", state)
    assert rest["steps"] == 36 and rest["digest"] == run_digest(one, range(4, 40))
    order = numbers(one.order())
    assert all(sorted(order[at:at + 20]) == list(range(20)) for at in range(0, 80, 20))


def test_g21_other_sources_are_refused_on_resume_with_the_difference(field, tmp_path):
    one, state = field(manifests={"a.jsonl": numbered(10), "b.jsonl": numbered(10, 10), "c.jsonl": numbered(10, 20)}), tmp_path / "state"
    configuration = json.loads(one.config.read_text())

    def sources(*sets):
        one.write({**configuration, "data": list(sets)})

    sources({"path": ["a.jsonl", "b.jsonl"]})
    one.run("--steps", 4, "--state", state)
    both = {"path": ["a.jsonl", "b.jsonl"]}
    for changed in ({"path": ["a.jsonl", "b.jsonl", "c.jsonl"]}, {"path": ["b.jsonl", "a.jsonl"]}, {"path": "a.jsonl"}):
        sources(changed)
        assert "data (the manifests or their media) has changed" in one("run", "--resume", state, status=2).stderr
    sources({**both, "first": 15})
    assert "first was all and is 15" in one("run", "--resume", state, status=2).stderr
    sources({**both, "weight": 2})
    assert "weight" in one("run", "--resume", state, status=2).stderr
    sources(both)
    assert one.run("--resume", state)["steps"] == 16
    one.put("a.jsonl", b"\n".join(json.dumps(row).encode() for row in numbered(9)))
    assert "data (the manifests or their media) has changed" in one("run", "--resume", state, status=2).stderr


# --- faults ---

def test_f21_a_bad_sample_is_left_out_by_rule_and_never_replaced(field):
    rows, files = with_pictures(100)
    missing = ["images/9.png", "images/99.png"]
    one = field(rows, {name: content for name, content in files.items() if name not in missing})
    report = one.index()
    assert (report["usable"], report["unusable"]["media missing"]["count"]) == (98, 2)
    assert [e["line"] for e in report["unusable"]["media missing"]["examples"]] == [10, 100]
    assert [s.line for s in one.samples()] == [i for i in range(1, 101) if i not in (10, 100)]


def test_f21_a_sample_that_goes_bad_later_is_masked_in_its_place(field):
    rows, files = with_pictures(100)
    one = field(rows, files, batch=10, dead_letter="dead.jsonl")
    before = one.samples()
    for name in ("images/9.png", "images/99.png"):
        (one.folder / name).unlink()
    after = one.samples()
    assert [s.id for s in after] == [s.id for s in before] and [i for i, s in enumerate(after) if s.status != "made"] == [9, 99]
    for i, (was, now) in enumerate(zip(before, after)):
        assert (was.ids == now.ids).all() and was.grids == now.grids
        bad = i in (9, 99)
        assert (now.labels == (-100 if bad else was.labels)).all() and (now.pictures[0] == (128 if bad else was.pictures[0])).all()
    assert one.run()["failures"]["masked"] == 2
    dead = [json.loads(line) for line in (one.folder / "dead.jsonl").read_text().splitlines()]
    assert {letter["id"] for letter in dead} == {"train/9", "train/99"}
    one("index", "--exclude", one.folder / "dead.jsonl")
    assert [s.id for s in one.samples()] == [s.id for i, s in enumerate(before) if i not in (9, 99)]


# --- ranks ---

@pytest.mark.parametrize("rows, files, ranks, batch", [(3, 1, 8, 8), (16, 1, 2, 4), (25, 1, 2, 4), (21, 3, 2, 6)])
def test_g03_every_rank_gets_as_many_micro_batches(field, rows, files, ranks, batch):
    all_rows = numbered(rows)
    cuts = [0, rows // 7, rows // 3, rows] if files == 3 else [0, rows]
    one = field(manifests={f"{i}.jsonl": all_rows[a:b] for i, (a, b) in enumerate(zip(cuts, cuts[1:]))}, data={"name": "set"}, batch=batch)
    seen = []
    for step in range(steps_of(one, "--ranks", ranks)):
        parts = one.dump("--world", ranks, step=step)
        assert sorted(parts) == [(rank, 0) for rank in range(ranks)]
        seen += [names(about) for _, about in parts.values()]
    assert sorted(numbers(seen)) == list(range(rows))
    run = one.run("--ranks", ranks, "--workers", 16)
    assert run["samples"] == rows and run["steps"] == -(-rows // batch)
    assert one("run", "--ranks", ranks, "--uneven", "error", status=None).returncode == (0 if rows % batch == 0 and batch % ranks == 0 else 2)


@pytest.mark.parametrize("blocks", [(1, 1), (10, 10), (1, 19)])
def test_g06_used_and_left_out_are_all_there_are(field, blocks):
    rows = [numbered(n, 100 * i) for i, n in enumerate(blocks)]
    rows[1][-1] = {"id": "bad", "conversations": []}
    one = field(manifests={f"{i}.jsonl": part for i, part in enumerate(rows)}, data={"name": "set"}, batch=2)
    report, run = one.index(), one.run("--ranks", 2)
    left_out = sum(reason["count"] for reason in report["unusable"].values())
    assert left_out == 1 and run["samples"] + left_out == report["records"] == sum(blocks)


def test_g16_an_index_is_built_once_and_never_read_by_half(field):
    rows, files = with_pictures(200)
    one, other = field(rows, files), field(rows, files)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        reports = list(pool.map(lambda which: which.index(), [one] * 6 + [other] * 2))
    assert {(r["records"], r["usable"], r["images"]) for r in reports} == {(200, 200, 200)}
    for part in (reports[:6], reports[6:]):
        assert sum(r["records_parsed"] for r in part) == sum(r["media_headers_read"] for r in part) == 200
    for which in (one, other):
        sidecars = sorted(path.name.split("-")[-2] for path in which.folder.iterdir() if ".stoker-" in path.name)
        assert sidecars == ["media", "text"]
    assert one.run("--digest")["digest"] == other.run("--digest")["digest"]
