"""The command line as people and scripts meet it: help, exit statuses, JSON, faults named with their fix."""
import json
import os
import re
import shutil
import subprocess

import pytest

COMMANDS = ["init", "index", "plan", "run", "show", "replay", "diff", "serve", "cluster", "fetch-bench", "options", "version"]


@pytest.fixture(scope="module")
def sample(copy_sample, tmp_path_factory):
    """A copy of the sample set, so that index files do not lie in the source tree."""
    return copy_sample(tmp_path_factory.mktemp("cli"))


@pytest.fixture(scope="module")
def config(sample):
    return sample / "stoker.yaml"


@pytest.fixture(scope="module")
def digest(stoker, config):
    """Of the whole run, by which the others are compared."""
    return stoker("run", config, "--digest").stdout.strip()


def run_json(stoker, *arguments, **more):
    return json.loads(stoker("run", *arguments, "--json", **more).stdout)


# --- help ---

def test_help_lists_every_command(stoker):
    text = stoker("--help").stdout
    assert all(re.search(rf"^  {name} ", text, re.MULTILINE) for name in COMMANDS)
    assert "130" in text and "Exit status" in text
    assert stoker("help").stdout == text and stoker("-h").stdout == text


def test_without_a_command_help_goes_to_stderr(stoker):
    done = stoker(status=2)
    assert done.stdout == "" and "usage" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_needs_nothing_else(stoker, command):
    text = stoker(command, "--help").stdout
    assert text.startswith(f"usage: stoker {command}") and "--help" in text
    assert stoker(command, "no-such-file", "-h").stdout == text


def flags_in_source(source):
    """Flags as the commands' tables name them."""
    found = {}
    for path in sorted((source / "cli").glob("cmd_*.c")):
        text = path.read_text()
        for table, rows in re.findall(r"static const flag (\w+)_flags\[\] = \{(.*?)\{0\}\};", text, re.DOTALL):
            found[table.replace("_", "-")] = re.findall(r'\{"([a-z-]+)", (?:NULL|"[^"]*"), "', rows)
    return found


def test_every_flag_of_a_command_is_in_its_help_and_taken(source, stoker, config):
    found = flags_in_source(source)
    assert set(found) == set(COMMANDS) and sum(map(len, found.values())) > 20
    for command, flags in found.items():
        text = stoker(command, "--help").stdout
        for flag in flags:
            assert re.search(rf"^  --{flag}\b", text, re.MULTILINE), f"{command} --{flag}"


def test_every_option_of_the_table_is_a_flag(stoker, config):
    options = json.loads(stoker("options", "--json").stdout)["options"]
    whole = [o for o in options if not o["name"].startswith("data") and o["name"] != "eval"]
    assert len(whole) > 40
    for command in ["index", "plan", "run", "show", "replay"]:
        text = stoker(command, "--help").stdout
        for option in whole:
            assert f"  --{option['name'].replace('_', '-')} " in text, f"{command} --{option['name']}"
    flags = [part for o in whole if o["default"] and o["name"] != "memory" for part in ("--" + o["name"].replace("_", "-"), o["default"])]
    flags += ["--batch", "4", "--steps", "auto"]
    stoker("plan", config, *flags)


# --- usage ---

