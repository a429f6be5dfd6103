# SPDX-License-Identifier: Apache-2.0
"""Regions of PyTorch memory, and the memory of its CUDA graphs."""
import contextlib
from typing import Any, Iterator, Optional, Tuple

from . import pools
from .api import info, process_scope, scope
from .errors import InvalidError


def _is_parked(tag: str) -> bool:
    try:
        return info(tag).parked > 0
    except InvalidError:  # nothing carries it
        return False


@contextlib.contextmanager
def region(tag: str, device: Optional[int] = None, all_threads: bool = False) -> Iterator[None]:
    """What the calling thread allocates meanwhile through PyTorch, on `device` (None: the current one), carries `tag`.

    With `all_threads` so does what other threads allocate there, as loader threads do; one such region at a time. Regions
    nest, the innermost counts, and may be entered again and by several threads at once. One that is entered while `tag` is
    paused has memory of its own, which is there: PyTorch would hand out what is free in memory that it had before.

    Without `lowtide run` (or its LD_PRELOAD) PyTorch's tensors are covered, and what libraries ask the driver for
    themselves is not.
    """
    carried = process_scope(tag) if all_threads else contextlib.nullcontext()
    with carried, scope(tag), pools.allocating_to(("region", tag), device, all_threads, fresh=_is_parked(tag)):
        yield


@contextlib.contextmanager
def cuda_graph(graph: Any, tag: str = "cuda_graph", pool: Optional[Tuple[int, int]] = None, stream: Any = None,
               capture_error_mode: str = "global") -> Iterator[None]:
    """torch.cuda.graph, with the memory of the graph under `tag`: its addresses stay, so that it replays after a resume.

    `pool` is that of another graph (graph.pool()) to share its memory with; None: memory of its own. The content of a
    graph's memory may be needed by later replays: pause such a tag with `offload`, as "cuda_graph" is by default.
    Raises UnsupportedError without `lowtide run` for a pool that is not Lowtide's.
    """
    import torch
    own = pools.pool_of_graph(graph, pool)
    with pools.no_pool_goes(), torch.cuda.graph(graph, pool=own, stream=stream, capture_error_mode=capture_error_mode), scope(tag):
        yield
