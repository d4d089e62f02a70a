"""Megatron-Bridge without a GPU and without Transformer Engine, for its steps, losses, packing and files: import this before megatron.bridge.

Its own model cannot be built so; ``Probe`` stands in, and writes down what it is called with.
"""
import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
import types
import warnings
from unittest import mock

warnings.simplefilter("ignore")     # of what is absent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
import megatron_on_cpu  # noqa: E402, F401
import megatron.core.models.gpt  # noqa: E402, F401 (before the absent ones: the core must not believe in Transformer Engine)
import torch  # noqa: E402

ABSENT = {"transformer_engine", "nvidia_resiliency_ext", "modelopt", "wandb", "mlflow", "comet_ml", "open_clip", "diffusers", "mistral_common", "fla",
          "flashinfer"}


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What Bridge imports and does not use here."""

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in ABSENT else None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__path__, module.__name__, module.__spec__, module.__version__ = [], spec.name, spec, "2.9.0"
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Absent())
from megatron.bridge.models.qwen_vl import qwen3_vl_step  # noqa: E402
from megatron.bridge.training import vlm_step  # noqa: E402
from megatron.core import num_microbatches_calculator, parallel_state  # noqa: E402
from megatron.core.process_groups_config import ProcessGroupCollection  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

qwen3_vl_step.accumulate_flops_metadata = vlm_step.accumulate_flops_metadata = lambda *given, **named: None


def begin(port):
    """One process, as Bridge initialises it."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()


def set_batch(batch, micro_batch):
    num_microbatches_calculator.destroy_num_microbatches_calculator()
    num_microbatches_calculator.init_num_microbatches_calculator(0, None, batch, micro_batch, 1)


class Probe(torch.nn.Module):
    """In place of the model: keeps its arguments, and answers losses of one."""

    def __init__(self):
        super().__init__()
        self.config = TransformerConfig(num_layers=1, hidden_size=8, num_attention_heads=1)
        self.config.seq_length = 640
        self.pg_collection, self.vp_stage, self.seen = ProcessGroupCollection.use_mpu_process_groups(), None, None

    def forward(self, input_ids=None, position_ids=None, attention_mask=None, labels=None, loss_mask=None, packed_seq_params=None, pixel_values=None,
                image_grid_thw=None, pixel_values_videos=None, video_grid_thw=None):
        self.seen = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        return torch.ones_like(input_ids, dtype=torch.float32)


def state_of(dataset):
    """What a step asks of Bridge's state."""
    quiet = types.SimpleNamespace(check_for_nan_in_loss=False, check_for_spiky_loss=False)
    return types.SimpleNamespace(timers=mock.MagicMock(), straggler_timer=mock.MagicMock(),
                                 cfg=types.SimpleNamespace(dataset=dataset, rerun_state_machine=quiet,
                                                           model=types.SimpleNamespace(vision_config=None, seq_length=640)))
