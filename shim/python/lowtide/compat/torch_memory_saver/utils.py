# SPDX-License-Identifier: Apache-2.0
"""Where launchers look for the library that they put into LD_PRELOAD."""
import pathlib

from ... import library
from ...errors import InvalidError

_LIBRARIES = {
    "torch_memory_saver_hook_mode_preload": library.PRELOAD,
    "torch_memory_saver_hook_mode_torch": library.STATE,
}


def get_binary_path_from_package(stem: str) -> pathlib.Path:
    """The library of Lowtide that does the work of torch_memory_saver's `stem`. Raises InvalidError for another stem."""
    if stem not in _LIBRARIES:
        raise InvalidError(f"{stem} is no library of torch_memory_saver: {', '.join(_LIBRARIES)} are")
    return library.library_path(_LIBRARIES[stem])
