# SPDX-License-Identifier: Apache-2.0
"""Starting programs under Lowtide from Python."""
import os
from typing import Dict, Mapping, Optional

from . import library
from .errors import UnsupportedError


def preload_path() -> str:
    """The path of liblowtide_preload.so, for LD_PRELOAD. Raises UnsupportedError where LD_PRELOAD cannot name it."""
    path = str(library.library_path(library.PRELOAD))
    if any(separator in path for separator in " :\t\n"):
        raise UnsupportedError(f"LD_PRELOAD cannot name \"{path}\": its path has a space or a colon; install Lowtide elsewhere")
    return path


def env(tag: Optional[str] = None, config: Optional[str] = None, settings: Optional[Mapping[str, object]] = None,
        base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The environment of a subprocess under Lowtide, made of `base` (this process's own).

    `tag` is what its allocations outside of all scopes carry, `config` the path of a lowtide.toml, `settings` keys and
    values that win over it. Raises ValueError for a value with a comma, which only a file can say.
    """
    variables = dict(os.environ if base is None else base)
    preloads = [entry for entry in variables.get("LD_PRELOAD", "").replace(":", " ").split() if entry]
    if not any(os.path.basename(entry) == library.PRELOAD for entry in preloads):
        preloads.append(preload_path())
    variables["LD_PRELOAD"] = ":".join(preloads)
    if tag is not None:
        variables["LOWTIDE_DEFAULT_TAG"] = tag
    if config is not None:
        variables["LOWTIDE_CONFIG"] = os.path.abspath(config)
    if settings:
        for key, value in settings.items():
            if "," in str(value):
                raise ValueError(f"{key}={value}: a value with a comma can only be said in a file (config)")
        said = [variables["LOWTIDE_CONF"]] if variables.get("LOWTIDE_CONF") else []
        variables["LOWTIDE_CONF"] = ",".join(said + [f"{key}:{value}" for key, value in settings.items()])
    return variables
