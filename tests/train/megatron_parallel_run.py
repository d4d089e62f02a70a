"""A process of Megatron's pretrain() with its own GPT under tensor and pipeline parallelism, on packed rows: who read what, and what arrived.

    megatron_parallel_run.py FOLDER CONFIG [ARGUMENT...]

FOLDER/rank-N.json: the ranks of the process; whether it reads, with how many others, and which fields; for each micro-batch what Megatron's
broadcast gave it, and the samples' bounds as Megatron merges them.
"""
import functools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import train_megatron  # noqa: E402 (megatron_on_cpu comes first in it)
from megatron.core import parallel_state as ranks  # noqa: E402
from megatron.core.enums import ModelType  # noqa: E402
from megatron.core.utils import flatten_batch_for_packed_sequences, get_batch_on_this_tp_rank  # noqa: E402
from megatron.training import get_args, pretrain  # noqa: E402
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args  # noqa: E402
from megatron.training.arguments import parse_and_validate_args  # noqa: E402

import stoker.megatron  # noqa: E402

KEYS = ("tokens", "labels", "loss_mask", "position_ids", "attention_mask", "cu_seqlens", "cu_seqlens_padded", "max_seqlen")
notes = {"micros": [], "fields": [], "reads": False}


def forward_step(iterator, model):
    args, tp = get_args(), ranks.get_tensor_model_parallel_rank()
    batch = {}
    if tp == 0:
        given = next(iterator)
        notes["fields"].append(sorted(given))
        batch = {key: given.get(key) for key in KEYS}
    first, last = ranks.is_pipeline_first_stage(), ranks.is_pipeline_last_stage()
    batch = get_batch_on_this_tp_rank(
        batch, has_cu_seqlens=True, is_hybrid_cp=False, create_attention_mask_in_dataloader=False, mtp_on_this_rank=False, cp_size=1, tp_rank=tp,
        broadcast_src_rank=ranks.get_tensor_model_parallel_src_rank(), broadcast_group=ranks.get_tensor_model_parallel_group(),
        micro_batch_size=args.micro_batch_size, seq_length=args.seq_length, pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        is_pipeline_first_stage=first, is_pipeline_last_stage=last)
    merged = flatten_batch_for_packed_sequences(dict(batch))
    notes["micros"].append({"tokens": batch["tokens"].tolist() if first else None, "labels": batch["labels"].tolist() if last else None,
                            "positions": batch["position_ids"].tolist() if first else None, "bounds": merged["cu_seqlens"].tolist(),
                            "longest": merged["max_seqlen"].tolist()})
    output = model(batch["tokens"], batch["position_ids"], None, labels=batch["labels"])
    return output, functools.partial(train_megatron.loss_function, batch["loss_mask"])


def main():
    folder, config = sys.argv[1:3]
    del sys.argv[1:3]
    inner = stoker.megatron.provider(config, device="cpu", layout="packed", window=64)

    def provider(num_samples, vp_stage=None):
        train, valid, test = inner(num_samples, vp_stage)
        notes.update(tp=ranks.get_tensor_model_parallel_rank(), pp=ranks.get_pipeline_model_parallel_rank(), reads=train is not None,
                     attached=train and train.loader._attach[3])
        return train, valid, test

    provider.is_distributed = True
    sys.argv[1:1] = train_megatron.SETTINGS.split()
    args = parse_and_validate_args()
    train_megatron.utils.compile_helpers = lambda: None
    pretrain(pretrain_cfg_container_from_args(args, gpt_config_from_args(args)), provider, ModelType.encoder_or_decoder, forward_step)
    (pathlib.Path(folder) / f"rank-{args.rank}.json").write_text(json.dumps(notes))


main()
