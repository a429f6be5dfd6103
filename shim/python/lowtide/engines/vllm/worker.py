# SPDX-License-Identifier: Apache-2.0
"""What vLLM's GPU worker does around its allocator."""
import contextlib
import logging
from typing import Any, Callable, Iterator

from ..patching import wrap
from . import ranks
from .allocator import Allocator

logger = logging.getLogger("vllm.lowtide")

# Where vLLM keeps what level 2 would lose; it writes it back at the first wake-up, whatever that brings back.
_THEIR_COPIES = ("_sleep_saved_buffers", "_sleep_saved_draft_buffers")


def enter(module: Any) -> None:
    """Enters vllm.v1.worker.gpu_worker."""
    wrap(module.Worker, "_maybe_get_memory_pool_context", _with_tags)
    wrap(module.Worker, "sleep", _sleep)
    wrap(module.Worker, "wake_up", _wake_up)


def enter_kv_cache(module: Any) -> None:
    """Enters what allocates the KV cache alone, in the modules of both model runners. Newer versions keep it apart themselves."""
    for owner, name in ((module, "_allocate_kv_cache"), (getattr(module, "GPUModelRunner", None), "_allocate_kv_cache_tensors")):
        if owner is not None and wrap(owner, name, _into_kv_cache):
            Allocator.get_instance().kv_cache_apart = True


def _into_kv_cache(original: Callable[..., Any]) -> Callable[..., Any]:

    def allocate(*arguments: Any, **options: Any) -> Any:
        with Allocator.get_instance().kv_cache_pool():
            return original(*arguments, **options)

    return allocate


def _with_tags(original: Callable[..., Any]) -> Callable[..., Any]:
    """Weights and KV cache carry their tags without sleep mode too, so that `lowtide pause` can tell them apart."""

    def _maybe_get_memory_pool_context(self: Any, tag: str) -> Any:
        context = original(self, tag)
        return Allocator.get_instance().use_memory_pool(tag) if isinstance(context, contextlib.nullcontext) else context

    return _maybe_get_memory_pool_context


def _sleep(original: Callable[..., Any]) -> Callable[..., Any]:

    def sleep(self: Any, level: int = 1) -> None:
        allocator = Allocator.get_instance()
        model = getattr(getattr(self, "model_runner", None), "model", None)
        allocator.reloaded = tuple(model.parameters()) if level == 2 and model is not None else None
        try:
            with _told_once(self):
                original(self, level)
                if allocator.keeps_beside():
                    for name in _THEIR_COPIES:
                        if hasattr(self, name):
                            setattr(self, name, {})
        finally:
            allocator.reloaded = None  # the engine's last reference to its weights may be gone before the next sleep

    return sleep


def _wake_up(original: Callable[..., Any]) -> Callable[..., Any]:

    def wake_up(self: Any, tags: Any = None) -> None:
        with _told_once(self):
            original(self, tags)

    return wake_up


@contextlib.contextmanager
def _told_once(worker: Any) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if ranks.is_to_raise(worker, error):
            raise
        logger.error("%s", error)
