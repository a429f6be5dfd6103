# SPDX-License-Identifier: Apache-2.0
"""Where Lowtide enters vLLM."""
import importlib
from typing import Any, Optional

from ..patching import when_imported
from . import graphs, lora, updates, worker
from .allocator import Allocator

# What the GPU worker, and what is built on vLLM, call.
_USED = ("get_instance", "use_memory_pool", "sleep", "wake_up", "get_current_usage")


class UnknownLayout(Exception):
    """What is not as it is known, in words."""


def apply() -> None:
    """Raises UnknownLayout, and nothing is changed."""
    cumem = _module("vllm.device_allocator.cumem")
    theirs = getattr(cumem, "CuMemAllocator", None)
    if theirs is None:
        raise UnknownLayout("there is no vllm.device_allocator.cumem.CuMemAllocator")
    if theirs is Allocator:
        return
    missing = [name for name in _USED if not hasattr(theirs, name)]
    unknown = [name for name in vars(theirs) if not name.startswith("_") and not hasattr(Allocator, name)]
    if missing or unknown:
        raise UnknownLayout(f"its CuMemAllocator has {_list(unknown)} that Lowtide does not know, and lacks {_list(missing)}")
    if getattr(theirs, "instance", None) is not None:
        raise UnknownLayout("its allocator is in use already")
    cumem.CuMemAllocator = Allocator
    cumem.cumem_available = True
    _register_backend()
    when_imported("vllm.v1.worker.gpu_worker", worker.enter)
    when_imported("vllm.v1.worker.gpu_worker", updates.enter)
    for name in ("vllm.v1.worker.gpu_model_runner", "vllm.v1.worker.gpu.attn_utils"):
        when_imported(name, worker.enter_kv_cache)
    for name in ("vllm.lora.model_manager", "vllm.lora.lora_model", "vllm.lora.models"):
        when_imported(name, lora.enter)
    graphs.enter()


def _list(names: Any) -> str:
    return ", ".join(names) or "nothing"


def _module(name: str) -> Optional[Any]:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _register_backend() -> None:
    backends = _module("vllm.device_allocator.sleep_mode_backend")
    factory = getattr(backends, "SleepModeBackendFactory", None)
    if factory is not None:
        factory.register_backend("lowtide", "lowtide.engines.vllm.backend", "LowtideBackend")
