"""Megatron-core on a machine without a GPU, to try things out: import this before megatron.

It answers ``torch.cuda`` with harmless values, puts on the CPU what is to go to a CUDA device, and makes every process group one of gloo.
Arithmetic, ranks, schedules, optimizer and checkpoints are Megatron's own.  For tests and examples; never for speed.
"""
from __future__ import annotations

import collections
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")   # Megatron compiles its fused functions
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
import torch                # noqa: E402
import torch._dynamo        # noqa: E402, F401 (keeps tables of the functions that are replaced below)
import torch.distributed    # noqa: E402
import typing_extensions    # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

HOST = torch.device("cpu")


def means_cuda(place: Any) -> bool:
    return isinstance(place, (str, torch.device)) and str(place).partition(":")[0] == "cuda"


class OnHost(TorchFunctionMode):  # type: ignore[misc]
    """Calls that name a CUDA device, made on the CPU."""

    def __torch_function__(self, function: Any, kinds: Any, given: Any = (), named: Any = None) -> Any:
        named = dict(named or {})
        if means_cuda(named.get("device")):
            named["device"] = HOST
        if "pin_memory" in named:
            named["pin_memory"] = False
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return given[0]
        if function is torch.Tensor.type and len(given) == 1 and not named:     # Megatron knows types by these names
            return function(*given).replace("torch.", "torch.cuda.")
        if function is torch.Tensor.to:
            given = tuple(HOST if means_cuda(each) else each for each in given)
        return function(*given, **named)


class Idle:
    """A stream or an event, with nothing to wait for."""

    cuda_stream = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def __enter__(self) -> Idle:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Idle) -> float:
        return 0.0

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given, **named: None


def answer(value: Any) -> Callable[..., Any]:
    """A function that says this; each time a new one, for torch keeps them in tables."""
    return lambda *given, **named: value


def answer_for_cuda() -> None:
    cuda = torch.cuda
    answers: dict[str, Any] = {"is_available": True, "current_device": HOST, "device_count": 8, "get_device_capability": (8, 0), "get_device_name": "cpu",
                               "get_device_properties": types.SimpleNamespace(major=8, minor=0, total_memory=1 << 34, multi_processor_count=1, name="cpu")}
    answers.update(dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "utilization", "mem_get_info"), 0))
    answers.update(dict.fromkeys(("set_device", "synchronize", "empty_cache", "init", "_lazy_init", "ipc_collect", "reset_peak_memory_stats", "manual_seed_all")))
    for name, value in answers.items():
        setattr(cuda, name, answer(value))
    cuda.memory_stats = lambda *given, **named: collections.defaultdict(int)
    cuda._lazy_call = lambda call, **named: call()
    cuda.Stream, cuda.Event = Idle, Idle
    cuda.current_stream = cuda.default_stream = Idle
    cuda.stream = cuda.device = lambda *given: contextlib.nullcontext()
    for name in ("range_push", "range_pop", "mark"):
        setattr(cuda.nvtx, name, answer(None))
    for kind in ("Float", "Int", "Long", "Byte", "Double", "Half", "BFloat16", "Bool"):
        setattr(cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    # random numbers
    cuda.manual_seed, cuda.initial_seed = torch.default_generator.manual_seed, torch.initial_seed
    cuda.get_rng_state = cuda.random.get_rng_state = lambda *given, **named: torch.get_rng_state()
    cuda.set_rng_state = cuda.random.set_rng_state = lambda state, *given, **named: torch.set_rng_state(state)
    cuda.default_generators = collections.defaultdict(lambda: torch.default_generator)
    # the rest of torch
    torch.accelerator.is_available = answer(False)
    torch.optim.Optimizer._accelerator_graph_capture_health_check = answer(None)
    torch.Tensor.cuda = torch.Tensor.pin_memory = torch.nn.Module.cuda = lambda self, *given, **named: self


def use_gloo() -> None:
    distributed = torch.distributed
    start, group = distributed.init_process_group, distributed.new_group

    def init_process_group(backend: Any = None, **named: Any) -> None:
        start("gloo", **{name: value for name, value in named.items() if name not in ("device_id", "pg_options")})

    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, *given: Any, **named: Any) -> Any:
        return group(ranks, timeout, "gloo", None, *given, **named)

    distributed.init_process_group, distributed.new_group, distributed.is_nccl_available = init_process_group, new_group, answer(False)


class NoTriton(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """In its place: megatron.core imports it, and calls none of its kernels here."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == "triton" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = mock.MagicMock(name=spec.name)
        module.__path__, module.__name__, module.__spec__, module.__version__ = [], spec.name, spec, "3.0.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


if not hasattr(typing, "override"):     # before Python 3.12
    typing.override = typing_extensions.override  # type: ignore[attr-defined]
if importlib.util.find_spec("triton") is None:
    sys.meta_path.append(NoTriton())
answer_for_cuda()
use_gloo()
OnHost().__enter__()
