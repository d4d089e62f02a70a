"""A loader goes through its plan, from anywhere, once; says what is wrong; and lets itself be interrupted."""
import itertools
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest


def digests(loader, count=None):
    return [batch.digest() for batch in itertools.islice(loader, count)]


@pytest.fixture(scope="module")
def whole(package, config, index_dir):
    """Digests of the whole run."""
    with package.Loader(config, index_dir=index_dir, workers=2) as loader:
        found = digests(loader)
        assert len(found) == len(loader) == loader.steps
    return found


# --- going through ---

def test_breaking_out_and_iterating_again_goes_on(load, whole):
    loader = load()
    for number, batch in enumerate(loader):
        assert batch.digest() == whole[number]
        if number == 4:
            break
    assert digests(loader) == whole[5:] and digests(loader) == []
    with pytest.raises(StopIteration):
        loader.next()


def test_reset_starts_anew(load, whole):
    loader = load()
    assert digests(loader, 3) == whole[:3]
    loader.reset()
    assert digests(loader) == whole
    loader.reset()
    assert digests(loader, 1) == whole[:1]
    resumed = load(state=loader.state_dict())
    assert digests(resumed, 1) == whole[1:2]
    resumed.reset()
    assert digests(resumed, 2) == whole[:2]


@pytest.mark.parametrize("options", [{"workers": "inline"}, {"workers": 1, "prefetch": 1}, {"memory": "2GiB"}], ids=str)
def test_however_it_is_made_it_is_the_same(load, whole, options):
    assert digests(load(**options)) == whole


def test_len_counts_micro_batches(load):
    loader = load(0, 2, micro_batch=1, run=f"len-{os.getpid()}")
    assert len(loader) == 2 * loader.steps == sum(1 for _ in loader)


def test_a_state_goes_on_exactly(load, whole):
    loader = load()
    digests(loader, 7)
    state = loader.state_dict()
    assert pickle.loads(pickle.dumps(state)) == state and list(state) == ["stoker"]
    assert digests(load(state=state)) == whole[7:]
    assert digests(load(state=state["stoker"])) == whole[7:]
    digests(loader, 4)
    loader.load_state_dict(state)
    assert loader.state_dict() == state and digests(loader) == whole[7:]


def test_a_number_goes_on_at_that_step(package, load, whole):
    loader = load()
    for _ in range(7):
        next(loader)
    resumed = load(state=7)
    assert resumed.state_dict() == loader.state_dict() and digests(resumed) == whole[7:]
    loader.load_state_dict(20)
    assert digests(loader) == whole[20:]
    with pytest.raises(package.StateError, match="23 steps"):
        load(state=24)


def test_the_state_of_a_batch_goes_on_behind_it(load, whole):
    for number, batch in enumerate(load()):
        if number in (0, 11, len(whole) - 1):
            assert digests(load(state=batch.state)) == whole[number + 1:]


def test_a_state_inside_a_step_goes_on_inside_it(load):
    loader = load(micro_batch=1)
    wanted = digests(loader)
    loader.reset()
    digests(loader, 6)
    resumed = load(micro_batch=1, state=loader.state_dict())
    assert digests(resumed) == wanted[6:]


def test_a_state_is_read_after_close(load, whole):
    with load() as loader:
        digests(loader, 2)
    assert digests(load(state=loader.state_dict()), 1) == whole[2:3]


def test_a_state_of_another_run_is_refused_unless_allowed(package, load):
    loader = load()
    digests(loader, 5)
    state = loader.state_dict()
    with pytest.raises(package.StateError, match="seed was 1 and is 2") as said:
        load(state=state, seed=2)
    assert said.value.status is package.Status.ERR_STATE and said.value.stage == "state"
    assert next(load(state=state, seed=2, allow_changes=["seed"])).step == 5
    for wrong, kind in (({"other": "x"}, TypeError), ([3], TypeError), ("no state", package.StateError)):
        with pytest.raises(kind):
            load(state=wrong)


