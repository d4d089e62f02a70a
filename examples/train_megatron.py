"""Train a tiny random Qwen3-VL on the sample set with Megatron's own ``pretrain``, on the CPU.

    python examples/train_megatron.py                                       # one process
    torchrun --nproc-per-node 2 examples/train_megatron.py                  # two data-parallel ranks: the same losses
    python examples/train_megatron.py --save DIR --save-interval 4          # and later --load DIR, on any number of ranks

What is Stoker's are three lines: the import, ``provider``, and what ``forward_step`` reads.  Arguments are Megatron's, over SETTINGS.
Needs megatron-core 0.19 with its training loop (``tools/install-deps train``); a minute at most.
"""
from __future__ import annotations

import functools
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import megatron_on_cpu  # noqa: F401 (before megatron; leave it out where there are GPUs)
import torch
from megatron.core.datasets import utils
from megatron.core.enums import ModelType
from megatron.core.transformer.module import MegatronModule
from megatron.training import get_args, pretrain
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.arguments import core_transformer_config_from_args, parse_and_validate_args
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

import stoker.megatron

SAMPLE = pathlib.Path(__file__).resolve().parent / "sample"
SETTINGS = """--dataloader-type external --seq-length 640 --max-position-embeddings 640 --micro-batch-size 1 --global-batch-size 4 --train-iters 8
    --lr 1e-3 --min-lr 1e-3 --lr-decay-style constant --weight-decay 0 --clip-grad 1.0 --calculate-per-token-loss
    --num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 1344 --tokenizer-type NullTokenizer --transformer-impl local
    --no-masked-softmax-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion --no-persist-layer-norm --no-gradient-accumulation-fusion --no-rope-fusion
    --distributed-backend gloo --log-interval 1 --eval-interval 1000 --eval-iters 0"""


class Model(MegatronModule):  # type: ignore[misc]
    """transformers' Qwen3-VL where Megatron expects one of its own: no tensor or pipeline parallelism."""

    def __init__(self, config: Any, pg_collection: Any) -> None:
        super().__init__(config)
        torch.manual_seed(0)
        self.model = Qwen3VLForConditionalGeneration(AutoConfig.from_pretrained(SAMPLE / "model"))
        self.pg_collection, self.vp_stage, self.share_embeddings_and_output_weights = pg_collection, None, False

    def set_input_tensor(self, tensor: Any) -> None:
        pass

    def forward(self, tokens: Any, labels: Any, **more: Any) -> Any:
        logits = self.model(input_ids=tokens, use_cache=False, **more).logits.float()
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none")


def model_provider(*given: Any, pg_collection: Any = None, **named: Any) -> Model:
    return Model(core_transformer_config_from_args(get_args()), pg_collection)


def loss_function(loss_mask: Any, losses: Any) -> tuple[Any, Any, dict[str, Any]]:
    loss, tokens = (losses.flatten() * loss_mask.flatten()).sum(), loss_mask.sum().to(torch.int)
    return loss, tokens, {"lm loss": torch.stack([loss.detach(), tokens.float()])}


def forward_step(iterator: Iterator[dict[str, Any]], model: Any) -> tuple[Any, Any]:
    batch = next(iterator)
    loss_mask = batch.pop("loss_mask")
    return model(**batch), functools.partial(loss_function, loss_mask)


def main(provider: Any = None) -> None:
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}.items():
        os.environ.setdefault(name, value)
    sys.argv[1:1] = SETTINGS.split()
    args = parse_and_validate_args()
    utils.compile_helpers = lambda: None    # for Megatron's own data sets
    config = pretrain_cfg_container_from_args(args, gpt_config_from_args(args))
    config.model = None                     # that of model_provider
    provider = provider or stoker.megatron.provider(SAMPLE / "stoker.yaml", device="cpu", positions="mrope")
    pretrain(config, provider, ModelType.encoder_or_decoder, forward_step, model_provider)


if __name__ == "__main__":
    main()