@pytest.mark.parametrize("arguments, words", [
    (["no-such-command"], "no-such-command"),
    (["run"], "CONFIG"),
    (["run", "a", "b"], "too many"),
    (["run", "CONFIG", "--no-such-flag"], "--no-such-flag"),
    (["run", "CONFIG", "--", "--json"], "too many"),
    (["run", "CONFIG", "--ranks"], "wants a value"),
    (["run", "CONFIG", "--ranks", "0"], "whole number"),
    (["run", "CONFIG", "--ranks", "two"], "whole number"),
    (["run", "CONFIG", "--ranks", "99999999999999999999"], "whole number"),
    (["run", "CONFIG", "--step-ms", "-1"], "whole number"),
    (["run", "CONFIG", "--json=yes"], "takes no value"),
    (["run", "CONFIG", "--set", "batch"], "KEY=VALUE"),
    (["run", "CONFIG", "--set", "batch=no"], "whole number"),
    (["run", "CONFIG", "--set", "btach=4"], "did you mean batch"),
    (["run", "CONFIG", "--set", "data.none.labels=last"], "no data set"),
    (["run", "CONFIG", "--batch", "0"], "out of range"),
    (["run", "CONFIG", "--set", "placement=near"], "placement"),
    (["run", "CONFIG", "--row-tokens", "0"], "row_tokens"),
    (["run", "CONFIG", "--micro-batch", "5"], "micro_batch"),
    (["run", "CONFIG", "--memory", "1MiB"], "memory"),
    (["run", "CONFIG", "--model", "no/such/folder"], "no/such/folder"),
    (["run", "CONFIG", "--resume", "no-such-state"], "no-such-state"),
    (["run", "no/such/file.yaml"], "no/such/file.yaml"),
    (["replay", "CONFIG"], "--step"),
    (["replay", "CONFIG", "--step", "1000000"], "step"),
    (["replay", "CONFIG", "--step", "0", "--rank", "1"], "whole number"),
    (["replay", "CONFIG", "--step", "0", "--micro", "7"], "micro"),
    (["show", "CONFIG"], "one sample"),
    (["show", "CONFIG", "sample#1", "--record", "1"], "one sample"),
    (["init", "no-such-file", "--model", "x"], "no-such-file"),
    (["init", "CONFIG"], "--model"),
    (["options", "x"], "too many"),
    (["version", "--batch", "4"], "--batch"),
])
def test_what_cannot_be_done_is_refused_with_its_reason(stoker, config, tmp_path, arguments, words):
    arguments = [config if a == "CONFIG" else a for a in arguments]
    done = stoker(*arguments, status=2, cwd=tmp_path)
    assert words in done.stderr and done.stdout == "", done
    assert not list(tmp_path.iterdir())


def test_a_sample_that_does_not_exist_is_named(stoker, config):
    assert "sample/no-such-id" in stoker("show", config, "sample/no-such-id", status=2).stderr


@pytest.mark.parametrize("text, line, words", [
    ("model: model\nbtach: 4\n", 2, "did you mean batch?"),
    ("model: model\ndata:\n- path: *.jsonl\n", 3, "quotes"),
    ("model: model\nbatch: 4\nbatch: 8\n", 3, "twice"),
    ("model: [\n", 2, "YAML"),
])
def test_a_broken_configuration_is_named_with_its_line(stoker, tmp_path, text, line, words):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    done = stoker("run", path, status=2)
    assert f"broken.yaml:{line}:" in done.stderr and words in done.stderr


