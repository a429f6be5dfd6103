# SPDX-License-Identifier: Apache-2.0
"""PyTorch memory pools on Lowtide's memory. PyTorch hands out memory that it has without asking the driver: what shall be
paused together gets pools of its own, whose blocks hold nothing else."""
import contextlib
import contextvars
import functools
import threading
import weakref
from typing import Any, Dict, Hashable, Iterator, List, Optional, Set, Tuple

from . import library
from .errors import InvalidError, UnsupportedError

_Key = Tuple[Hashable, int]

# Reentrant: the garbage collector may leave a forgotten region at any moment, in the thread that holds it.
_lock = threading.RLock()
# Pools live as long as the process: a tensor may outlive its region. PyTorch lets one thread at a time allocate to a pool,
# so that threads in regions of one tag have a pool each.
_idle: Dict[_Key, List[Any]] = {}
# PyTorch ends the process when a pool goes while any thread allocates to one: those that nobody needs wait here.
_retired: List[Any] = []
_entered = 0


class _InUse(threading.local):
    """The pools that this thread allocates to, the innermost last. PyTorch is told of that one alone: it refuses a pool twice,
    and its versions differ in which of several counts."""

    def __init__(self) -> None:
        self.stack: List["_Use"] = []


_in_use = _InUse()
# The innermost region of an asyncio task: tasks share a thread and its flags, and may not interleave.
_innermost: "contextvars.ContextVar[Optional[_Use]]" = contextvars.ContextVar("lowtide_innermost_region", default=None)


@functools.lru_cache(maxsize=None)
def _allocator() -> Any:
    import torch
    return torch.cuda.memory.CUDAPluggableAllocator(library.state_name(), "lowtide_malloc", "lowtide_free")


def make_pool() -> Any:
    """A torch.cuda.MemPool of the current device whose memory comes by lowtide_malloc, also under expandable segments."""
    import torch
    return torch.cuda.MemPool(_allocator().allocator())


class _Use:
    def __init__(self, key: _Key, pool: Any, all_threads: bool) -> None:
        self.key = key
        self.pool = pool
        self.all_threads = all_threads
        self._routing: Any = None

    def begin(self) -> None:
        import torch
        device = self.key[1]
        routing = _all_threads(self.pool, device) if self.all_threads else torch.cuda.use_mem_pool(self.pool, device)
        routing.__enter__()
        self._routing = routing

    def end(self) -> None:
        routing, self._routing = self._routing, None
        routing.__exit__(None, None, None)


@contextlib.contextmanager
def _all_threads(pool: Any, device: int) -> Iterator[None]:
    """torch.cuda.use_mem_pool for all threads; PyTorch has no public name for it."""
    import torch
    try:
        begin, end = torch._C._cuda_beginAllocateToPool, torch._C._cuda_endAllocateToPool
        release = torch._C._cuda_releasePool
    except AttributeError as missing:
        raise UnsupportedError(f"PyTorch {torch.__version__} cannot allocate to a pool from all threads") from missing
    begin(device, pool.id)
    try:
        yield
    finally:
        end(device, pool.id)
        release(device, pool.id)


def _take(key: _Key, outer: List[_Use], fresh: bool) -> Any:
    import torch
    if not fresh:
        for use in outer:
            if use.key == key:
                return use.pool
        with _lock:
            idle = _idle.get(key)
            if idle:
                return idle.pop()
    with torch.cuda.device(key[1]):
        return make_pool()


def _give_back(use: _Use, outer: List[_Use]) -> None:
    if all(other.pool is not use.pool for other in outer):
        with _lock:
            _idle.setdefault(use.key, []).append(use.pool)


@contextlib.contextmanager
def no_pool_goes() -> Iterator[None]:
    """Retired pools wait until the last one has left this. Around all that allocates to a pool, captures included."""
    global _entered
    with _lock:
        _entered += 1
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0 and not _is_capturing():
                _retired.clear()


def _is_capturing() -> bool:
    import torch
    return torch.cuda.is_current_stream_capturing()


@contextlib.contextmanager
def allocating_to(name: Hashable, device: Optional[int] = None, all_threads: bool = False, pool: Any = None,
                  fresh: bool = False) -> Iterator[None]:
    """What the calling thread (or all threads) allocates meanwhile through PyTorch on `device` (None: the current one) comes
    from a pool that is used under `name` alone, or from `pool`, which the caller keeps. `fresh`: from one without memory."""
    import torch
    key = (name, torch.cuda.current_device() if device is None else device)
    stack = _in_use.stack
    if stack and _innermost.get() is not stack[-1]:
        raise InvalidError("another asyncio task of this thread is inside a region, and what this one allocates would be taken for "
                           "its memory: leave a region before an await, or load in a thread")
    outer = [use for use in stack if use.key[1] == key[1]]
    with no_pool_goes():
        use = _Use(key, _take(key, outer, fresh) if pool is None else pool, all_threads)
        if outer:
            outer[-1].end()
        try:
            use.begin()
            stack.append(use)
            around = _innermost.get()
            _innermost.set(use)
            try:
                yield
            finally:
                _innermost.set(around)
                stack.pop()
                use.end()
        finally:
            if outer:
                outer[-1].begin()
            if pool is None:
                _give_back(use, outer)
            use.pool = pool = None  # the traceback of an exception would keep a pool that is to go


@contextlib.contextmanager
def allocating_once(name: Hashable, pool: Any = None) -> Iterator[Tuple[int, int]]:
    """What the calling thread allocates meanwhile comes from a new pool of Lowtide's memory, or from `pool`, which nothing
    uses afterwards. Its memory goes back to the device once its tensors are gone and no region is entered."""
    pool = make_pool() if pool is None else pool
    try:
        with allocating_to(name, pool=pool):
            yield pool.id
    finally:
        with no_pool_goes():
            _retired.append(pool)
            del pool


def allocating_outside() -> Any:
    """What the calling thread allocates meanwhile is PyTorch's own, and in no pool of ours."""
    import torch
    return allocating_once("outside", torch.cuda.MemPool())


_ours: Set[Tuple[int, int]] = set()


def pool_of_graph(graph: Any, pool: Optional[Tuple[int, int]]) -> Tuple[int, int]:
    """The pool to capture `graph` in: one that lives as long as the graph, or `pool` if its memory can carry a tag.

    Raises UnsupportedError if it cannot.
    """
    if pool is None:
        own = make_pool()
        weakref.finalize(graph, _let_go, own)
        _ours.add(own.id)
        return own.id
    if pool not in _ours and library.mapped_library(library.PRELOAD) is None:
        raise UnsupportedError(f"the pool {pool} is not Lowtide's: capture with pool=None or the pool of a graph captured so, or start "
                               f"the program with `lowtide run`")
    return pool


def _let_go(pool: Any) -> None:
    """Its graph is gone; graphs that share its memory keep that by themselves. Takes no lock: it may come at any moment."""
    _ours.discard(pool.id)
    _retired.append(pool)
