# SPDX-License-Identifier: Apache-2.0
"""Entering another package at a place that is looked up: what a version does not have is passed over."""
import functools
import importlib.abc
import importlib.machinery
import logging
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Sequence

logger = logging.getLogger(__name__)

_Action = Callable[[types.ModuleType], None]
_waiting: Dict[str, List[_Action]] = {}


def when_imported(name: str, action: _Action) -> None:
    """Calls `action` with the module `name`: now if it is imported, else right after its import, and never without one.

    What `action` raises is logged and goes no further: the import of another's module does not fail for ours.
    """
    module = sys.modules.get(name)
    if module is not None:
        _act(action, module)
        return
    if _Watcher.instance not in sys.meta_path:
        sys.meta_path.insert(0, _Watcher.instance)
    _waiting.setdefault(name, []).append(action)


def _act(action: _Action, module: types.ModuleType) -> None:
    try:
        action(module)
    except Exception:  # pylint: disable=broad-exception-caught
        logger.exception("%s is left as it is", module.__name__)


class _Watcher(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module that is waited for, and looks in after it was executed."""
    instance: "_Watcher"

    def find_spec(self, fullname: str, path: Optional[Sequence[str]],
                  target: Optional[types.ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in _waiting:
            return None
        for finder in tuple(sys.meta_path):
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if find is None else find(fullname, path, target)
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    @staticmethod
    def _watch(spec: importlib.machinery.ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def execute_and_act(module: types.ModuleType) -> None:
            execute(module)
            for action in _waiting.pop(module.__name__, []):
                _act(action, module)

        loader.exec_module = execute_and_act


_Watcher.instance = _Watcher()


def wrap(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> bool:
    """Replaces the function `name` of a module or class by `around` of it, with its signature. Done twice, it is done once.

    False, and nothing is changed, where there is none.
    """
    found = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
    of_class = isinstance(found, classmethod)
    function = found.__func__ if isinstance(found, classmethod) else found
    if not callable(function):
        return False
    if not hasattr(function, "lowtide_entered"):
        entered: Any = functools.wraps(function)(around(function))
        entered.lowtide_entered = True
        setattr(owner, name, classmethod(entered) if of_class else entered)
    return True
