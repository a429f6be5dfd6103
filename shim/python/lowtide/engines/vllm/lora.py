# SPDX-License-Identifier: Apache-2.0
"""Adapter slots and registered adapters in memory of their own: they would be dropped with the weights otherwise."""
import inspect
import logging
from typing import Any, Callable

from ... import api
from ...errors import Error
from ..patching import wrap
from .allocator import Allocator
from .tags import ADAPTERS, LORA, found

logger = logging.getLogger("vllm.lowtide")


def enter(module: Any) -> None:
    """Enters vllm.lora.model_manager and vllm.lora.lora_model, or vllm.lora.models, which was both."""
    manager, model = getattr(module, "LoRAModelManager", None), getattr(module, "LoRAModel", None)
    # Both modules name both classes; each is defined in one of them.
    if getattr(manager, "__module__", None) == module.__name__:
        wrap(manager, "_create_lora_modules", _into_lora)
        wrap(manager, "activate_adapter", _then_park_adapters)
    if getattr(model, "__module__", None) == module.__name__:
        wrap(model, "from_lora_tensors", _into_adapters)


def _into_lora(original: Callable[..., Any]) -> Callable[..., Any]:

    def create(*arguments: Any, **options: Any) -> Any:
        with Allocator.get_instance().use_memory_pool(LORA):
            return original(*arguments, **options)

    return create


def _into_adapters(original: Callable[..., Any]) -> Callable[..., Any]:
    """What is made on the device; adapters are usually made on the host. Tensors that are there already stay where they are."""
    signature = inspect.signature(original)

    def from_lora_tensors(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.apply_defaults()
        if not str(bound.arguments.get("device")).startswith("cuda"):
            return original(*arguments, **options)
        with Allocator.get_instance().use_memory_pool(ADAPTERS):
            return original(*arguments, **options)

    return from_lora_tensors


def _then_park_adapters(original: Callable[..., Any]) -> Callable[..., Any]:

    def activate_adapter(*arguments: Any, **options: Any) -> Any:
        activated = original(*arguments, **options)
        if activated:
            park_adapters()
        return activated

    return activate_adapter


def park_adapters() -> None:
    """Parks registered adapters where the device can still read them: a slot that is filled again is filled from there."""
    info = found(ADAPTERS)
    if info is None or info.resident == 0:
        return
    try:
        api.pause(ADAPTERS)
    except Error as why:
        logger.warning("registered LoRA adapters stay on the device: %s", why)
