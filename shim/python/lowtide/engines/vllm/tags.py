# SPDX-License-Identifier: Apache-2.0
"""The tags that memory carries under vLLM."""
from typing import Optional

from ... import api
from ...errors import InvalidError

WEIGHTS = "weights"
KV_CACHE = "kv_cache"
LORA = "lora"  # the adapter slots, which kernels read
ADAPTERS = "lora_adapters"  # registered adapters, which slots are filled from
GRAPHS = "cuda_graph"
RUNTIME = "runtime"  # what the engine made once beside them: block tables, buffers
# A wake-up that names tags may leave these parked; it brings back all others.
DEFERRABLE = (WEIGHTS, KV_CACHE)
# What no reload of weights brings back: their action is the tag's own, at every level of sleep.
OWN_ACTION = (LORA, ADAPTERS, GRAPHS, "cudagraph", RUNTIME)


def found(tag: str) -> Optional[api.TagInfo]:
    """The numbers of a tag; None if no memory carries it (yet)."""
    try:
        return api.info(tag)
    except InvalidError:
        return None
