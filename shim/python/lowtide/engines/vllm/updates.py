# SPDX-License-Identifier: Apache-2.0
"""Tells the runtime of what vLLM writes into its weights, so that those that level 2 dropped are content again once they are loaded."""
import contextlib
import logging
from typing import Any, Callable, Iterator, Optional

from ...errors import Error
from ...updates import abort_update, begin_update, commit_update, mark_valid
from ..patching import wrap
from .tags import WEIGHTS, found

logger = logging.getLogger("vllm.lowtide")


class Updates:
    """The updates of the weights that are begun and ended here; those of others, a framework's own, are left to them.

    A reload and a transfer say when they end. A model's load_weights alone does not, and frameworks call it bucket by bucket: the
    calls that go into stale weights are one update, until the engine goes on. All calls come from the worker's thread.
    """

    def __init__(self) -> None:
        self._version: Optional[int] = None  # of the update that was begun here
        self.by_loads = False  # its end is where the engine goes on
        self.unsettled = False  # the weights may be stale, or such an update under way

    def begin(self) -> bool:
        """False: there is nothing to begin, or it is part of what was begun, and so nothing to end."""
        if self._version is not None:
            began, self.by_loads = self.by_loads, False
            return began
        return self._begin()

    def commit(self) -> None:
        """Raises RefusedError, with coverage, for what was not written."""
        if self._version is None:
            return
        try:
            commit_update(WEIGHTS, self._version)
        except Error:
            self.by_loads = _is("syncing")  # a rule stands in the way: it is tried again where the engine goes on
            if not self.by_loads:
                self._version = None
            raise
        self._version, self.by_loads, self.unsettled = None, False, False

    def begin_load(self) -> None:
        """Weights that are not stale may be loaded into while the engine computes, and nothing would say when that ends."""
        if self._version is None and _is("stale"):
            self.by_loads = self._begin()

    def end_session(self) -> None:
        """A transfer says that it is over; one for the draft model began nothing here."""
        if not self.by_loads:
            self.commit()

    def end_loads(self) -> None:
        """The KV cache is about to come back: by then all buckets were loaded."""
        if self.by_loads:
            self.commit()

    def settle(self) -> None:
        """The engine goes on with the weights as they are, or wants them kept: that makes them content, however they came there.

        Else what was loaded past all that is seen here would be left out of the next copy, as stale bytes are.
        """
        self.end_loads()
        info = found(WEIGHTS) if self.unsettled and self._version is None else None
        if info is None or info.parked > 0 or info.freshness == "syncing":
            return
        if info.freshness == "stale":
            mark_valid(WEIGHTS, info.version + 1)
            logger.warning("The weights were dropped, and Lowtide has not seen them loaded: as vLLM goes on with them, they are "
                           "version %d from now on", info.version + 1)
        self.unsettled = False

    def give_up(self) -> None:
        """The weights are about to be dropped, and nobody needs to know what an update left out."""
        try:
            self.end_loads()
        except Error as why:
            logger.warning("%s", why)
        self.abort()
        self.unsettled = True

    def abort(self) -> None:
        """What was begun here and not committed, if anything."""
        if self._version is not None:
            self._version, self.by_loads = None, False
            abort_update(WEIGHTS)

    def forget(self) -> None:
        """The engine is gone, and its weights with it."""
        self.abort()
        self.unsettled = False

    def _begin(self) -> bool:
        info = found(WEIGHTS)
        if info is None or info.parked > 0 or info.freshness == "syncing":
            return False
        begin_update(WEIGHTS, info.version + 1)
        self._version, self.unsettled = info.version + 1, True
        return True


of_weights = Updates()


def _is(freshness: str) -> bool:
    info = found(WEIGHTS)
    return info is not None and info.parked == 0 and info.freshness == freshness


def enter(module: Any) -> None:
    """Enters vllm.v1.worker.gpu_worker. A session for the draft model is none: it leaves the other weights as they are."""
    wrap(module.Worker, "load_model", _then_enter_model)
    wrap(module.Worker, "reload_weights", _whole)
    wrap(module.Worker, "start_weight_update", _in_session(of_weights.begin, lambda: None))
    wrap(module.Worker, "update_weights", _in_session(lambda: None, lambda: None))
    wrap(module.Worker, "finish_weight_update", _in_session(lambda: None, of_weights.end_session))
    wrap(module.Worker, "execute_model", _compute)


def _then_enter_model(original: Callable[..., Any]) -> Callable[..., Any]:
    """The class of the model, not the model: that would refer to itself, and outlive its engine."""

    def load_model(self: Any, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        model = self.get_model() if hasattr(self, "get_model") else None
        any(wrap(owner, "load_weights", _load) for owner in type(model).__mro__)  # the first that has it
        return result

    return load_model


def _load(original: Callable[..., Any]) -> Callable[..., Any]:

    def load_weights(*arguments: Any, **options: Any) -> Any:
        of_weights.begin_load()
        with _aborting(lambda: of_weights.by_loads):
            return original(*arguments, **options)

    return load_weights


def _whole(original: Callable[..., Any]) -> Callable[..., Any]:

    def reload_weights(*arguments: Any, **options: Any) -> Any:
        began = of_weights.begin()
        with _aborting(lambda: began):
            result = original(*arguments, **options)
        if began:
            of_weights.commit()
        return result

    return reload_weights


def _in_session(before: Callable[[], Any], after: Callable[[], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Around a call of a transfer, which goes on after an error where vLLM says so."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            before()
            with _aborting(lambda: not getattr(self, "_weight_update_active", False)):
                result = original(self, *arguments, **options)
            after()
            return result

        return call

    return around


@contextlib.contextmanager
def _aborting(is_over: Callable[[], bool]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if is_over():
            of_weights.abort()
        raise


def _compute(original: Callable[..., Any]) -> Callable[..., Any]:

    def execute_model(*arguments: Any, **options: Any) -> Any:
        if of_weights.unsettled:
            try:
                of_weights.settle()
            except Error as why:  # the engine would end
                of_weights.unsettled = False
                logger.error("vLLM computes with weights that are not valid: %s", why)
        return original(*arguments, **options)

    return execute_model