def test_eval_is_a_split(package, config, index_dir, load, tmp_path):
    with pytest.raises(package.SetupError, match="eval"):
        load(split="eval")
    folder = tmp_path / "set"
    shutil.copytree(config.parent, folder)
    with open(folder / "stoker.yaml", "a", encoding="utf-8") as file:
        file.write("\neval:\n  batch: 2\n  data: [{name: sample, path: train.jsonl, first: 6}]\n")
    with package.Loader(folder / "stoker.yaml", split="eval", memory="256MiB") as loader:
        passes = []
        for _ in range(2):
            passes.append([[sample.line for sample in batch.samples] for batch in loader])
            loader.reset()
    assert passes[0] == passes[1] == [[1, 2], [3, 4], [5, 6]]


# --- options ---

def test_keywords_are_the_options_of_the_table(package, load):
    table = {option.name: option for option in package.options()}
    assert table["layout"].choices == "padded | flat | packed" and table["seed"].changes_stream and len(table) > 60
    batch = next(load(layout="packed", row_tokens=1024, micro_batch=None, limits={"json_depth": 32}, batch=[[0, 2], [5, 4]], shuffle=False))
    assert batch["input_ids"].shape[1] == 1024 and batch.step == 0


@pytest.mark.parametrize("options, words", [({"bacth": 3}, "batch"), ({"batch": 0}, "batch"), ({"layout": "round"}, "padded"),
                                            ({"limits": {"json_deep": 3}}, "json_depth"), ({"memory": "1MiB"}, "raise memory")], ids=str)
def test_wrong_options_are_refused_in_words(package, load, options, words):
    with pytest.raises(package.SetupError, match=words) as said:
        load(**options)
    assert isinstance(said.value, ValueError)


def test_a_mapping_is_a_configuration_too(package, config, index_dir, whole):
    text = config.read_text()
    template = {role: {"before": f"<|im_start|>{role}\n", "after": "<|im_end|>\n"} for role in ("system", "user", "tool")}
    template["assistant"] = {"before": "<|im_start|>assistant\n", "after": "<|im_end|>\n", "train": ["text", "<|im_end|>\n"]}
    template["image"] = re.search(r'image: "(.*)"', text).group(1)
    options = {"model": config.parent / "model", "data": [{"name": "sample", "path": str(config.parent / "train.jsonl")}], "batch": 4,
               "epochs": 2, "seed": 1, "max_pixels": 200704, "template": template, "index_dir": index_dir}
    with package.Loader(options, memory="256MiB") as loader:
        assert digests(loader) == whole


