"""The package: typed, light, and of one mind with the commands; what it measures."""
import io
import json
import re
import subprocess
import sys

import pytest


def test_it_needs_no_torch(package):
    code = ("import sys, stoker; [getattr(stoker, name) for name in stoker.__all__]; "
            "print(sorted({'torch', 'transformers', 'megatron', 'ray', 'matplotlib'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_names_are_found_and_others_are_not(package, stoker):
    assert set(dir(package)) == set(package.__all__) and package.__version__ in stoker("--version").stdout
    with pytest.raises(AttributeError, match="Loder"):
        package.Loder
    for name in package.__all__:
        assert name == "__version__" or getattr(package, name).__doc__


def test_types_are_sound(package, source, tmp_path):
    pytest.importorskip("mypy")
    user = tmp_path / "user.py"
    user.write_text("from typing import Any\nimport stoker\n\nwith stoker.Loader('a.yaml', 0, 1, batch=3) as loader:\n    for batch in loader:\n"
                    "        ids: Any = batch['input_ids']\n        step: int = batch.step\n        plain: dict[str, Any] = batch.dict()\n"
                    "        with loader.step() as part:\n            part.mark('forward')\n"
                    "    state: dict[str, str] = loader.state_dict()\nreveal_type(batch)\nreveal_type(next(iter(stoker.watch([1]))))\n")
    for what in (["-p", "stoker"], sorted(source.glob("examples/*.py"))):
        done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", source / "pyproject.toml", "--cache-dir", tmp_path, *what],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, user], capture_output=True, text=True)
    assert done.returncode == 0 and 'is "stoker._batch.Batch"' in done.stdout and 'is "int"' in done.stdout, done.stdout


def test_the_stub_says_what_the_extension_has(package, source):
    from stoker import _core
    stub = (source / "python/stoker/_core.pyi").read_text()
    for kind, text in re.findall(r"^class (\w+):\n((?:    .*\n)+)", stub, re.MULTILINE):
        told = set(re.findall(r"^    def (\w+)\(", text, re.MULTILINE))
        has = {name for name in vars(getattr(_core, kind)) if not name.startswith("__")}
        assert has <= told and {name for name in told if not name.startswith("__")} <= has, kind
    told = set(re.findall(r"^(?:class |def )?(\w+)[:(]", stub, re.MULTILINE))
    assert told == {name for name in vars(_core) if not name.startswith("__")}


def test_the_program_in_the_readme_runs(package, source, config, index_dir, monkeypatch):
    block, = re.findall(r"```python\n(.*?)```", (source / "README.md").read_text(), re.DOTALL)
    trained, checkpoint = [], {}
    monkeypatch.chdir(config.parent)
    block = block.replace('"stoker.yaml"', f'"stoker.yaml", index_dir={str(index_dir)!r}')
    exec(block, {"train": lambda batch: trained.append(batch.step), "checkpoint": checkpoint})
    assert trained == list(range(23)) and "stoker" in checkpoint["data"]


# --- what the commands do ---

def test_index_says_what_the_command_says(package, stoker, config, tmp_path):
    told = []
    package.index(config, index_dir=tmp_path, progress=lambda *words: told.append(words))
    assert package.index(config, index_dir=tmp_path) == json.loads(stoker("index", config, "--index-dir", tmp_path, "--json").stdout)
    assert told and all(len(words) == 4 for words in told)
    faulty = config.parent / "faulty.yaml"
    assert package.index(faulty, index_dir=tmp_path / "2")["sets"][0]["unusable"]
    assert package.index(faulty, index_dir=tmp_path / "2") == json.loads(stoker("index", faulty, "--index-dir", tmp_path / "2", "--json").stdout)


def test_index_and_plan_are_of_a_split(package, copy_sample, tmp_path):
    """Of `eval` with ten records, both tell of these."""
    config = copy_sample(tmp_path) / "stoker.yaml"
    config.write_text(config.read_text() + "\neval:\n  data: [{name: val, path: train.jsonl, first: 10}]\n")
    [told] = package.index(config, split="eval")["sets"]
    assert told["name"] == "val" and told["not_selected"] == told["usable"] - 10
    assert package.plan(config, split="eval")["samples"] == 10
    assert [told["name"] for told in package.index(config)["sets"]] == ["sample"]


def test_index_leaves_records_out(package, config, tmp_path):
    out = tmp_path / "out.txt"
    out.write_text("sample/harbour-1\n")
    assert package.index(config, index_dir=tmp_path, exclude=[out])["sets"][0]["excluded"] == 1
    assert package.index(config, index_dir=tmp_path, include_all=True)["sets"][0]["excluded"] == 0
    out.write_text("sample/nobody\n")
    with pytest.raises(package.CallError, match="nobody") as said:
        package.index(config, index_dir=tmp_path, exclude=[out])
    assert (said.value.file, said.value.line) == (str(out), 1)


def rounded(value):
    """The command prints nine digits of a number that is not whole."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else float(f"{value:.6g}") if isinstance(value, float) else value


@pytest.mark.parametrize("world, options", [(1, {}), (2, {"layout": "packed", "row_tokens": 2048})], ids=str)
def test_plan_says_what_the_command_says(package, stoker, config, index_dir, world, options):
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    wanted = json.loads(stoker("plan", config, "--index-dir", index_dir, "--json", "--ranks", world, *flags).stdout)
    assert rounded(package.plan(config, world, index_dir=index_dir, **options)) == rounded(wanted)


# --- measuring ---

class Clock:
    """perf_counter_ns, advanced by hand."""

    def __init__(self, monkeypatch):
        self.now = 0
        monkeypatch.setattr("time.perf_counter_ns", lambda: self.now)

    def pass_s(self, seconds):
        self.now += int(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def slow(clock, count, seconds):
    for number in range(count):
        clock.pass_s(seconds)
        yield number


def test_watch_measures_any_iterable(package, clock):
    said = io.StringIO()
    watched = package.watch(slow(clock, 4, 0.5), file=said)
    for _ in watched:
        clock.pass_s(1.5)
    told = watched.metrics()
    assert (told["micro_batches"], told["wait_s"], told["train_s"], told["first_wait_s"]) == (4, 2, 6, 0.5)
    assert told["latency_factor"] == 0.25 and told["busy_share"] == 0.75
    assert said.getvalue().count("\n") == 1 and "latency factor 0.250" in said.getvalue()


def test_watch_is_the_loader_but_for_the_clock(package, clock):
    class Own(list):
        batch_size = 7

    said = io.StringIO()
    watched = package.watch(Own([1, 2, 3]), file=said, every_s=0)
    assert len(watched) == 3 and watched.batch_size == 7 and list(watched) == [1, 2, 3] == list(watched)
    assert watched.metrics()["micro_batches"] == 6
    for number in watched:
        break
    assert number == 1
    with pytest.raises(AttributeError):
        watched.nothing


def test_marks_divide_a_step_and_transfer_is_waiting(package, clock):
    watched = package.watch(slow(clock, 2, 1), file=io.StringIO())
    for _ in watched:
        with watched.step() as step:
            for name, seconds in (("transfer", 1), ("forward", 2), ("backward", 3)):
                clock.pass_s(seconds)
                step.mark(name)
            clock.pass_s(1)
        clock.pass_s(10)                        # evaluation, logging: neither waiting nor training
    told = watched.metrics()
    assert told["marks"] == {"transfer_s": 2, "forward_s": 4, "backward_s": 6}
    assert (told["wait_s"], told["train_s"], told["transfer_s"], told["latency_factor"]) == (4, 12, 2, 0.25)


def test_a_loader_has_the_metrics_of_a_run(load, stoker, config):
    """docs/metrics.md says which of them it has not."""
    run = json.loads(stoker("run", config, "--json", "--steps", 1).stdout)
    told = load().metrics()
    assert set(run) - set(told) == {"steps", "ranks", "batch_bytes", "cpu_s", "digest", "state"}
    assert set(run["store"]) == set(told["store"])
    assert all(set(run[name]) <= set(told[name]) | {"rss_peak_bytes"} for name in ("stages", "memory", "failures", "facts_read"))


def test_a_loader_tells_its_latency_factor(load, clock):
    loader = load()
    for _ in loader:
        with loader.step():
            clock.pass_s(0.25)
    told = loader.metrics()
    assert told["micro_batches"] == 23 and told["samples"] == 90 and told["train_s"] == 23 * 0.25
    assert (told["wait_s"], told["latency_factor"], told["busy_share"]) == (0, 0, 1)
    prepare_s = sum(stage["busy_s"] for stage in told["stages"].values())
    assert prepare_s > 0 and told["serial_latency_factor"] == pytest.approx(prepare_s / (prepare_s + told["train_s"]))
    assert told["failures"] == {"masked": 0, "by_reason": {}} and told["memory"]["peak_bytes"] <= told["memory"]["budget_bytes"]


def test_a_mapping_is_a_configuration_with_all_of_it(package, config, tmp_path):
    """Nested sections, evaluation's own, paths from the working folder, and names with dots over them."""
    data = [{"name": "sample", "path": config.parent / "train.jsonl"}]
    turn = {"before": "<|im_start|>", "after": "<|im_end|>"}
    mapping = {"model": config.parent / "model", "data": data, "batch": 4, "epochs": 2, "index_dir": tmp_path, "limits": {"json_depth": 40},
               "template": {"user": turn, "assistant": {**turn, "train": ["text"]}, "system": turn, "tool": turn, "image": "<|image_pad|>"},
               "eval": {"data": data, "batch": 2}, "eval.batch": 3, "engine": "inprocess"}
    with package.Loader(mapping) as train, package.Loader(mapping, split="eval") as held:
        assert (train.steps, held.steps) == (23, 15)
    with pytest.raises(package.SetupError, match="unknown option bacth: did you mean batch"):
        package.Loader({**mapping, "eval": {"data": data, "bacth": 2}}, split="eval")
