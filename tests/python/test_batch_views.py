"""What a batch holds is what the commands make, lies where it was made, and lives as long as somebody looks at it."""
import collections.abc
import ctypes
import gc
import itertools
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest
import xxhash

LAYOUTS = [{"layout": "padded"}, {"layout": "flat"}, {"layout": "packed", "row_tokens": 2048, "micro_batch": 1},
           {"layout": "flat", "targets": "shifted"}, {"pixels": "float32"}]


def flags_of(options):
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def arena_ranges():
    """Where the arenas of this process are mapped."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps if "memfd:stoker-arena" in line]


@pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: " ".join(map(str, options.values())))
def test_values_are_those_of_replay_and_lie_in_the_arena(load, stoker, config, index_dir, tmp_path, options):
    batch = next(load(**options))
    stoker("replay", config, "--index-dir", index_dir, "--step", batch.step, "--dump", tmp_path, *flags_of(options))
    folder = next(tmp_path.glob("*micro-000"))
    assert set(batch) == {path.stem for path in folder.glob("*.npy")} and len(batch) == len(list(batch)) > 5
    arenas = arena_ranges()
    for name, array in batch.items():
        wanted = np.load(folder / f"{name}.npy")
        assert array.dtype == wanted.dtype and array.shape == wanted.shape and (array == wanted).all(), name
        assert not array.flags.writeable and not array.flags.owndata
        address = array.ctypes.data
        assert address == batch.field(name).address and address % 64 == 0
        assert any(first <= address and address + array.nbytes <= end for first, end in arenas), name
        with pytest.raises(ValueError):
            array[...] = 0


@pytest.mark.parametrize("world", [1, 2])
def test_digests_are_those_of_the_run(load, stoker, config, index_dir, world):
    run_name = f"digests-{os.getpid()}-{world}"
    loaders = [load(rank, world, run=run_name, node_ranks=range(world)) for rank in range(world)]
    run = xxhash.xxh3_128()
    for batches in zip(*loaders, strict=True):
        for rank, batch in enumerate(batches):
            assert (batch.rank, batch.world) == (rank, world)
            run.update(batch.digest())
    assert run.hexdigest() == stoker("run", config, "--index-dir", index_dir, "--digest", "--ranks", world).stdout.strip()


def test_a_batch_is_a_mapping(package, load):
    batch = next(load())
    assert isinstance(batch, collections.abc.Mapping) and isinstance(batch, package.Batch)
    assert "labels" in batch and "lables" not in batch and 3 not in batch and batch.get("lables") is None
    assert [name for name, _ in batch.items()] == sorted(batch.keys())
    with pytest.raises(KeyError, match="lables"):
        batch["lables"]
    assert batch == batch and len({batch}) == 1
    with pytest.raises(TypeError):
        package.Batch()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(batch)


def test_attributes_say_what_is_beside_the_tensors(load):
    loader = load(micro_batch=2)
    for number, batch in enumerate(loader):
        assert (batch.step, batch.micro, batch.micro_count, batch.rows) == (number // 2, number % 2, 2, 2)
        assert batch.loss_tokens == (batch["labels"] != -100).sum() and batch.step_loss_tokens >= batch.loss_tokens
        assert batch.images == len(batch["image_grid_thw"]) if "image_grid_thw" in batch else batch.images == 0
        samples = batch.samples
        assert batch.tokens == sum(sample.tokens for sample in samples if not sample.filler) and batch.epoch in (0, 1)
        for sample in samples:
            assert sample.filler or (sample.id.startswith("sample") and sample.set == "sample" and not sample.masked)
        assert batch.state == loader.state_dict()


def test_the_dict_is_plain_and_holds_what_a_model_takes(load):
    batch = next(load())
    plain = batch.dict()
    assert type(plain) is dict and set(plain) == set(batch) - {"image_offsets"} and batch.dict() is not plain
    assert plain["input_ids"].flags.writeable and (plain["input_ids"] == batch["input_ids"]).all()
    assert plain["pixel_bytes"].ctypes.data == batch["pixel_bytes"].ctypes.data
    plain["labels"][:] = 7
    assert (batch["labels"] != 7).any()


@pytest.mark.parametrize("options", [{"layout": "flat"}, {"layout": "packed", "row_tokens": 2048}], ids=lambda options: options["layout"])
def test_the_dict_tells_samples_apart_as_transformers_does(load, options):
    batch = next(load(**options))
    plain = batch.dict()
    assert plain["use_cache"] is False and type(plain["max_length_q"]) is int and "attention_mask" not in plain
    assert not {"cu_seqlens", "cu_seqlens_padded", "max_seqlen"} & set(plain)
    assert (plain["cu_seq_lens_q"] == batch["cu_seqlens"]).all() and plain["max_length_k"] == batch["max_seqlen"] == np.diff(batch["cu_seqlens"]).max()
    assert batch.model_type == "qwen3_vl" and "seq_idx" not in plain
    padded = next(load(layout="packed", row_tokens=2048, segment_multiple=16)).dict()
    for name in ("cu_seq_lens_q", "cu_seq_lens_k"):     # each token lies in a segment, padding too
        assert not (padded[name] % 16).any() and padded[name][-1] == padded["input_ids"].size and "cu_seqlens_padded" not in padded


@pytest.mark.parametrize("options", [{"layout": "flat"}, {"layout": "packed", "row_tokens": 2048}], ids=lambda options: options["layout"])
def test_qwen35_is_told_the_sample_of_each_token(load, config, tmp_path, options):
    model = tmp_path / "model"
    shutil.copytree(config.parent / "model", model)
    stated = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**stated, "model_type": "qwen3_5"}))
    batch = next(load(model=model, index_dir=tmp_path, **options))
    plain = batch.dict()
    lengths = plain["cu_seq_lens_q"]
    assert batch.model_type == "qwen3_5" and (lengths == plain["cu_seq_lens_k"]).all() and lengths.dtype == np.int32 and (lengths == batch["cu_seqlens"]).all()
    assert plain["seq_idx"].dtype == np.int32 and plain["seq_idx"].shape == plain["input_ids"].shape
    wanted = [number for number, (first, end) in enumerate(itertools.pairwise(lengths.tolist())) for _ in range(first, end)]
    assert plain["seq_idx"].reshape(-1).tolist() == wanted
    for sample in batch.samples:
        numbers = plain["seq_idx"][0 if options["layout"] == "flat" else sample.row, sample.offset:sample.offset + sample.tokens]
        assert len(set(numbers.tolist())) == 1 and (plain["seq_idx"] == numbers[0]).sum() == sample.tokens
    assert "seq_idx" not in next(load(model=model, index_dir=tmp_path, layout="padded")).dict()


# --- DLPack ---

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


def pointer_of(capsule, name, kind):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return kind.from_address(get(capsule, name))


def test_numpy_takes_a_field_by_dlpack(load):
    field = next(load()).field("pixel_bytes")
    assert field.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(field)
    assert array.ctypes.data == field.address and array.shape == field.shape and not array.flags.writeable


def test_bfloat16_goes_by_dlpack_only(load, package):
    bits = next(load(pixels="bfloat16"))["pixel_values"]
    full = next(load(pixels="float32"))["pixel_values"]
    assert isinstance(bits, package.Field) and bits.dtype == "bfloat16" and bits.shape == full.shape and bits.nbytes * 2 == full.nbytes
    with pytest.raises(BufferError, match="DLPack"):
        memoryview(bits)
    held = bits.__dlpack__(), bits.__dlpack__(max_version=(1, 1))
    versioned = pointer_of(held[1], b"dltensor_versioned", Versioned)
    assert (versioned.major, versioned.flags) == (1, 1)
    for tensor in pointer_of(held[0], b"dltensor", Tensor), versioned.tensor:
        assert (tensor.data, tensor.device_type, tensor.code, tensor.bits, tensor.lanes) == (bits.address, 1, 4, 16, 1)
        assert tuple(tensor.shape[:tensor.ndim]) == bits.shape and tuple(tensor.strides[:2]) == (bits.shape[1], 1)
        raw = np.ctypeslib.as_array(ctypes.cast(tensor.data, ctypes.POINTER(ctypes.c_uint16)), bits.shape)
        assert np.abs((raw.astype(np.uint32) << 16).view(np.float32) - full).max() < 0.02
    with pytest.raises(BufferError):
        bits.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        bits.__dlpack__(copy=True)


# --- lives ---

def test_arrays_outlive_batch_and_loader(load):
    loader = load(keep=4)
    batch = next(loader)
    array, wanted = batch["pixel_bytes"], batch["pixel_bytes"].copy()
    capsule = batch.field("pixel_bytes").__dlpack__()
    gone = weakref.ref(batch)
    batch.release()
    batch.release()
    del batch
    assert gone() is None                       # no cycle waits for the collector
    assert [other.step for other in itertools.islice(loader, 3)] == [1, 2, 3]
    loader.close()
    del loader
    gc.collect()
    assert (array == wanted).all()
    del array
    assert pointer_of(capsule, b"dltensor", Tensor).ndim == 2


def test_a_released_batch_gives_no_views_but_its_attributes(package, load):
    with next(load()) as batch:
        state = batch.state
    assert (batch.step, batch.state, batch.images) == (0, state, 7)
    for look in (lambda: batch["labels"], lambda: len(batch), lambda: list(batch), lambda: "labels" in batch, lambda: batch.samples,
                 batch.digest, batch.dict):
        with pytest.raises(package.CallError, match="released"):
            look()


def test_keep_counts_batches_and_what_is_left_of_them(package, load):
    loader = load(keep=1)
    first = next(loader)
    array = first["labels"]
    second = next(loader)
    with pytest.raises(package.SetupError, match="keep") as said:
        next(loader)
    assert said.value.status == package.Status.ERR_KEEP and said.value.stage == "deliver"
    first.release()                             # the array still holds it
    with pytest.raises(package.SetupError):
        next(loader)
    del array
    assert (second.step, next(loader).step) == (1, 2)


def test_every_way_to_hold_a_batch_lets_it_go(load):
    """With keep 1 a reference that was lost would stop the run."""
    for batch in load(keep=1, epochs=3):
        array, field, capsule = batch["labels"], batch.field("labels"), batch.field("labels").__dlpack__()
        view, taken = memoryview(field)[:1], np.from_dlpack(batch.field("labels"))
        plain, names, samples = batch.dict(), list(batch), batch.samples
        del array, field, capsule, view, taken, plain, names, samples


def test_other_threads_release(load):
    loader, seen = load(keep=4, epochs=4), []
    barrier = threading.Barrier(5)

    def release(own):
        barrier.wait()
        seen.append(int(own[0]["labels"].shape[0]))
        own.pop().release()

    while True:
        batches = list(itertools.islice(loader, 4))
        if len(batches) < 4:
            break
        threads = [threading.Thread(target=release, args=([batch],)) for batch in batches]
        del batches
        for thread in threads:
            thread.start()
        barrier.wait()
        for thread in threads:
            thread.join()
    assert len(seen) == len(loader) // 4 * 4 and set(seen) == {4}


def test_one_batch_is_read_and_released_at_once(package, load):
    loader = load()
    for batch in loader:
        def read():
            try:
                for _ in range(50):
                    assert batch["labels"].shape[0] == 4
            except package.CallError as error:
                assert "released" in str(error)
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        batch.release()
        for thread in threads:
            thread.join()


AT_EXIT = """
import sys, stoker
loader = stoker.Loader(sys.argv[1], index_dir=sys.argv[2], workers=2)
batch = next(loader)
kept = [batch, batch["labels"], batch.field("labels").__dlpack__(), iter(loader)]
kept.append(kept)
"""


def test_the_interpreter_may_end_with_everything_open(config, index_dir):
    done = subprocess.run([sys.executable, "-X", "dev", "-c", AT_EXIT, config, index_dir], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


SOAK = """
import os, pathlib, sys, time, stoker
count, run = int(sys.argv[3]), sys.argv[4]