def test_relative_paths_of_keywords_start_from_the_working_folder(load, whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert digests(load(index_dir="here"), 1) == whole[:1] and list((tmp_path / "here").iterdir())


# --- errors ---

def test_errors_name_file_line_and_sample(package, config, tmp_path, engine):
    with pytest.raises(package.Error) as said:
        package.Loader(tmp_path / "none.yaml")
    assert said.value.file.endswith("none.yaml") and said.value.stage == "options" and said.value.code == 2
    (tmp_path / "broken.yaml").write_text("batch: 2\nlayout: [\n")
    with pytest.raises(package.SetupError) as said:
        package.Loader(tmp_path / "broken.yaml")
    assert said.value.line in (2, 3) and str(said.value).startswith(f"{said.value.file}:{said.value.line}: ")

    folder = tmp_path / "set"
    shutil.copytree(config.parent, folder)
    package.index(folder / "stoker.yaml")
    for picture in folder.glob("images/*.jpg"):
        data, info = bytearray(picture.read_bytes()), picture.stat()
        data[len(data) // 2:] = bytes(len(data) - len(data) // 2)
        picture.write_bytes(data)
        os.utime(picture, ns=(info.st_atime_ns, info.st_mtime_ns))
    with package.Loader(folder / "stoker.yaml", memory="256MiB", errors={"masked": 0}, limits={"media_bytes": "1MiB"}, engine=engine) as loader:
        with pytest.raises(package.SpentError) as said:
            digests(loader)
        with pytest.raises(package.SpentError) as again:
            next(loader)
    error = said.value
    assert str(again.value) == str(error) and error.status is package.Status.ERR_SPENT and isinstance(error, package.DataError)
    assert error.sample.startswith("sample") and "masked" in error.message and error.sample in str(error)
    assert error.file == str(folder / "train.jsonl") and json.loads((folder / "train.jsonl").read_text().splitlines()[error.line - 1])
    assert error.stage == "decode" and str(error).startswith(f"{error.file}:{error.line}: sample {error.sample}: ")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and str(copy) == str(error) and copy.sample == error.sample


def test_every_status_has_its_class(package):
    from stoker import _core, _exceptions
    named = {name.removeprefix("STK_"): number for name, number, _ in _core.STATUSES if number < 0}
    assert named == {status.name: int(status) for status in package.Status}
    for name, number in named.items():
        error = _exceptions.make(number, "words", "none", 0, 0, "", "")
        assert isinstance(error, package.Error) and type(error) is not package.Error and error.status.name == name


def test_a_closed_loader_says_so(package, load):
    loader = load()
    loader.close()
    loader.close()
    for call in (loader.next, loader.metrics):
        with pytest.raises(package.CallError, match="closed"):
            call()
    loader.reset()
    assert next(loader).step == 0


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
def test_a_timeout_is_a_number(load, timeout):
    with pytest.raises((ValueError, TypeError)):
        load().next(timeout)


# --- splits ---

EVAL = "\neval:\n  batch: 3\n  data: [{name: sample, path: train.jsonl, first: 6}]\n"


def test_keywords_are_for_evaluation_too_but_for_what_it_states(package, config, tmp_path, engine):
    """In whatever process: none is lost without a word."""
    shutil.copytree(config.parent, tmp_path / "set")
    file = tmp_path / "set/stoker.yaml"
    file.write_text(file.read_text() + EVAL)
    options = {"engine": engine, "run": f"splits-{os.getpid()}-{engine}", "index_dir": tmp_path / "index", "memory": "256MiB", "workers": 1, "batch": 2,
               "max_pixels": 16384, "shuffle": True, "steps": 1}

    def rows_and_patches(split, **more):
        with package.Loader(file, split=split, **options, **more) as loader:
            batches = list(loader)
            return [batch.rows for batch in batches], max(int(batch["image_grid_thw"].prod(1).max()) for batch in batches)

    with package.Loader(file, split="train", **options) as training:        # of the same engine, if it is a process
        assert len(training) == 1 and next(training).rows == 2
        rows, patches = rows_and_patches("eval")
        assert rows == [3, 3] and patches <= 16384 // 16**2
    assert len(list((tmp_path / "index").iterdir())) > 0
    options["run"] += "-other"
    for own in ({"eval": {"batch": 6, "max_pixels": 65536}}, {"eval.batch": 6, "eval.max_pixels": 65536}):
        rows, patches = rows_and_patches("eval", **own)
        assert rows == [6] and 64 < patches <= 65536 // 16**2
    with pytest.raises(package.SetupError, match="did you mean batch"):
        package.Loader(file, split="eval", eval={"bacth": 6}, **options)


# --- waiting ---

def test_a_timeout_loses_nothing(package, held, engine):
    with package.Loader(held.config, engine=engine) as loader:
        for timeout in (0, 0.01, 0.12):
            with pytest.raises(TimeoutError):
                loader.next(timeout)
        held.gate.set()
        assert loader.next(60).step == 0
        assert loader.metrics()["wait_s"] > 0.13


def test_waiting_for_ever_ends_by_the_option_timeout(package, held, engine):
    with package.Loader(held.config, timeout="1 s", engine=engine) as loader:
        with pytest.raises(package.WaitError, match="sample|wait") as said:
            next(loader)
    assert isinstance(said.value, TimeoutError) and said.value.status is package.Status.ERR_TIMEOUT and said.value.stage == "deliver"


def test_close_ends_the_wait_of_another_thread(package, held):
    loader, said = package.Loader(held.config), []

    def wait():
        try:
            next(loader)
        except package.CallError as error:
            said.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive() and not said:
        try:
            loader.next(0)
        except package.CallError as error:
            assert "another thread" in str(error)
            break
        except TimeoutError:
            time.sleep(0.001)
    loader.close()
    thread.join(60)
    assert not thread.is_alive() and "closed" in said[0]


def test_another_thread_asks_for_metrics_while_next_waits(package, held, engine):
    """As a progress bar or an exporter does."""
    with package.Loader(held.config, engine=engine) as loader:
        thread = threading.Thread(target=lambda: [next(loader) for _ in range(2)])
        thread.start()
        asked = [loader.metrics() for _ in range(20)]
        assert thread.is_alive() and all(told["micro_batches"] == 0 and told["memory"]["budget_bytes"] == 256 << 20 for told in asked)
        held.gate.set()
        thread.join(60)
        assert not thread.is_alive() and loader.metrics()["micro_batches"] == 2
    with pytest.raises(package.CallError, match="closed"):
        loader.metrics()


INTERRUPTED = """
import signal, sys, stoker, time
signal.signal(signal.SIGINT, signal.default_int_handler)    # of a job in the background it is ignored
with stoker.Loader(sys.argv[1], engine=sys.argv[2]) as loader:
    try:
        print("waits", flush=True)
        next(loader)
    except KeyboardInterrupt:
        print("interrupted", time.monotonic(), flush=True)
    sys.stdin.readline()
    print(next(loader).step)
"""


def test_an_interrupt_comes_through_and_loses_nothing(held, engine):
    """How quickly is printed, not asserted: a tenth of a second on an idle machine."""
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED, held.config, engine], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)                         # so that it does wait
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        word, came = process.stdout.readline().split()
        print(f"{1000 * (float(came) - sent):.0f} ms")
        held.gate.set()
        rest, errors = process.communicate("\n", timeout=60)
    assert (word, rest, process.returncode) == ("interrupted", "0\n", 0), errors


