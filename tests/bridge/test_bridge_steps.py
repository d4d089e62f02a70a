"""Megatron-Bridge's own steps take Stoker's batches, its own packer makes the same rows, and its own files keep the state."""
import shutil
import socket
import types

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron")
pytest.importorskip("stoker._core")
import bridge_on_cpu  # noqa: E402
from megatron.bridge.data.base import DatasetBuildContext  # noqa: E402
from megatron.bridge.data.packing.in_batch import build_mcore_thd_sequence_batch_from_rows  # noqa: E402
from megatron.bridge.training import checkpointing  # noqa: E402
from megatron.bridge.training.utils.config_utils import _ConfigContainerBase  # noqa: E402
from megatron.bridge.utils.instantiate_utils import instantiate  # noqa: E402
from megatron.core.rerun_state_machine import RerunDataIterator  # noqa: E402

import stoker  # noqa: E402
import stoker.megatron  # noqa: E402
import stoker.megatron_bridge  # noqa: E402
import stoker.torch  # noqa: E402

LENGTH = 640


@pytest.fixture(scope="session", autouse=True)
def bridge():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    bridge_on_cpu.begin(port)
    yield
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="session")
def sample(source, tmp_path_factory):
    """The sample set, in which nothing is stated that Bridge decides."""
    folder = tmp_path_factory.mktemp("bridge") / "sample"
    shutil.copytree(source / "examples/sample", folder)
    config = folder / "stoker.yaml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith(("batch:", "epochs:"))]
    config.write_text("\n".join([*lines, "workers: 1", "memory: 256MiB", "eval: {data: [{name: sample, path: train.jsonl, first: 6}]}", ""]))
    return config


@pytest.fixture
def build(sample):
    """Iterators of a data set of Bridge's: ``build(rows, micro_rows, samples=.., test_samples=.., loader=.., **options)``; closed at the end."""
    opened = []

    def build_one(rows, micro_rows, samples=16, test_samples=0, loader="stoker.Loader", **options):
        bridge_on_cpu.set_batch(rows, micro_rows)
        dataset = stoker.megatron_bridge.Dataset(config=str(sample), seq_length=LENGTH, device="cpu", loader=loader, options=options)
        made = dataset.build_datasets(DatasetBuildContext(train_samples=samples, valid_samples=2 * test_samples, test_samples=test_samples))
        opened.extend(reading for reading in made if reading is not None)
        return (dataset, *made)

    yield build_one
    for reading in opened:
        reading.close()


@pytest.fixture
def load(sample):
    opened = []

    def open_one(**options):
        opened.append(stoker.torch.Loader(sample, device="cpu", **options))
        return opened[-1]

    yield open_one
    for loader in opened:
        loader.close()


def padded(tensor, length, value):
    return torch.nn.functional.pad(tensor, (0, length - tensor.shape[1]), value=value)


