# SPDX-License-Identifier: Apache-2.0
"""The interface of vllm.device_allocator.cumem.CuMemAllocator, on Lowtide."""
import contextlib
import gc
import logging
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from ... import api, pools
from . import content, ranks
from .tags import ADAPTERS, DEFERRABLE, GRAPHS, KV_CACHE, OWN_ACTION, RUNTIME, WEIGHTS, found
from .updates import of_weights

logger = logging.getLogger("vllm.lowtide")

GIB = 1 << 30
_Tags = Union[Sequence[str], str, None]


class Allocator:
    """The process's one. Tags are Lowtide's: what vLLM names (`weights`, `kv_cache`, ...), `lora`, `cuda_graph`."""

    instance: "Optional[Allocator]" = None
    default_tag = "default"

    @staticmethod
    def get_instance() -> "Allocator":
        if Allocator.instance is None:
            Allocator.instance = Allocator()
        return Allocator.instance

    def __init__(self) -> None:
        self._pools: Dict[str, List[Tuple[int, int]]] = {GRAPHS: []}  # their ids, by tag in the order of first use
        self._graph_pool: Any = None
        # Whether vLLM allocates the KV cache in a place that is known (see `kv_cache_pool`).
        self.kv_cache_apart = False
        # What the engine loads anew after level 2; None: not known, and all that carries `weights` is dropped then.
        self.reloaded: Optional[Iterable[Any]] = None
        self._beside: List[content.Kept] = []

    @contextlib.contextmanager
    def use_memory_pool(self, tag: Optional[str] = None) -> Iterator[None]:
        """What the calling thread allocates meanwhile through PyTorch carries `tag`.

        The memory that it needed only meanwhile goes back to the device with PyTorch's next empty_cache.
        """
        tag = self.default_tag if tag is None else tag
        with self._allocating(RUNTIME if tag == KV_CACHE and self.kv_cache_apart else tag):
            yield

    def kv_cache_pool(self) -> Any:
        """For the KV cache alone: what is made with it, block tables among it, must not be dropped with it."""
        return self._allocating(KV_CACHE)

    @contextlib.contextmanager
    def _allocating(self, tag: str) -> Iterator[None]:
        if tag == WEIGHTS and not _held(WEIGHTS):
            self._beside = []  # of an engine that is gone, asleep
            of_weights.forget()
        with api.scope(tag), pools.allocating_once(tag) as pool:
            self._pools.setdefault(tag, []).append(pool)
            yield

    reuse_memory_pool = use_memory_pool

    @contextlib.contextmanager
    def cudagraph_pool(self) -> Iterator[Tuple[int, int]]:
        """The pool for captures; what is captured carries `cuda_graph` wherever it is captured."""
        if self._graph_pool is None:
            self._graph_pool = pools.make_pool()
        yield self._graph_pool.id

    def sleep(self, offload_tags: _Tags = None) -> None:
        """Parks all tags: those of `offload_tags` with a copy on the host, the others without; LoRA, graphs and the engine's
        runtime state as their tags say, which is with a copy.

        All or none, over all ranks of the engine: what one cannot park, none parks, and each raises. Nothing that has to
        be kept is lost then; the KV cache may be dropped. Weights to be dropped go last.
        """
        gc.collect()
        self._bring_back_beside()
        offloaded = _as_tuple((self.default_tag,) if offload_tags is None else offload_tags)
        dropped = [tag for tag in self._pools if tag not in offloaded + OWN_ACTION]
        kept = [tag for tag in self._pools if tag not in dropped]
        done = _Parked()

        def park_kept() -> None:
            if WEIGHTS in offloaded:
                of_weights.settle()
            self._park(kept, done)
            if WEIGHTS in dropped and self.reloaded is not None and not _is_parked(WEIGHTS):
                self._beside = content.beside(self._pools[WEIGHTS], self.reloaded)

        def undo() -> None:
            done.resume()
            self._bring_back_beside()

        self._all_or_none(park_kept, undo)
        self._drop([tag for tag in dropped if tag != WEIGHTS], done, undo)
        if WEIGHTS not in offloaded:  # which all ranks say alike
            self._drop([tag for tag in dropped if tag == WEIGHTS], done, undo)
        beside = sum(part.size for part in self._beside)
        logger.info("Lowtide: sleep freed %.2f GiB in %.3f s: %.2f GiB are kept on the host, %.2f GiB were dropped",
                    (done.kept + done.dropped) / GIB, done.seconds, (done.kept + beside) / GIB, done.dropped / GIB)
        _empty_cache()

    def discard(self, tags: _Tags) -> None:
        """Parks `tags` without a copy; those that are parked stay as they are."""
        chosen = [tag for tag in self._pools if tag in _as_tuple(tags)]
        done = _Parked()
        self._drop(chosen, done, done.resume)

    def wake_up(self, tags: Optional[Sequence[str]] = None) -> None:
        """Brings back all tags; with `tags` those of weights and KV cache that it names, and all others.

        All or none, over all ranks of the engine. Raises DeviceMemoryError, with the bytes needed and free, after waiting
        for `device.wait`: the same call works once there is room. Registered adapters stay parked, where they can be read.
        """
        chosen = [tag for tag in self._pools if tags is None or tag in tags or tag not in DEFERRABLE]
        # Those with a copy first: their host memory is free by the time that the others want memory.
        chosen.sort(key=lambda tag: tag == KV_CACHE)
        back: Dict[str, api.Report] = {}

        def resume() -> None:
            _empty_cache()
            if KV_CACHE in chosen and _is_parked(KV_CACHE):
                of_weights.end_loads()
            self._resume(chosen, back)

        def undo() -> None:
            with _dropping([tag for tag, report in back.items() if report.parked == 0]):  # they came back empty
                self._park(back, _Parked())

        self._all_or_none(resume, undo)
        self._bring_back_beside()

    def _bring_back_beside(self) -> None:
        """Also after another's resume, `lowtide resume` for one, which knows nothing of it."""
        if not _is_parked(WEIGHTS):
            content.bring_back(self._beside)
            self._beside = []

    def keeps_beside(self) -> bool:
        """Whether what lies beside the dropped weights is kept, to come back with them."""
        return bool(self._beside)

    def get_current_usage(self) -> int:
        """Bytes of all tags that vLLM named, resident and parked."""
        return sum(_held(tag) for tag in self._pools if tag != GRAPHS)

    def release_pools(self) -> None:
        """Nothing is held: pools go when they are left."""

    close = release_pools

    def _drop(self, tags: Sequence[str], done: "_Parked", undo: Callable[[], None]) -> None:
        def park() -> None:
            if WEIGHTS in tags:
                of_weights.give_up()
            self._park(tags, done)

        with _dropping(tags):
            self._all_or_none(park, undo)

    @staticmethod
    def _park(tags: Iterable[str], done: "_Parked") -> None:
        for tag in tags:
            if found(tag) is not None:
                done.add(tag, api.pause(tag))

    @staticmethod
    def _resume(tags: Iterable[str], back: Dict[str, api.Report]) -> None:
        for tag in tags:
            if tag != ADAPTERS and found(tag) is not None:
                report = api.resume(tag)
                if report.blocks > 0:
                    back[tag] = report

    @staticmethod
    def _all_or_none(work: Callable[[], None], undo: Callable[[], None]) -> None:
        failure: Optional[Exception] = None
        try:
            work()
        except Exception as error:  # pylint: disable=broad-exception-caught
            failure = error
        ranks.settle(failure, undo)


