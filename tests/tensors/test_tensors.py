"""stoker.torch.Loader: what its dicts hold, where that lies, and where a run stands."""
import shutil

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stoker._core")
import stoker        # noqa: E402
import stoker.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("error")
LAYOUTS = [{"layout": "padded"}, {"layout": "flat"}, {"layout": "packed", "row_tokens": 2048}, {"layout": "flat", "targets": "shifted"}]
named = pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: " ".join(map(str, options.values())))


def in_arena(tensor):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        ranges = [[int(end, 16) for end in line.split()[0].split("-")] for line in maps if "memfd:stoker-arena" in line]
    return any(first <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= end for first, end in ranges)


@named
def test_values_are_those_of_the_batch_on_the_device_of_the_trainer(load, options):
    for batch, views in zip(load(device="cpu", **options), load(kind=stoker.Loader, **options), strict=True):
        wanted = views.dict()
        pictures = {"pixel_values"} if wanted.pop("pixel_bytes", None) is not None else set()
        assert isinstance(batch, dict) and set(batch) == set(wanted) | pictures and "image_offsets" not in batch
        for name, value in wanted.items():
            if isinstance(batch[name], torch.Tensor):
                assert batch[name].device.type == "cpu" and batch[name].numpy().dtype == value.dtype and (batch[name].numpy() == value).all(), name
            else:
                assert type(batch[name]) is type(value) in (int, bool) and batch[name] == value
        if options["layout"] != "padded" and "loss_mask" not in batch:
            assert batch["use_cache"] is False and batch["cu_seq_lens_q"].dtype == torch.int32 and type(batch["max_length_q"]) is int
        assert not {"cu_seqlens", "max_seqlen"} & set(batch) or "loss_mask" in batch
        for name in ("step", "rank", "world", "micro", "micro_count", "epoch", "rows", "tokens", "visual_tokens", "images", "loss_tokens",
                     "step_loss_tokens", "samples", "state"):
            assert getattr(batch, name) == getattr(views, name), name


def test_each_dict_is_fresh_and_may_be_written_to(load):
    first, again = next(load()), next(load())
    assert all(first[name].data_ptr() != again[name].data_ptr() for name in first)
    wanted = {name: value.clone() for name, value in again.items()}
    for name, value in first.items():
        value.zero_()
    first["more"] = None
    del first["labels"]
    assert all(torch.equal(again[name], wanted[name]) for name in wanted) and "more" not in again
    assert type(first.copy()) is dict


@named
@pytest.mark.parametrize("form", [{"pixels": "float32"}, {"pixels": "bfloat16"}, {"expand": False}], ids=str)
def test_pixels_that_need_no_change_lie_in_the_arena(load, options, form):
    form, options = {**form, "memory": "1GiB"}, {**options, "keep": 1}
    batch = next(load(device="cpu", **options, **form))
    name = "pixel_bytes" if "expand" in form else "pixel_values"
    assert in_arena(batch[name]) and not any(in_arena(value) for other, value in batch.items() if other != name and isinstance(value, torch.Tensor))
    views = next(load(kind=stoker.Loader, **options, **{key: value for key, value in form.items() if key != "expand"}))
    assert stoker.torch.tensors(views)[name].data_ptr() == views.field(name).address


def test_views_outlive_the_loader(load):
    loader = load(device="cpu", pixels="float32", keep=1)
    wanted = next(load(kind=stoker.Loader, pixels="float32"))["pixel_values"].copy()
    values = next(loader)["pixel_values"]
    loader.close()
    del loader
    assert (values.numpy() == wanted).all()


def test_what_is_expanded_does_not_hold_the_engine_up(load):
    """With keep 1, all batches of a run."""
    loader = load(device="cpu", keep=1)
    assert len(list(loader)) == len(loader)


def test_dtypes_of_pixels(load):
    full = next(load())["pixel_values"]
    assert full.dtype == torch.float32
    for options in ({"dtype": torch.bfloat16}, {"dtype": torch.bfloat16, "pixels": "float32"}, {"pixels": "bfloat16"}):
        assert torch.equal(next(load(**options))["pixel_values"], full.to(torch.bfloat16)), options
    batch = next(load(dtype=torch.bfloat16, expand=False))
    assert batch["pixel_bytes"].dtype == torch.uint8 and batch["input_ids"].dtype == torch.int64