def test_qwen3_vl_step_takes_padded_rows(build, load):
    dataset, train, valid, test = build(4, 2)
    assert valid is None and test is None and len(train) == 8
    model = bridge_on_cpu.Probe()
    pictures = 0
    for wanted, _ in zip(load(batch=4, micro_batch=2, steps=4, max_tokens=LENGTH, targets="shifted"), range(6)):
        losses, loss_of = bridge_on_cpu.qwen3_vl_step.forward_step(bridge_on_cpu.state_of(dataset), train, model)
        length = -(-wanted["input_ids"].shape[1] // 16) * 16
        assert torch.equal(model.seen["input_ids"], padded(wanted["input_ids"], length, 0))
        assert torch.equal(model.seen["labels"], padded(wanted["labels"], length, -100))
        assert torch.equal(model.seen["loss_mask"], padded(wanted["loss_mask"], length, 0))
        assert model.seen["loss_mask"].dtype == torch.float32 and model.seen["position_ids"] is None and model.seen["packed_seq_params"] is None
        assert ("pixel_values" in wanted) == (model.seen["pixel_values"] is not None)
        if "pixel_values" in wanted:
            assert torch.equal(model.seen["pixel_values"], wanted["pixel_values"]) and torch.equal(model.seen["image_grid_thw"], wanted["image_grid_thw"])
            pictures += 1
        loss, tokens, _ = loss_of(losses)
        assert int(tokens) == wanted.loss_tokens == int(wanted["loss_mask"].sum()) and float(loss) == float(tokens)
    assert pictures >= 4


def test_vlm_step_takes_packed_rows(build, load):
    dataset, train, *_ = build(2, 1, 4, layout="packed", window=64, segment_multiple=8)
    model = bridge_on_cpu.Probe()
    for wanted in load(batch=2, micro_batch=1, steps=2, layout="packed", row_tokens=LENGTH, window=64, segment_multiple=8, targets="shifted"):
        losses, loss_of = bridge_on_cpu.vlm_step.forward_step(bridge_on_cpu.state_of(dataset), train, model)
        for name in ("input_ids", "labels", "loss_mask", "position_ids"):
            assert torch.equal(model.seen[name], wanted[name]), name
        assert model.seen["position_ids"].shape == (3, 1, LENGTH) and model.seen["attention_mask"] is None
        packing = model.seen["packed_seq_params"]
        assert packing.qkv_format == "thd"
        for bounds, padded_bounds in ((packing.cu_seqlens_q, packing.cu_seqlens_q_padded), (packing.cu_seqlens_kv, packing.cu_seqlens_kv_padded)):
            assert bounds.dtype == torch.int32 and torch.equal(bounds, wanted["cu_seqlens"]) and torch.equal(padded_bounds, wanted["cu_seqlens_padded"])
        assert int(packing.max_seqlen_q) == int(packing.max_seqlen_kv) == int(wanted["max_seqlen"])
        assert torch.equal(model.seen["pixel_values"], wanted["pixel_values"])
        assert int(loss_of(losses)[1]) == wanted.loss_tokens


def test_a_stream_that_copies_sees_every_tensor(build, monkeypatch):
    """stoker.torch.Loader tells the device of the tensors at the top of its dict: none lies deeper by then, none is of the host."""
    given, staged = stoker.torch.Loader.next, []

    def watched(self, timeout=None):
        batch = given(self, timeout)
        staged.append(dict(batch))
        return batch

    monkeypatch.setattr(stoker.torch.Loader, "next", watched)
    _, train, *_ = build(2, 1, 4, layout="packed", window=64, segment_multiple=8)
    final = next(train)
    assert {name: type(value) for name, value in staged[0].items() if not isinstance(value, torch.Tensor)} == {"max_seqlen": int}
    top = {id(value) for value in staged[0].values()}
    assert id(final["visual_inputs"].pixel_values) in top and id(final["cu_seqlens_q_padded"]) in top and id(final["max_seqlen_q"]) not in top


@pytest.mark.parametrize("multiple", [1, 8])
def test_packed_rows_are_those_of_bridges_own_packer(build, sample, multiple):
    names = ("input_ids", "labels", "loss_mask", "position_ids")
    with stoker.Loader(sample, batch=1, shuffle=False, targets="shifted", max_tokens=LENGTH) as loader:
        alone = {batch.samples[0].line: {name: torch.from_numpy(numpy.array(batch[name][0])) for name in names} for batch in loader}
    options = {"layout": "packed", "window": 64, "segment_multiple": multiple}
    with stoker.Loader(sample, batch=1, steps=4, row_tokens=LENGTH, targets="shifted", **options) as loader:
        lines = [[each.line for each in batch.samples] for batch in loader]
    _, train, *_ = build(1, 1, 4, positions="plain", **options)
    for batch, samples in zip(train, lines, strict=True):
        rows = [alone[line] for line in samples]
        assert len(rows) > 1
        oracle = build_mcore_thd_sequence_batch_from_rows(rows, pad_to_multiple_of=multiple)
        used, count = oracle["total_tokens"], len(rows)
        for name in names:
            assert batch[name].dtype == oracle[name].dtype and torch.equal(batch[name][:, :used], oracle[name]), name
        tail = LENGTH - used                                                # a segment of its own, in which nothing is learned
        assert tail >= 0 and not batch["input_ids"][0, used:].any() and not batch["loss_mask"][0, used:].any() and (batch["labels"][0, used:] == -100).all()
        for name in [name for name in oracle if name.startswith("cu_seqlens")]:
            assert batch[name].dtype == torch.int32 and torch.equal(batch[name][:count + 1], oracle[name]), name
            assert batch[name].tolist()[count + 1:] == ([int(oracle[name][-1]) + tail] if tail else [])
        assert set(batch) - {"visual_inputs"} == set(oracle) and batch["attention_mask"] is None and batch["total_tokens"] == LENGTH
        for name in ("max_seqlen_q", "max_seqlen_kv"):
            assert batch[name].dtype == torch.int32 and batch[name].dim() == 0 and int(batch[name]) == max(int(oracle[name]), tail)


class Elsewhere(stoker.Loader):
    """Has options of its own, as stoker.ray.Loader has."""

    def __init__(self, *given, placement, **more):
        self.placement = placement
        super().__init__(*given, **more)


def test_batches_are_those_of_the_class_that_is_named(build):
    _, plain, *_ = build(4, 2)
    _, train, valid, _ = build(4, 2, test_samples=4, loader="test_bridge_steps.Elsewhere", placement="spread")
    assert all(isinstance(reading.loader, Elsewhere) and reading.loader.placement == "spread" for reading in (train, valid))
    assert torch.equal(next(train)["input_ids"], next(plain)["input_ids"])
    with pytest.raises(ModuleNotFoundError, match="no_such"):
        build(4, 2, loader="no_such.Loader")


def test_evaluation_begins_anew_each_time(build):
    _, _, valid, _ = build(4, 2, test_samples=4)
    first = [next(valid)["input_ids"] for _ in range(2)]
    again = [next(valid)["input_ids"] for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(first, again)) and not torch.equal(first[0], first[1])


def test_bridges_files_keep_the_state_and_more_ranks_get_theirs(build, tmp_path, capsys):
    """Field report G10: through the iterator that Megatron wraps around."""
    groups = bridge_on_cpu.ProcessGroupCollection.use_mpu_process_groups()
    _, train, *_ = build(4, 2)
    for _ in range(4):
        next(train)
    checkpointing.maybe_save_dataloader_state(None, RerunDataIterator(train), 2, str(tmp_path), pg_collection=groups)
    wanted = [next(train)["input_ids"] for _ in range(2)]
    capsys.readouterr()
    assert stoker.megatron.main(["copy-state", str(tmp_path), "--ranks", "3"]) == 0
    file, = tmp_path.rglob("*dprank000.pt")
    assert capsys.readouterr().out.split() == [str(file.with_name(f"train_dataloader_dprank{rank:03d}.pt")) for rank in (1, 2)]

    _, other, *_ = build(4, 2)
    later = types.SimpleNamespace(**{**vars(groups), "dp": types.SimpleNamespace(rank=lambda: 2, size=lambda: 3)})
    checkpointing.maybe_load_dataloader_state(RerunDataIterator(other), 2, str(tmp_path), pg_collection=later)
    assert all(torch.equal(next(other)["input_ids"], each) for each in wanted)


def test_a_configuration_is_saved_and_read(sample):
    dataset = stoker.megatron_bridge.Dataset(config=str(sample), seq_length=LENGTH, dtype="bfloat16", loader="stoker.ray.Loader", options={"eval.seed": 3, "limits": {"json_depth": 8}})
    assert instantiate(_ConfigContainerBase._convert_value_to_dict(dataset)) == dataset


def test_what_bridge_decides_is_not_decided_by_the_file(build):
    with pytest.raises(ValueError, match=r"batch is 8 in .*stoker.yaml, and 4 by train.global_batch_size"):
        build(4, 2, batch=8)
    with pytest.raises(ValueError, match="micro_batch_size is 2"):
        build(4, 2, layout="packed")
    with pytest.raises(ValueError, match="layout: flat"):
        build(4, 2, layout="flat")
    with pytest.raises(ValueError, match="train_iters takes 50 steps"):
        build(4, 2, samples=200, epochs=1)