def look(process):
    fewest = 1 << 30
    for _ in range(50):  # a file that is being read is open for a moment
        fewest = min(fewest, len(os.listdir(f"/proc/{process}/fd")))
        time.sleep(0.004)
    with open(f"/proc/{process}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"), fewest

with stoker.Loader(sys.argv[1], index_dir=sys.argv[2], run=run, workers=1, steps=count, batch=1, memory="64MiB", max_pixels=16384) as loader:
    engine, = (folder.name for folder in pathlib.Path("/proc").iterdir()
               if folder.name.isdigit() and f"\\0{run}\\0".encode() in (folder / "cmdline").read_bytes() and folder.name != str(os.getpid()))
    for number, batch in enumerate(loader, 1):
        batch.dict(), batch.samples, batch.state, batch.field("labels").__dlpack__(), batch["labels"]
        if number % 100 == 0:
            loader.metrics()
        if number in (count // 2, count):
            print(number, *look("self"), *look(engine))
"""


def test_memory_and_descriptors_stay_flat(config, index_dir):
    """Of both processes, over 20,000 batches (STK_SOAK: how many), half of them to warm up."""
    count = int(os.environ.get("STK_SOAK", 20000))
    done = subprocess.run([sys.executable, "-c", SOAK, config, index_dir, str(count), f"soak-{os.getpid()}"], capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    half, end = ([int(number) for number in line.split()] for line in done.stdout.splitlines())
    assert (half[0], end[0]) == (count // 2, count)
    for what, at in (("client", 1), ("engine", 3)):
        grown, opened = end[at] - half[at], end[at + 1] - half[at + 1]
        print(f"{what}: {1000 * grown // (count // 2)} bytes in 1,000 batches")
        assert opened <= 0 and grown < 1024 * count // 2, f"{what}: {grown} bytes and {opened} descriptors more in {count // 2} batches"


# --- pixels ---

@pytest.mark.parametrize("profile", ["hf", "pil-13", "qwen-vl-utils"])
def test_the_rule_makes_the_references_pixels_of_bytes(load, config, tmp_path, profile):
    """Of a checkpoint whose channels differ."""
    model = tmp_path / "model"
    shutil.copytree(config.parent / "model", model)
    stated = json.loads((model / "preprocessor_config.json").read_text())
    (model / "preprocessor_config.json").write_text(json.dumps({**stated, "image_mean": [0.48145466, 0.4578275, 0.40821073],
                                                                "image_std": [0.26862954, 0.26130258, 0.27577711]}))
    options = {"model": model, "profile": profile, "index_dir": tmp_path}
    batch, wanted = next(load(**options)), next(load(pixels="float32", **options))["pixel_values"]
    rule, patches = batch.pixel_rule, batch["pixel_bytes"].reshape(-1, 3, 256)
    assert rule.table.shape == (3, 256) and rule.table.dtype == np.float32 and not rule.table.flags.writeable
    values = np.stack([rule.table[channel][patches[:, channel]] for channel in range(3)], axis=1)
    assert (np.repeat(values[:, :, None], rule.temporal, axis=2).reshape(wanted.shape) == wanted).all()


def test_a_rule_of_a_broken_checkpoint_is_refused_in_words(package, load, config, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(config.parent / "model", model)
    batch = next(load(model=model, index_dir=tmp_path))
    (model / "preprocessor_config.json").write_text("{}")
    with pytest.raises(package.SetupError, match="patch_size"):
        batch.pixel_rule.table
