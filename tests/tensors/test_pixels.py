"""stoker.torch.pixels: the reference's pixel_values of bytes, bit for bit, by whatever profile, eager and compiled."""
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("stoker._core")
pytest.importorskip("transformers")
import stoker                 # noqa: E402
import stoker.torch           # noqa: E402
from plain_pipeline import OPTIONS, Plain  # noqa: E402

PROFILES = ["hf", "pil-13", "qwen-vl-utils"]


@pytest.fixture(scope="module")
def plain(config):
    return Plain(config)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_they_are_those_of_the_engine(load, profile, dtype):
    ready = load(kind=stoker.Loader, profile=profile, pixels=dtype)
    pictures = 0
    for batch, wanted in zip(load(kind=stoker.Loader, profile=profile), ready, strict=True):
        made = stoker.torch.pixels(batch, dtype=getattr(torch, dtype))
        assert set(made) == set(wanted) & {"pixel_values", "pixel_values_videos"}
        if made:
            want = torch.from_dlpack(wanted.field("pixel_values"))
            assert made["pixel_values"].dtype == want.dtype and torch.equal(made["pixel_values"], want)
            assert made["pixel_values"].is_contiguous()
            pictures += batch.images
    assert pictures > 20


def test_they_are_those_of_the_processor_of_transformers(load, plain):
    seen = 0
    for batch in load(kind=stoker.Loader, epochs=1, **OPTIONS):
        wanted = plain.collate(batch.samples)
        made = stoker.torch.pixels(batch)
        assert ("pixel_values" in wanted) == bool(made)
        if made:
            assert torch.equal(made["pixel_values"], wanted["pixel_values"]) and torch.equal(torch.tensor(batch["image_grid_thw"]), wanted["image_grid_thw"])
            seen += batch.images
    assert seen > 20


def test_the_table_of_hf_is_one_subtraction_and_one_division(load):
    rule = next(load(kind=stoker.Loader)).pixel_rule
    byte = torch.arange(256, dtype=torch.float32)
    assert rule.temporal == 2 and rule.table.dtype == np.float32 and not rule.table.flags.writeable
    assert torch.equal(torch.tensor(rule.table), ((byte - 127.5) / 127.5).expand(3, 256))
    other = next(load(kind=stoker.Loader, profile="pil-13")).pixel_rule
    assert 100 < (other.table[0] != rule.table[0]).sum() < 160


@pytest.fixture
def small(monkeypatch):
    """Channels that differ, and chunks that do not divide the patches."""
    monkeypatch.setattr(stoker.torch, "CHUNK_VALUES", 3 * 16 * 5)
    values = torch.randn(768, generator=torch.Generator().manual_seed(1))
    return torch.randint(0, 256, (23, 48), dtype=torch.uint8, generator=torch.Generator().manual_seed(2)), values


def by_hand(patches, values, repeat):
    rows = []
    for patch in patches.tolist():
        channels = [[values[256 * c + byte].item() for byte in patch[16 * c:16 * c + 16]] for c in range(3)]
        rows.append([value for channel in channels for value in channel * repeat])
    return torch.tensor(rows)


@pytest.mark.parametrize("repeat", [1, 2, 3])
def test_each_channel_has_its_own_values_and_its_frame_again(small, repeat):
    assert torch.equal(stoker.torch.expand(*small, repeat), by_hand(*small, repeat))
    assert stoker.torch.expand(small[0][:0], small[1], repeat).shape == (0, 48 * repeat)


def test_the_frames_of_videos_differ_and_stay(load):
    rule = next(load(kind=stoker.Loader)).pixel_rule
    frames = torch.randint(0, 256, (5, 3 * 2 * 16 * 16), dtype=torch.uint8)
    made = stoker.torch.pixels({"pixel_bytes_videos": frames}, rule=rule)
    assert set(made) == {"pixel_values_videos"} and torch.equal(made["pixel_values_videos"], (frames.float() - 127.5) / 127.5)


def test_memory_beside_the_result_is_bounded(load, monkeypatch):
    """The most that one operation makes, but for the result, follows the chunk."""
    monkeypatch.setattr(stoker.torch, "CHUNK_VALUES", 3 * 256 * 8)
    rule, made = next(load(kind=stoker.Loader)).pixel_rule, []
    patches = torch.zeros(400, 768, dtype=torch.uint8)

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            out = function(*arguments, **(keywords or {}))
            made.append(out.untyped_storage())
            return out

    with Watch():
        out = stoker.torch.pixels({"pixel_bytes": patches}, rule=rule)["pixel_values"]
    kept = {patches.data_ptr(), out.data_ptr()}
    assert len(made) > 50 and 0 < max(storage.nbytes() for storage in made if storage.data_ptr() not in kept) <= 4 * 3 * 256 * 8


def test_compiled_it_is_the_same(load, small):
    import torch._inductor.compile_fx  # noqa: F401 (its imports warn)
    compiled = torch.compile(stoker.torch.expand, fullgraph=True)
    for patches in (small[0], small[0][:7]):
        assert torch.equal(compiled(patches, small[1], 2), by_hand(patches, small[1], 2))
    rule = next(load(kind=stoker.Loader)).pixel_rule
    patches = torch.randint(0, 256, (9, 768), dtype=torch.uint8)
    step = torch.compile(lambda batch: stoker.torch.pixels(batch, rule=rule)["pixel_values"] + 1, backend="aot_eager")
    assert torch.equal(step({"pixel_bytes": patches}), stoker.torch.pixels({"pixel_bytes": patches}, rule=rule)["pixel_values"] + 1)


def test_a_plain_dict_does_not_know_its_rule(load):
    batch = next(load(kind=stoker.Loader))
    with pytest.raises(TypeError, match="rule="):
        stoker.torch.pixels(batch.dict())
    assert torch.equal(stoker.torch.pixels(batch.dict(), rule=batch.pixel_rule)["pixel_values"], stoker.torch.pixels(batch)["pixel_values"])
