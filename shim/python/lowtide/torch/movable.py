# SPDX-License-Identifier: Apache-2.0
"""Which storages can be emptied and filled again without anybody noticing."""
import bisect
import itertools
from typing import Callable, Collection, Iterable, List, Tuple

from .holdings import Held, Left


def apart(found: List[Held], of_graphs: Collection[int]) -> Tuple[List[Held], List[Left]]:
    """Those that can, and the others. `of_graphs`: addresses that captured graphs write to."""
    reasons = [_why_fixed(each, of_graphs) for each in found]
    meets_fixed = _meets(each for each, why in zip(found, reasons) if why)
    can, left = [], []
    for each, why in zip(found, reasons):
        if not why and meets_fixed(each):
            why = "it has its memory in common with a storage that stays"
        if why:
            left.append(Left(each.name, each.storage.nbytes(), why))
        else:
            can.append(each)
    return can, left


def _why_fixed(held: Held, of_graphs: Collection[int]) -> str:
    if held.storage.device.type == "cpu" and held.storage.is_shared():
        return "it is shared with other processes"
    if not held.storage.resizable():
        return "its memory is not PyTorch's own, or NumPy has it too"
    if held.address in of_graphs:
        return "a captured CUDA graph writes to it"
    return ""


def _range(held: Held) -> Tuple[int, int]:
    return held.address, held.address + held.storage.nbytes()


def _meets(fixed: Iterable[Held]) -> Callable[[Held], bool]:
    """Whether a storage has memory in common with one of these."""
    ranges = sorted(_range(each) for each in fixed)
    starts = [start for start, _ in ranges]
    furthest = list(itertools.accumulate((end for _, end in ranges), max))

    def meets(held: Held) -> bool:
        start, end = _range(held)
        before = bisect.bisect_left(starts, end)
        return before > 0 and furthest[before - 1] > start

    return meets