def test_a_full_disk_behind_stdout_is_a_failure(build, config):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    for arguments in (["options"], ["--help"], ["run", "--help"], ["version"], ["run", config, "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([build / "cli/stoker", *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "output" in done.stderr or "JSON" in done.stderr, arguments


# --- options and version ---

def test_the_options_page_is_current(source, stoker):
    assert (source / "docs/options.md").read_text() == stoker("options", "--markdown").stdout, \
        "run `build/cli/stoker options --markdown > docs/options.md`"


def test_options_in_three_forms_hold_the_same_names(stoker):
    names = [o["name"] for o in json.loads(stoker("options", "--json").stdout)["options"]]
    plain, markdown = stoker("options").stdout, stoker("options", "--markdown").stdout
    assert len(set(names)) == len(names) > 40
    assert all(re.search(rf"^{re.escape(n)} ", plain, re.MULTILINE) and f"| `{n}`" in markdown for n in names)


def test_version_names_release_libraries_and_kernels(stoker):
    report = json.loads(stoker("version", "--json").stdout)
    assert re.fullmatch(r"\d+\.\d+\.\d+", report["version"]) and report["plan_version"] == 3 and "libpng" in report["libraries"]
    assert report["version"] in stoker("--version").stdout
    none = subprocess_env(STK_CPU="none")
    assert json.loads(stoker("version", "--json", env=none).stdout)["cpu"] == "none"


def subprocess_env(**more):
    return {**os.environ, **more}


# --- index and plan ---

def test_the_index_reports_in_words_and_as_json(stoker, config, sample):
    words = stoker("index", config).stdout
    report = json.loads(stoker("index", config, "--json").stdout)
    one = report["sets"][0]
    assert report["schema"] == 2 and one["name"] == "sample" and one["records"] == one["usable"] > 40
    assert str(one["supervised_tokens"]) in words and sum(one["length_histogram"]) == one["usable"]
    assert stoker("index", config).stderr == ""
    faulty = json.loads(stoker("index", sample / "faulty.yaml", "--json").stdout)["sets"][0]
    unusable = faulty["unusable"]
    assert faulty["usable"] < faulty["records"] and "media missing" in unusable
    assert all(v["count"] >= 1 and v["examples"][0]["line"] >= 1 for v in unusable.values())


def test_a_plan_counts_what_the_run_delivers(stoker, config):
    plan, run = json.loads(stoker("plan", config, "--json").stdout), run_json(stoker, config)
    for key in ("steps", "samples", "tokens", "supervised_tokens", "images"):
        assert plan[key] == run[key], key
    assert plan["fingerprint"] in run["state"] and str(plan["tokens"]) in stoker("plan", config).stdout


# --- run ---

def test_the_json_of_a_run_has_all_keys(stoker, config, digest):
    r = run_json(stoker, config, "--digest", "--step-ms", 2)
    numbers = ["steps", "samples", "tokens", "supervised_tokens", "images", "wall_s", "train_s", "wait_s", "latency_factor",
               "serial_latency_factor", "busy_share", "first_batch_s", "samples_per_s"]
    assert r["schema"] == 1 and all(isinstance(r[n], (int, float)) and r[n] > 0 for n in numbers), r
    assert set(r["stages"]) == {"fetch", "decode", "transform", "text", "place"}
    assert all(set(s) == {"count", "busy_s", "bytes"} and s["count"] > 0 for s in r["stages"].values())
    assert set(r["memory"]) >= {"budget_bytes", "peak_bytes", "rss_peak_bytes", "waits"}
    assert 0 < r["memory"]["peak_bytes"] <= r["memory"]["budget_bytes"]
    assert r["failures"] == {"masked": 0, "by_reason": {}}
    assert r["digest"] == digest and re.fullmatch(r"[0-9a-f]{32}", digest)
    assert r["state"].startswith("stoker-state 2\n")
    assert abs(r["latency_factor"] - r["wait_s"] / (r["wait_s"] + r["train_s"])) < 1e-6
    busy = sum(s["busy_s"] for s in r["stages"].values())
    assert abs(r["serial_latency_factor"] - busy / (busy + r["train_s"])) < 1e-6
    assert abs(r["busy_share"] + r["latency_factor"] - 1) < 1e-6


def test_a_run_in_words_says_what_the_trainer_waited_for(stoker, config):
    text = stoker("run", config, "--steps", 3).stdout
    for words in ("3 steps", "samples/s", "latency factor", "decode", "memory", "masked", "verdict: "):
        assert words in text, text
    assert "one by one inside next" in stoker("run", config, "--steps", 3, "--serial").stdout


def test_steps_end_the_call_and_a_state_goes_on(stoker, config, digest, tmp_path):
    """Invariant 8, by the command line: pieces of a run end to end are the run."""
    state, steps, tokens = tmp_path / "run.state", 0, 0
    whole = run_json(stoker, config)
    first = run_json(stoker, config, "--steps", 5, "--state", state)
    second = run_json(stoker, config, "--steps", 7, "--resume", state, "--state", state)
    third = run_json(stoker, config, "--resume", state, "--state", state, "--workers", 1)
    assert [first["steps"], second["steps"], third["steps"]] == [5, 7, whole["steps"] - 12]
    assert sum(r["tokens"] for r in (first, second, third)) == whole["tokens"]
    assert third["state"] == whole["state"] == state.read_text()
    assert first["digest"] != digest and run_json(stoker, config, "--resume", state)["steps"] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["run.state"]


def test_a_state_of_another_stream_is_refused_by_name(stoker, config, tmp_path):
    state = tmp_path / "run.state"
    stoker("run", config, "--steps", 2, "--state", state)
    done = stoker("run", config, "--resume", state, "--seed", 7, status=2)
    assert "seed" in done.stderr
    state.write_text(state.read_text().replace("rows 8", "rows 9"))
    assert "checksum" in stoker("run", config, "--resume", state, status=2).stderr


@pytest.mark.parametrize("flags", [["--serial"], ["--workers", "1"], ["--workers", "4", "--prefetch", "1"], ["--fetch-ahead", "1"]])
def test_the_digest_does_not_depend_on_how_it_is_run(stoker, config, digest, flags):
    assert stoker("run", config, "--digest", *flags).stdout.strip() == digest


def test_ranks_share_an_engine_and_the_stream(stoker, config):
    """Invariant 2: the step digests of three ranks are those of one."""
    def steps(*flags):
        return [stoker("replay", config, "--step", s, "--digest", *flags).stdout.splitlines()[-1] for s in (0, 22)]
    assert steps() == steps("--world", 3) == steps("--world", 2, "--micro-batch", 1)
    r = run_json(stoker, config, "--ranks", 3)
    assert r["samples"] == run_json(stoker, config)["samples"]


def test_the_digest_of_a_run_is_that_of_its_replays(stoker, config):
    xxhash = pytest.importorskip("xxhash")
    flags = ["--ranks", 2, "--micro-batch", 1, "--steps", 2]
    expected = xxhash.xxh3_128()
    for step in range(2):
        for line in stoker("replay", config, "--step", step, "--world", 2, "--micro-batch", 1, "--digest").stdout.splitlines():
            if line.startswith("micro-batch"):
                expected.update(bytes.fromhex(line.split()[-1]))
    assert stoker("run", config, *flags, "--digest").stdout.strip() == expected.hexdigest()


def test_an_interrupted_run_stops_within_a_second_and_keeps_its_state(interrupt, config, tmp_path, stoker):
    state = tmp_path / "run.state"
    for flags in (["--step-ms", "200"], ["--step-ms", "600000"], ["--step-ms", "200", "--serial", "--ranks", "2"]):
        status, out, said, seconds = interrupt("run", config, "--json", "--state", state, *flags)
        assert seconds < 10      # tenfold: a guard, no measurement
        assert status == 130 and "interrupted" in said
        report = json.loads(out)
        assert report["digest"] is None and report["state"] == state.read_text()
        stoker("run", config, "--resume", state, "--steps", 1, *flags[2:])
        assert [p.name for p in tmp_path.iterdir()] == ["run.state"]


def test_a_state_that_cannot_be_saved_fails_the_run(stoker, config, tmp_path):
    done = stoker("run", config, "--steps", 1, "--state", tmp_path / "none/run.state", status=1)
    assert "run.state" in done.stderr


def test_an_error_budget_that_is_spent_ends_with_3(stoker, sample, config):
    folder = sample.parent / "spent"
    folder.mkdir()
    (folder / "broken").mkdir()
    records = [json.dumps({"id": i, "image": f"broken/{i}.jpg", "conversations": [{"from": "human", "value": "<image>"},
                                                                                     {"from": "gpt", "value": "no"}]}) for i in range(40)]
    (folder / "train.jsonl").write_text("\n".join(records) + "\n")
    text = config.read_text().replace("model: model", f"model: {sample / 'model'}")
    (folder / "stoker.yaml").write_text(text)
    done = stoker("run", folder / "stoker.yaml", status=3)
    assert "unusable" in done.stderr or "sample" in done.stderr


def test_paths_on_a_command_line_start_from_the_working_folder(stoker, config, sample, tmp_path):
    (tmp_path / "here").symlink_to(sample)
    out = stoker("plan", config, "--json", "--model", "here/model", "--index-dir", "idx", "--set", "data.sample.path=here/train.jsonl",
                 "--set", "data.sample.media_root=here", cwd=tmp_path)
    assert json.loads(out.stdout)["steps"] > 0 and (tmp_path / "idx").is_dir()


def test_results_go_to_stdout_and_nothing_else(stoker, config):
    for arguments in (["index", config], ["plan", config], ["run", config, "--digest"], ["show", config, "--record", 1], ["replay", config, "--step", 0]):
        done = stoker(*arguments)
        assert done.stdout and done.stderr == "" and "\x1b" not in done.stdout, arguments


# --- show ---

def test_a_sample_is_shown_with_what_is_trained_in_brackets(stoker, config):
    text = stoker("show", config, "--record", 1).stdout
    assert text == stoker("show", config, "sample/harbour-1").stdout
    assert "harbour-1" in text and "<|im_start|>assistant\n[I see a harbour." in text and "]" in text and "grid 1 x" in text
    ids = stoker("show", config, "--record", 1, "--ids").stdout
    rows = re.findall(r"^ +\d+  \d+ +(-100|\d+) ", ids, re.MULTILINE)
    tokens, trained = map(int, re.search(r"(\d+) tokens, (\d+) of them trained", text).groups())
    assert len(rows) == tokens and sum(r != "-100" for r in rows) == trained


def test_images_are_written_as_the_model_sees_them(stoker, config, tmp_path):
    text = stoker("show", config, "--record", 1, "--image-dir", tmp_path / "made").stdout
    width, height = map(int, re.search(r"model sees (\d+) x (\d+)", text).groups())
    (path,) = (tmp_path / "made").iterdir()
    head = path.read_bytes()[:24]
    assert head.startswith(b"\x89PNG") and (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) == (width, height)
    done = stoker("show", config, "--record", 1, "--image-dir", tmp_path / "none/deeper", status=1)
    assert "none/deeper" in done.stderr


def test_control_characters_of_the_data_do_not_reach_the_terminal(stoker, sample, config):
    folder = sample.parent / "hostile"
    folder.mkdir()
    record = {"id": "a\x1b[2J", "conversations": [{"from": "human", "value": "\x1b]0;title\x07 \x9b31m"}, {"from": "gpt", "value": "ok\x1b[5m"}]}
    (folder / "train.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "stoker.yaml").write_text(config.read_text().replace("model: model", f"model: {sample / 'model'}"))
    for arguments in (["show", folder / "stoker.yaml", "--record", 1], ["replay", folder / "stoker.yaml", "--step", 0], ["index", folder / "stoker.yaml"]):
        out = stoker(*arguments).stdout
        assert "\x1b" not in out and "\x9b" not in out and "\x07" not in out, arguments


# --- replay ---

def test_a_dump_holds_a_file_a_field(stoker, config, tmp_path):
    stoker("replay", config, "--step", 3, "--world", 2, "--rank", 1, "--micro", 0, "--dump", tmp_path)
    (folder,) = tmp_path.iterdir()
    assert folder.name == "step-00000003.rank-001.micro-000"
    batch = json.loads((folder / "batch.json").read_text())
    assert (batch["step"], batch["rank"], batch["world"], batch["micro"]) == (3, 1, 2, 0)
    assert {"input_ids.npy", "labels.npy", "position_ids.npy", "batch.json"} <= {p.name for p in folder.iterdir()}


def test_forms_without_row_digests_still_have_theirs(stoker, config):
    done = stoker("replay", config, "--step", 1, "--digest", "--pixels", "bfloat16")
    assert done.stdout.startswith("micro-batch") and "uint8" in done.stderr


# --- init ---

def test_init_writes_a_configuration_that_works(stoker, sample, tmp_path):
    out = stoker("init", sample / "train.jsonl", "--model", sample / "model", cwd=tmp_path).stdout
    assert "stoker.yaml" in out and "template" in out
    text = (tmp_path / "stoker.yaml").read_text()
    assert "compare" in text and text.count("#") > 5
    done = stoker("index", "stoker.yaml", "--index-dir", tmp_path / "index", "--json", cwd=tmp_path)
    one = json.loads(done.stdout)["sets"][0]
    assert one["usable"] == one["records"]
    again = stoker("init", sample / "train.jsonl", "--model", sample / "model", cwd=tmp_path, status=2)
    assert "-o" in again.stderr and (tmp_path / "stoker.yaml").read_text() == text


def test_init_finds_columns_and_roles(stoker, sample, tmp_path):
    records = [{"key": i, "pics": ["images/harbour.jpg"], "dialog": [{"from": "Frager", "value": "<image> \"what\"?"}, {"from": "Chatbot", "value": "That."}]}
               for i in range(3)]
    (tmp_path / "odd.jsonl").write_text("\ufeff" + "\r\n".join(map(json.dumps, records)))
    (tmp_path / "images").symlink_to(sample / "images")
    stoker("init", "odd.jsonl", "--model", sample / "model", "-o", "odd.yaml", cwd=tmp_path)
    text = (tmp_path / "odd.yaml").read_text()
    assert 'messages: "dialog"' in text and 'images: "pics"' in text and '"Chatbot": assistant' in text and '"Frager": user' in text
    done = stoker("index", "odd.yaml", "--json", "--set", f"allow={sample}", cwd=tmp_path)
    assert json.loads(done.stdout)["sets"][0]["usable"] == 3


def test_init_reports_what_is_wrong_with_the_folder(stoker, sample, tmp_path):
    shutil.copytree(sample / "model", tmp_path / "model")
    (tmp_path / "model/preprocessor_config.json").write_text("{}")
    done = stoker("init", sample / "train.jsonl", "--model", "model", cwd=tmp_path, status=2)
    assert "preprocessor_config.json" in done.stderr


# --- terminals ---

def on_terminal(program, *arguments, **environment):
    """What the command writes to a terminal on stdout and stderr."""
    main, side = os.openpty()
    run = subprocess.Popen([program, *map(str, arguments)], stdout=side, stderr=side, env=subprocess_env(TERM="xterm", **environment))
    os.close(side)
    out = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:           # the other side is closed
            break
        if not piece:
            break
        out += piece
    os.close(main)
    assert run.wait(60) == 0, out
    return out.decode()


def test_colours_only_on_a_terminal_and_unless_no_color(build, config, stoker):
    program = build / "cli/stoker"
    coloured, plain = on_terminal(program, "show", config, "--record", 1), on_terminal(program, "show", config, "--record", 1, NO_COLOR="1")
    assert "\x1b[1;32mI see a harbour." in coloured and "\x1b" not in plain and "[I see a harbour." in plain
    assert stoker("show", config, "--record", 1).stdout == plain.replace("\r\n", "\n")


def test_progress_is_live_only_on_a_terminal(build, config, stoker, tmp_path):
    program = build / "cli/stoker"
    live = on_terminal(program, "run", config, "--step-ms", 100, "--steps", 12)
    assert re.search(r"\r\x1b\[Kstep \d+ of 12 .*ready", live)
    live = on_terminal(program, "index", config, "--index-dir", tmp_path)
    assert re.search(r"\[#+\.*\] +\d+ %", live)
    assert stoker("run", config, "--step-ms", 100, "--steps", 12).stderr == ""