def test_without_cuda_it_falls_back_unless_cuda_is_asked_for(load, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    loader = load(pin=True)
    assert loader.device == torch.device("cpu") and next(loader)["input_ids"].device.type == "cpu"
    with pytest.raises(ValueError, match="no CUDA device"):
        load(device="cuda")


# --- positions ---

@pytest.fixture(params=[False, True], ids=["at once", "one ahead"])
def start(load, request):
    """Loaders that copy at once, and that look one batch ahead, as they do where there is a stream."""
    def one(**options):
        loader = load(device="cpu", **options)
        loader._stream = object() if request.param else None
        return loader
    return one


def test_a_run_is_the_whole_plan_and_its_state_that_of_what_was_given(start, load):
    views = [(batch.step, batch.state) for batch in load(kind=stoker.Loader)]
    loader = start()
    opened = loader.state_dict()
    for wanted, batch in zip(views, loader, strict=True):
        assert (batch.step, batch.state) == wanted and loader.state_dict() == batch.state
    with pytest.raises(StopIteration):
        next(loader)
    loader.reset()
    assert loader.state_dict() == opened and next(loader).step == 0
    loader.load_state_dict(views[6][1])
    assert loader.state_dict() == views[6][1] and [next(loader).step for _ in range(3)] == [7, 8, 9]
    assert next(start(state=views[6][1])).step == 7


def test_an_error_comes_in_its_own_turn(start, load):
    loader = start(keep=2)
    wanted, real, asked = [0, 1, 2], loader._reader, []

    class Failing:
        def next(self, timeout):
            asked.append(timeout)
            if len([batch for batch in given if batch is not None]) == 3:
                raise stoker.MediaError("a picture")
            given.append(real.next(None))
            return given[-1]

        def __getattr__(self, name):
            return getattr(real, name)

    given = []
    loader._reader = Failing()
    assert [next(loader).step for _ in wanted] == wanted
    with pytest.raises(stoker.MediaError, match="a picture"):
        next(loader)
    loader._reader = real


def test_an_interrupted_copy_loses_no_batch(start, monkeypatch):
    loader, finish, asked = start(), stoker.torch.Loader._finish, []

    def interrupted(self, *arguments):
        asked.append(1)
        if len(asked) % 3 == 0:
            raise KeyboardInterrupt
        return finish(self, *arguments)

    monkeypatch.setattr(stoker.torch.Loader, "_finish", interrupted)
    steps, states = [], []
    while len(steps) < len(loader):
        try:
            steps.append(next(loader).step)
        except KeyboardInterrupt:
            states.append(loader.state_dict())
    assert steps == list(range(23)) and len(states) > 5


def test_metrics_and_steps_are_those_of_a_loader(start):
    loader = start()
    for batch in loader:
        with loader.step():
            pass
    told = loader.metrics()
    assert told["micro_batches"] == len(loader) == loader.steps and told["samples"] == 90


def test_keywords_are_for_evaluation_too(config, index_dir, tmp_path):
    shutil.copytree(config.parent, tmp_path / "set")
    file = tmp_path / "set/stoker.yaml"
    file.write_text(file.read_text() + "\neval:\n  batch: 3\n  data: [{name: sample, path: train.jsonl, first: 6}]\n")
    options = {"index_dir": index_dir, "memory": "256MiB", "workers": 1, "batch": 2, "max_pixels": 16384}
    with stoker.torch.Loader(file, split="eval", device="cpu", **options) as loader:
        batches = list(loader)
    assert [batch.rows for batch in batches] == [3, 3]
    assert max(int(batch["image_grid_thw"].prod(1).max()) for batch in batches) <= 16384 // 16**2


# --- pinned memory, without a device ---

def test_a_buffer_is_filled_again_when_its_copy_has_ended():
    said = []

    class Event:
        count = 0

        def __init__(self):
            self.number, Event.count = Event.count, Event.count + 1

        def record(self):
            said.append(("record", self.number))

        def synchronize(self):
            said.append(("wait", self.number))

    sizes = []

    def allocate(size):
        sizes.append(size)
        return torch.empty(size, dtype=torch.uint8)

    ring = stoker.torch.Ring(2, allocate, Event)
    filled = []
    for number in range(4):
        values = {"a": torch.full((3, 5), number), "b": torch.tensor([number, 7], dtype=torch.uint8), "max_length_q": 3,
                  "c": torch.tensor(float(number), dtype=torch.bfloat16), "none": torch.empty(0, 4)}
        filled.append(ring.fill(values))
        ring.mark()
        assert filled[-1].keys() == values.keys() and filled[-1]["max_length_q"] == 3
        for name in "abc":
            assert torch.equal(filled[-1][name], values[name]) and filled[-1][name].dtype == values[name].dtype
        offsets = [filled[-1][name].data_ptr() - filled[-1]["a"].data_ptr() for name in "abc"]
        assert all(offset % 64 == 0 for offset in offsets) and len(set(offsets)) == 3
    assert said == [("record", 0), ("record", 1), ("wait", 0), ("record", 2), ("wait", 1), ("record", 3)]
    assert len(sizes) == 2 and filled[0]["a"].data_ptr() == filled[2]["a"].data_ptr() != filled[1]["a"].data_ptr()
    ring.fill({"a": torch.zeros(1 << 16, dtype=torch.uint8)})
    assert len(sizes) == 3 and said[-1] == ("wait", 2)
