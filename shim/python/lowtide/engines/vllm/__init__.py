# SPDX-License-Identifier: Apache-2.0
"""vLLM on Lowtide: an entry point in `vllm.general_plugins` calls `register` in each of vLLM's processes."""
import logging

from ... import api
from ...errors import Error
from ...library import under_lowtide
from .tags import ADAPTERS, DEFERRABLE

logger = logging.getLogger("vllm.lowtide")


def register() -> None:
    """Puts Lowtide's allocator in the place of vLLM's, in a process that was started with `lowtide run`; elsewhere nothing.

    What vLLM has is looked up, not guessed from its version: a layout that is not known is left alone, told of in vLLM's
    log, and vLLM runs on as without Lowtide. May be called more than once.
    """
    if not under_lowtide():
        return
    from . import patches
    try:
        api.set(f"tag.{ADAPTERS}.paused_access", "host")  # fails where the configuration does
        # Requests and cached prefixes are in the KV cache: vLLM's own sleep alone knows what may be dropped, and when.
        for tag in DEFERRABLE:
            api.set(f"tag.{tag}.pause", "offload")
        patches.apply()
        logger.info("Lowtide holds this engine's memory: sleep and wake_up go through it")
    except (Error, patches.UnknownLayout) as why:
        logger.warning("vLLM runs without Lowtide: %s", why)
