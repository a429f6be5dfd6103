# SPDX-License-Identifier: Apache-2.0
"""Regions of PyTorch memory. PyTorch hands out memory that it has without asking the driver: each region has a pool of its
own, so that its blocks hold nothing but its tensors."""
import contextlib
import functools
import threading
from typing import Any, Dict, Iterator, Optional, Tuple

from . import library
from .api import scope
from .errors import UnsupportedError

_lock = threading.Lock()
_pools: Dict[Tuple[str, int], Any] = {}  # they live as long as the process: a tensor may outlive its region


@functools.lru_cache(maxsize=None)
def _allocator() -> Optional[Any]:
    """Where nothing is preloaded, the pools ask Lowtide by PyTorch's own interface. None: the driver's door does it."""
    import torch
    if library.mapped_library(library.PRELOAD) is not None:
        return None
    return torch.cuda.memory.CUDAPluggableAllocator(str(library.library_path(library.STATE)), "lowtide_malloc", "lowtide_free")


def _refuse_expandable_segments() -> None:
    import torch
    settings = getattr(torch.cuda.memory, "_snapshot", None) and torch.cuda.memory._snapshot()["allocator_settings"]
    if settings and settings.get("expandable_segments"):
        raise UnsupportedError("a region's memory cannot lie in PyTorch's expandable segments, which map memory themselves: start "
                               "the program with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False")


def pool(tag: str, device: Optional[int] = None) -> Any:
    """The torch.cuda.MemPool of a tag on a device (None: the current one)."""
    import torch
    index = torch.cuda.current_device() if device is None else device
    with _lock:
        found = _pools.get((tag, index))
        if found is None:
            _refuse_expandable_segments()
            allocator = _allocator()
            with torch.cuda.device(index):
                found = torch.cuda.MemPool() if allocator is None else torch.cuda.MemPool(allocator.allocator())
            _pools[(tag, index)] = found
        return found


@contextlib.contextmanager
def region(tag: str, device: Optional[int] = None) -> Iterator[Any]:
    """What the calling thread allocates meanwhile through PyTorch, on `device` (None: the current one), carries `tag`.

    Regions nest, and may be entered again. Yields the pool. Without `lowtide run` only PyTorch's own memory is covered:
    not that of libraries which ask the driver themselves, nor other devices. Raises UnsupportedError under expandable
    segments.
    """
    import torch
    own = pool(tag, device)
    with scope(tag), torch.cuda.use_mem_pool(own, device=device):
        yield own
