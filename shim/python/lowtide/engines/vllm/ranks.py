# SPDX-License-Identifier: Apache-2.0
"""The ranks of one vLLM engine sleep and wake up together: one that fails leaves all where they were."""
import sys
from typing import Any, Callable, List, Optional

from ...errors import Error


class UndoneError(Error):
    """Another rank could not do it, and this one is back where it was."""


def settle(failure: Optional[Exception], undo: Callable[[], None]) -> None:
    """Tells the other ranks whether this one failed, and hears of them. If any has failed, each calls `undo` and raises.

    Every rank calls it as often. Raises `failure` itself where this one failed, else an UndoneError that names who did.
    """
    said = _said_by_all(None if failure is None else str(failure))
    if not any(said):
        return
    try:
        undo()
    except Error as left:
        failure = failure or UndoneError(_in_words(said))
        raise _told(UndoneError(f"{failure}; and this rank could not go back: {left}")) from left
    raise _told(failure or UndoneError(_in_words(said)))


def is_alone() -> bool:
    """Whether there is no other rank, not of another engine either."""
    world = getattr(_state(), "_WORLD", None)
    return world is None or world.world_size == 1


def is_to_raise(worker: Any, error: Exception) -> bool:
    """Whether this rank tells vLLM of `error`. vLLM's multiprocessing executor reads the answers of the ranks in turn and leaves
    the rest unread at the first error, for the next call to take them for its own: of what all ranks raise, the last speaks."""
    groups = _groups()
    if not groups or not hasattr(error, _TOLD) or worker.vllm_config.parallel_config.distributed_executor_backend != "mp":
        return True
    return all(group.rank_in_group == group.world_size - 1 for group in groups)


_TOLD = "lowtide_told_to_all_ranks"


def _told(error: Exception) -> Exception:
    setattr(error, _TOLD, True)
    return error


def _in_words(said: List[Optional[str]]) -> str:
    return "; ".join(f"rank {rank}: {why}" for rank, why in enumerate(said) if why)


def _said_by_all(why: Optional[str]) -> List[Optional[str]]:
    """In the order of the ranks."""
    said = [why]
    for group in _groups():
        import torch
        parts: List[List[Optional[str]]] = [[]] * group.world_size
        torch.distributed.all_gather_object(parts, said, group=group.cpu_group)
        said = [one for part in parts for one in part]
    return said


def _groups() -> List[Any]:
    """That together join the ranks of this process's engine, neighbours first. vLLM's world is no such group: under data
    parallelism and torchrun it has the ranks of other engines, which sleep when they are told to."""
    found = (getattr(_state(), name, None) for name in ("_TP", "_PCP", "_PP"))
    return [group for group in found if group is not None and group.world_size > 1]


def _state() -> Any:
    return sys.modules.get("vllm.distributed.parallel_state")
