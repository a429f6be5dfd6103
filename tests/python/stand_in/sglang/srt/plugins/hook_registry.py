# SPDX-License-Identifier: Apache-2.0
"""As much of SGLang's registry as Lowtide uses: hooks around methods."""
import enum
import functools
import pkgutil


class HookType(enum.Enum):
    AROUND = "around"


class HookRegistry:
    hooks = {}

    @classmethod
    def register(cls, target, hook, hook_type, *, source=None):
        assert hook_type is HookType.AROUND and source is None
        cls.hooks[target] = hook

    @classmethod
    def apply_hooks(cls):
        for target, hook in cls.hooks.items():
            where, name = target.rsplit(".", 1)
            owner = pkgutil.resolve_name(where)
            setattr(owner, name, _around(getattr(owner, name), hook))


def _around(original, hook):
    @functools.wraps(original)
    def wrapper(*arguments, **named):
        return hook(original, *arguments, **named)

    return wrapper
