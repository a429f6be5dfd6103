# SPDX-License-Identifier: Apache-2.0
"""The memory of PyTorch's devices, and copies of it on the host."""
import contextlib
import gc
from typing import Any, Dict, Iterable, Iterator, List, Set

import torch

from .. import pools

# PyTorch rounds a piece of pinned memory up to a power of two.
_SLAB = 64 << 20


def _module(device: torch.device) -> Any:
    return getattr(torch, device.type)


def synchronize(devices: Iterable[torch.device]) -> None:
    for device in devices:
        if device.type != "cpu":
            _module(device).synchronize(device)


def empty_cache(devices: Iterable[torch.device]) -> None:
    for kind in {device.type for device in devices} - {"cpu"}:
        getattr(torch, kind).empty_cache()


def free(devices: Iterable[torch.device]) -> Dict[int, int]:
    """Free bytes of each device that can tell, by its index."""
    return {device.index: _module(device).mem_get_info(device)[0]
            for device in devices if device.type != "cpu" and hasattr(_module(device), "mem_get_info")}


@contextlib.contextmanager
def of_its_own(device: torch.device) -> Iterator[None]:
    """What the calling thread allocates on `device` meanwhile shares no segment of PyTorch's with anything else, so
    that all of it can leave the device. Of devices that PyTorch has no pools for: memory as always."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), pools.allocating_outside():
        yield


def on_host(total: int, pinned: bool) -> List[torch.Tensor]:
    """`total` bytes of host memory. Raises RuntimeError if they are not there."""
    sizes = [_SLAB] * (total // _SLAB) + [total % _SLAB] * (total % _SLAB > 0)
    return [torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=pinned) for size in sizes]


def cut(slabs: List[torch.Tensor], sizes: Iterable[int]) -> Iterator[List[torch.Tensor]]:
    """For each size the parts of slabs that make it up, one behind the other."""
    slab, used = 0, 0
    for size in sizes:
        parts = []
        while size > 0:
            part = slabs[slab][used:used + size]
            parts.append(part)
            size -= len(part)
            used += len(part)
            if used == len(slabs[slab]):
                slab, used = slab + 1, 0
        yield parts


def copy_out(storage: torch.UntypedStorage, parts: List[torch.Tensor]) -> None:
    """To the host. Not done before a synchronize."""
    for part, its in zip(parts, _bytes(storage).split([len(part) for part in parts])):
        part.copy_(its, non_blocking=True)


def copy_in(storage: torch.UntypedStorage, parts: List[torch.Tensor]) -> None:
    """From the host. Not done before a synchronize."""
    for part, its in zip(parts, _bytes(storage).split([len(part) for part in parts])):
        its.copy_(part, non_blocking=True)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """A tensor of its own over the storage: the versions that autograd keeps of others do not change with it."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def captured_graphs(devices: Iterable[torch.device]) -> List[Any]:
    """Of this process, if one of the devices runs graphs: each replays with the addresses of its capture."""
    if all(device.type != "cuda" for device in devices):
        return []
    return [each for each in gc.get_objects() if issubclass(type(each), torch.cuda.CUDAGraph) and _is_captured(each)]


def _is_captured(graph: Any) -> bool:
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True


def of_graphs(graphs: Iterable[Any]) -> Set[int]:
    """The addresses of all blocks in the memory of captured graphs, where their replays write."""
    taken = {tuple(graph.pool()) for graph in graphs}
    if not taken:
        return set()
    return {block["address"] for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) in taken
            for block in segment["blocks"]}
