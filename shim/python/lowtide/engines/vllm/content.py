# SPDX-License-Identifier: Apache-2.0
"""What lies in the weights' memory beside the parameters, and is lost when those are dropped to be loaded anew: buffers,
scales, caches of rotary embeddings, weights of a draft model."""
import bisect
import dataclasses
from typing import Any, Collection, Iterable, Iterator, List, Tuple

_Range = Tuple[int, int]  # address and end


@dataclasses.dataclass(frozen=True)
class Kept:
    """Bytes of a device, on the host."""
    address: int
    device: int
    copy: Any

    @property
    def size(self) -> int:
        return self.copy.numel()


def beside(pools: Collection[Tuple[int, int]], reloaded: Iterable[Any]) -> List[Kept]:
    """Copies of all that lives in PyTorch's memory pools of these ids and is in no tensor of `reloaded`."""
    taken = _joined(_storage(tensor) for tensor in reloaded if tensor.is_cuda)
    kept = []
    for device, block in _live(pools):
        for address, end in _without(block, taken):
            kept.append(Kept(address, device, _memory(address, end - address, device).cpu()))
    return kept


def bring_back(kept: Iterable[Kept]) -> None:
    """Writes the bytes to where they were; the memory is there again."""
    for part in kept:
        _memory(part.address, part.size, part.device).copy_(part.copy)


def _live(pools: Collection[Tuple[int, int]]) -> Iterator[Tuple[int, _Range]]:
    import torch
    for segment in torch.cuda.memory_snapshot():
        if tuple(segment["segment_pool_id"]) not in pools:
            continue
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                yield segment["device"], (block["address"], block["address"] + block["size"])


def _storage(tensor: Any) -> _Range:
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _joined(ranges: Iterable[_Range]) -> List[_Range]:
    joined: List[_Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _without(block: _Range, taken: List[_Range]) -> Iterator[_Range]:
    """The parts of `block` that no range of `taken`, sorted and apart, covers."""
    start, end = block
    for taken_start, taken_end in taken[max(0, bisect.bisect_right(taken, block) - 1):]:
        if taken_start >= end:
            break
        if taken_start > start:
            yield start, taken_start
        start = max(start, taken_end)
    if start < end:
        yield start, end


class _Memory:
    """Device memory as PyTorch takes it from others."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"version": 3, "data": (address, False), "shape": (size,), "typestr": "|u1", "strides": None,
                                         "stream": None}


def _memory(address: int, size: int, device: int) -> Any:
    """A tensor over memory that is there; it owns none."""
    import torch
    return torch.as_tensor(_Memory(address, size), device=f"cuda:{device}")
