"""Tensor and pipeline siblings read one slot: whoever Megatron lets read, each what its stage needs; the others get it by Megatron's broadcast
(field report G20)."""
import json
import pathlib

import numpy
import pytest
from hf_fixtures import launch, package, sample  # noqa: F401

pytest.importorskip("torch")
pytest.importorskip("megatron")


@pytest.fixture(scope="module")
def told(launch, sample, tmp_path_factory):
    out = tmp_path_factory.mktemp("parallel")
    launch(4, pathlib.Path(__file__).with_name("megatron_parallel_run.py"), out, sample, "--train-iters", "2", "--micro-batch-size", "2",
           "--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2", "--untie-embeddings-and-output-weights",
           "--use-cpu-initialization", "--attention-dropout", "0", "--hidden-dropout", "0")
    return {(one["tp"], one["pp"]): one for one in (json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(4))}


def test_the_first_tensor_rank_of_each_stage_reads_and_pixels_go_to_the_first_stage(told):
    assert {place: (one["reads"], one["attached"]) for place, one in told.items()} == {
        (0, 0): (True, 2), (0, 1): (True, 2), (1, 0): (False, None), (1, 1): (False, None)}
    assert all("pixel_values" in fields for fields in told[0, 0]["fields"]) and len(told[0, 0]["fields"]) == 4
    assert all({"tokens", "labels", "cu_seqlens", "image_grid_thw"} < set(fields) and "pixel_values" not in fields for fields in told[0, 1]["fields"])


def test_what_arrives_is_what_the_loader_gives(told, package, sample):
    with package.Loader(sample, batch=4, micro_batch=2, steps=2, layout="packed", row_tokens=640, window=64, targets="shifted", positions="plain") as loader:
        batches = [{name: numpy.array(value) for name, value in batch.items()} for batch in loader]
    assert len(batches) == 4
    for number, batch in enumerate(batches):
        for place, one in told.items():
            micro = one["micros"][number]
            assert micro["bounds"] == [batch["cu_seqlens"].tolist()] and micro["longest"] == [int(batch["max_seqlen"])]
            if place[1] == 0:
                assert micro["tokens"] == batch["input_ids"].tolist() and micro["positions"] == batch["position_ids"].tolist()
            else:
                assert micro["labels"] == batch["labels"].tolist()
