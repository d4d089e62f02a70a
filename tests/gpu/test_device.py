"""On a CUDA device: pixels, pinned memory, and the stream that copies.  Prepared for whoever has one: `make test-gpu`."""
import gc

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stoker._core")
import stoker        # noqa: E402
import stoker.megatron  # noqa: E402
import stoker.torch  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")]
LAYOUTS = [{"layout": "padded"}, {"layout": "flat"}, {"layout": "packed", "row_tokens": 2048}]


def same(batch, wanted):
    assert set(batch) == set(wanted)
    for name, value in wanted.items():
        if isinstance(value, torch.Tensor):
            assert batch[name].is_cuda and batch[name].dtype == value.dtype and torch.equal(batch[name].cpu(), value), name
        else:
            assert batch[name] == value


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_pixels_are_those_of_the_cpu_bit_for_bit(load, dtype, compiled, monkeypatch):
    monkeypatch.setattr(stoker.torch, "CHUNK_VALUES", 1 << 16)
    views = next(load(kind=stoker.Loader))
    values = stoker.torch.table(views.pixel_rule, "cuda", dtype)
    patches = torch.from_dlpack(views.field("pixel_bytes")).to("cuda")
    wanted = stoker.torch.pixels(views, "cpu", dtype)["pixel_values"]
    assert torch.equal(stoker.torch.pixels(views, "cuda", dtype)["pixel_values"].cpu(), wanted)
    made = (torch.compile(stoker.torch.expand, fullgraph=True) if compiled else stoker.torch.expand)(patches, values, 2)
    assert torch.equal(made.cpu(), wanted)


def test_memory_beside_the_pixels_is_bounded(load):
    rule = next(load(kind=stoker.Loader)).pixel_rule
    patches = torch.zeros(100_000, 768, dtype=torch.uint8, device="cuda")
    stoker.torch.table(rule, "cuda", torch.bfloat16)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    made = stoker.torch.pixels({"pixel_bytes": patches}, dtype=torch.bfloat16, rule=rule)["pixel_values"]
    assert torch.cuda.max_memory_allocated() - before - made.nbytes < 10 * 4 * stoker.torch.CHUNK_VALUES


@pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: options["layout"])
@pytest.mark.parametrize("pin", [True, False], ids=["pinned", "pageable"])
@pytest.mark.parametrize("pixels", ["uint8", "bfloat16"])
def test_a_run_on_the_device_is_that_on_the_cpu(load, options, pin, pixels):
    """Batches are kept, so that memory that is used again too early would show."""
    loader = load(device="cuda", pin=pin, pixels=pixels, **options)
    kept = list(loader)
    for batch, wanted in zip(kept, load(device="cpu", pixels=pixels, **options), strict=True):
        same(batch, wanted)
        assert (batch.step, batch.state) == (wanted.step, wanted.state)
    assert loader.state_dict() == kept[-1].state


@pytest.mark.parametrize("options", [LAYOUTS[0], LAYOUTS[2]], ids=lambda options: options["layout"])
def test_a_batch_for_megatron_is_that_on_the_cpu(load, options):
    options = {"kind": stoker.megatron._Loader, "masks": True, "targets": "shifted", "positions": "plain", **options}
    for batch, wanted in zip(list(load(device="cuda", **options)), load(device="cpu", **options), strict=True):
        same(batch, wanted)


def test_a_busy_device_gets_each_batch_whole(load):
    """The trainer's stream is far behind the copies; buffers, and the memory of dropped batches, go round under it."""
    wanted = [batch["pixel_values"].double().sum().item() for batch in load(device="cpu", epochs=4) if "pixel_values" in batch]
    stream, sums = torch.cuda.Stream(), []
    work = torch.randn(2048, 2048, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for batch in load(device="cuda", epochs=4):
            for _ in range(20):
                work = work @ work / 50
            if "pixel_values" in batch:
                sums.append(batch["pixel_values"].double().sum())
            del batch
    stream.synchronize()
    assert [value.item() for value in sums] == pytest.approx(wanted, rel=1e-12)


def test_copies_are_asynchronous_and_one_ahead(load):
    loader = load(device="cuda")
    first = next(loader)
    assert loader._stream is not None and loader._stream != torch.cuda.current_stream() and first["pixel_values"].is_cuda
    assert all(buffer is None or buffer.is_pinned() for buffer, _ in loader._ring._slots)
    torch.cuda.synchronize()
    torch.cuda._sleep(int(2e9))                 # the trainer's stream is busy
    second = next(loader)                       # and is not waited for
    assert not torch.cuda.current_stream().query()
    assert loader.state_dict() == second.state
    torch.cuda.synchronize()


def test_nothing_of_the_engine_is_held(load):
    """With keep 1 a trainer may keep all batches."""
    loader = load(device="cuda", keep=1)
    kept = list(loader)
    loader.close()
    del loader
    gc.collect()
    assert len(kept) == 23 and all(bool((batch["input_ids"] >= 0).all()) for batch in kept)


@pytest.mark.parametrize("number", range(max(1, torch.cuda.device_count())))
def test_every_device_whichever_is_the_current_one(load, number):
    batch, wanted = next(load(device=f"cuda:{number}")), next(load(device="cpu"))
    assert batch["input_ids"].device.index == number and torch.cuda.current_device() == 0
    same(batch, wanted)
