# SPDX-License-Identifier: Apache-2.0
"""The memory of CUDA graphs under a tag of its own."""
from typing import Any, Callable

from ... import api
from ..patching import wrap
from . import ranks
from .tags import GRAPHS

_SCOPE = "_lowtide_scope"


def enter() -> None:
    """Enters PyTorch's captures: what is allocated in one belongs to its graph's pool alone."""
    import torch
    wrap(torch.cuda.CUDAGraph, "capture_begin", _begin)
    wrap(torch.cuda.CUDAGraph, "capture_end", _end)


def _begin(original: Callable[..., Any]) -> Callable[..., Any]:

    def capture_begin(self: Any, *arguments: Any, **options: Any) -> Any:
        if not ranks.is_alone():  # vLLM's own all-reduce opens the memory of graphs in other processes, by legacy IPC
            return original(self, *arguments, **options)
        scope = api.scope(GRAPHS)
        scope.__enter__()
        try:
            result = original(self, *arguments, **options)
        except BaseException:
            scope.__exit__(None, None, None)
            raise
        setattr(self, _SCOPE, scope)
        return result

    return capture_begin


def _end(original: Callable[..., Any]) -> Callable[..., Any]:

    def capture_end(self: Any, *arguments: Any, **options: Any) -> Any:
        scope = self.__dict__.pop(_SCOPE, None)
        try:
            return original(self, *arguments, **options)
        finally:
            if scope is not None:
                scope.__exit__(None, None, None)

    return capture_end