def test_a_batch_that_was_made_while_a_signal_came_is_not_lost(load):
    """workers: inline makes within next, which cannot be left half-way."""
    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    options = {"workers": "inline", "batch": 45, "max_pixels": 802816, "memory": "1GiB"}
    wanted, got, stops = digests(load(**options)), [], 0
    loader, before = load(**options), signal.signal(signal.SIGALRM, stop)
    try:
        while len(got) < len(wanted):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                got.append(next(loader).digest())
            except Stop:
                stops += 1
                got.append(next(loader).digest())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert got == wanted and stops == len(wanted)


def test_an_interrupt_stops_an_index(package, config, tmp_path):
    said = []

    def stop(*words):
        said.append(words)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        package.Loader(config, index_dir=tmp_path, progress=stop, engine="inprocess")
    assert len(said) == 1 and said[0][0] == "sample"
    with package.Loader(config, index_dir=tmp_path, progress=lambda *words: said.append(words)) as loader:
        assert next(loader).step == 0


# --- processes ---

def test_a_forked_child_is_told(package, load):
    loader = load(keep=2)
    batch, array = next(loader), None
    array = batch["labels"]
    child = os.fork()
    if child == 0:
        code = 0
        try:
            for call in (loader.next, loader.metrics, loader.reset, lambda: batch["labels"], batch.digest):
                try:
                    call()
                    code = 1
                except package.ForkedError as error:
                    code = code or (0 if "fork" in str(error) and error.status == package.Status.ERR_FORKED else 2)
            loader.state_dict()
            batch.release()
            del batch, array
            loader.close()
            del loader
        except BaseException:
            code = 3
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (array == batch["labels"]).all() and next(loader).step == 1


def read_some(config, index_dir, state, engine):
    import stoker
    with stoker.Loader(config, index_dir=index_dir, memory="256MiB", state=state, engine=engine) as loader:
        return digests(loader, 3)


def test_a_spawned_child_opens_its_own(load, config, index_dir, whole, engine):
    loader = load()
    digests(loader, 2)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(loader)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.starmap(read_some, [(config, index_dir, None, engine), (config, index_dir, loader.state_dict(), engine)]) == [whole[:3], whole[2:5]]
    assert digests(loader, 1) == whole[2:3]