class _Parked:
    """What one sleep parked so far; sizes in bytes."""

    def __init__(self) -> None:
        self.kept = self.dropped = 0
        self.seconds = 0.0
        self._tags: List[str] = []

    def add(self, tag: str, report: api.Report) -> None:
        self.kept, self.dropped, self.seconds = self.kept + report.parked, self.dropped + report.discarded, self.seconds + report.seconds
        if report.blocks > 0:
            self._tags.append(tag)

    def resume(self) -> None:
        for tag in self._tags:
            api.resume(tag)


def _as_tuple(tags: _Tags) -> Tuple[str, ...]:
    return (tags,) if isinstance(tags, str) else tuple(tags or ())


@contextlib.contextmanager
def _dropping(tags: Iterable[str]) -> Iterator[None]:
    """A pause of `tags` keeps no copy meanwhile, because vLLM says so here; who pauses them otherwise drops nothing."""
    tags = tuple(tags)
    try:
        for tag in tags:
            api.set(f"tag.{tag}.pause", "discard")
        yield
    finally:
        for tag in tags:
            api.set(f"tag.{tag}.pause", "offload")


def _held(tag: str) -> int:
    """Bytes, resident and parked."""
    info = found(tag)
    return 0 if info is None else info.resident + info.parked


def _is_parked(tag: str) -> bool:
    info = found(tag)
    return info is not None and info.parked > 0


def _empty_cache() -> None:
    import torch
    torch.cuda.empty_cache()
