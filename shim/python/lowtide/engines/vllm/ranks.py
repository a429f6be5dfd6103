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
        raise UndoneError(f"{failure}; and this rank could not go back: {left}") from left
    raise failure or UndoneError(_in_words(said))


def count() -> int:
    """How many ranks the engine of this process has."""
    group = _group()
    return 1 if group is None else group.world_size


def raises_for_all(worker: Any) -> bool:
    """Whether an error of this rank is told to vLLM. Its multiprocessing executor reads the answers of the ranks in turn and
    leaves the rest unread at the first error, for the next call to take them for its own: the last rank speaks there."""
    if count() == 1 or worker.vllm_config.parallel_config.distributed_executor_backend != "mp":
        return True
    return _group().rank == count() - 1


def _in_words(said: List[Optional[str]]) -> str:
    return "; ".join(f"rank {rank}: {why}" for rank, why in enumerate(said) if why)


def _said_by_all(why: Optional[str]) -> List[Optional[str]]:
    if count() == 1:
        return [why]
    import torch
    said: List[Optional[str]] = [None] * count()
    torch.distributed.all_gather_object(said, why, group=_group().cpu_group)
    return said


def _group() -> Any:
    state = sys.modules.get("vllm.distributed.parallel_state")
    return getattr(state, "_WORLD", None)
