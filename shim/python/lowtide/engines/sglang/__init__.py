# SPDX-License-Identifier: Apache-2.0
"""SGLang's plug-in (its entry point group sglang.srt.plugins): the slots of LoRA adapters get the tag `lora`, which is
released and resumed with the weights, and a repeated release or resume changes nothing.

SGLang's own tags come through torch_memory_saver's interface and need none of this.
"""
import copy
import logging
import pkgutil
from typing import Any, Callable, List

from ... import library
from ...regions import region

LORA = "lora"
WEIGHTS = "weights"

logger = logging.getLogger(__name__)


def allocate_slots(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Around the one call that makes all buffers of the adapters' slots. Adapters that are registered and in no slot lie
    in host memory in SGLang: there is nothing to tag."""
    import torch
    if not torch.cuda.is_available():
        return original(*arguments, **named)
    with region(LORA):
        return original(*arguments, **named)


def release(original: Callable[..., Any], updater: Any, request: Any) -> Any:
    """Releases those of the wanted tags that are not released: SGLang would read the weights' buffers again."""
    wanted = [tag for tag in _tags(request) if tag not in updater.offload_tags]
    if not wanted:
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqOutput
        return ReleaseMemoryOccupationReqOutput()
    answer = original(updater, _asking_for(request, wanted))
    if WEIGHTS in wanted:
        updater.memory_saver_adapter.pause(LORA)
    return answer


def resume(original: Callable[..., Any], updater: Any, request: Any) -> Any:
    """Resumes those of the wanted tags that are released: SGLang's scheduler ends on any other."""
    wanted = [tag for tag in _tags(request) if tag in updater.offload_tags]
    if not wanted:
        from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqOutput
        return ResumeMemoryOccupationReqOutput()
    if WEIGHTS in wanted:
        updater.memory_saver_adapter.resume(LORA)
    return original(updater, _asking_for(request, wanted))


def _tags(request: Any) -> List[str]:
    """What a request names; SGLang takes none for all."""
    from sglang.srt.constants import GPU_MEMORY_ALL_TYPES
    return list(dict.fromkeys(request.tags or GPU_MEMORY_ALL_TYPES))


def _asking_for(request: Any, tags: List[str]) -> Any:
    asked = copy.copy(request)
    asked.tags = tags
    return asked


# Where SGLang's handlers are: since 0.5.13, and before.
_HANDLERS = ("sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager",
             "sglang.srt.managers.scheduler_update_weights_mixin.SchedulerUpdateWeightsMixin")
_PATCHES = (
    (("sglang.srt.lora.mem_pool.LoRAMemoryPool.init_buffers",), allocate_slots),
    (tuple(f"{where}.release_memory_occupation" for where in _HANDLERS), release),
    (tuple(f"{where}.resume_memory_occupation" for where in _HANDLERS), resume),
)


def register() -> None:
    """Called by SGLang in each of its processes. Does something in those alone that run with Lowtide's library: the
    schedulers under --enable-memory-saver, or all of `lowtide run`. What this version of SGLang does not have is left out.
    """
    if not library.under_lowtide():
        logger.debug("lowtide: this process was not started under Lowtide")
        return
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    except ImportError:
        logger.debug("lowtide: this SGLang has no plug-in system: LoRA adapters get no tag")
        return
    for targets, hook in _PATCHES:
        target = next(filter(_is_there, targets), None)
        if target is None:
            logger.debug("lowtide: this SGLang has none of %s", ", ".join(targets))
        else:
            HookRegistry.register(target, hook, HookType.AROUND)


def _is_there(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True
