# SPDX-License-Identifier: Apache-2.0
"""The calling thread's flags, which say what its allocations carry."""
import contextlib
import ctypes
import dataclasses
import functools
from typing import Any, Iterator

from ... import library

_FUNCTIONS = {
    "tms_set_interesting_region": (None, [ctypes.c_bool]),
    "tms_get_interesting_region": (ctypes.c_bool, []),
    "tms_set_current_tag": (None, [ctypes.c_char_p]),
    "tms_get_current_tag": (ctypes.c_char_p, []),
    "tms_set_enable_cpu_backup": (None, [ctypes.c_bool]),
    "tms_get_enable_cpu_backup": (ctypes.c_bool, []),
    "tms_set_cpu_backup_backend": (None, [ctypes.c_char_p]),
    "tms_get_cpu_backup_backend": (ctypes.c_char_p, []),
    "tms_set_enable_disk_backup": (None, [ctypes.c_bool]),
    "tms_get_enable_disk_backup": (ctypes.c_bool, []),
    "tms_set_disk_backup_dir": (None, [ctypes.c_char_p]),
    "set_memory_margin_bytes": (None, [ctypes.c_uint64]),
    "tms_set_retain_cpu_backup": (None, [ctypes.c_bool]),
    "tms_get_retain_cpu_backup": (ctypes.c_bool, []),
    "tms_pause": (ctypes.c_int, [ctypes.c_char_p]),
    "tms_resume": (ctypes.c_int, [ctypes.c_char_p]),
    "tms_get_cpu_backup_pointer": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint64]),
}


@functools.lru_cache(maxsize=None)
def saver_library() -> Any:
    """liblowtide.so, with torch_memory_saver's functions declared."""
    loaded = library.load()
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def transition(name: str, tag: Any) -> None:
    """tms_pause or tms_resume; its error becomes an exception."""
    saver_library()  # declares them
    library.call(name, tag.encode() if tag else None)


@dataclasses.dataclass(frozen=True)
class Flags:
    """What torch_memory_saver's calls say of one thread's allocations."""
    interesting: bool
    tag: str
    cpu_backup: bool
    cpu_backend: str
    disk_backup: bool

    @staticmethod
    def current() -> "Flags":
        """Those of the calling thread."""
        saver = saver_library()
        return Flags(saver.tms_get_interesting_region(), saver.tms_get_current_tag().decode(), saver.tms_get_enable_cpu_backup(),
                     saver.tms_get_cpu_backup_backend().decode(), saver.tms_get_enable_disk_backup())

    def apply(self) -> None:
        """The calling thread has them from now on."""
        saver = saver_library()
        saver.tms_set_current_tag(self.tag.encode())
        saver.tms_set_enable_cpu_backup(self.cpu_backup)
        saver.tms_set_cpu_backup_backend(self.cpu_backend.encode())
        saver.tms_set_enable_disk_backup(self.disk_backup)
        saver.tms_set_interesting_region(self.interesting)


@contextlib.contextmanager
def flags(wanted: Flags) -> Iterator[None]:
    """The calling thread has `wanted` meanwhile."""
    before = Flags.current()
    wanted.apply()
    try:
        yield
    finally:
        before.apply()
