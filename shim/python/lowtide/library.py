# SPDX-License-Identifier: Apache-2.0
"""liblowtide.so by ctypes: found, opened once, with its signatures. A process has one copy of it, whoever opens it."""
import ctypes
import functools
import os
import pathlib
from typing import Any, Iterator, Optional

from .errors import BY_CODE, Error

STATE = "liblowtide.so"
PRELOAD = "liblowtide_preload.so"
MOST_DEVICES = 16
_DOOR = b"lowtide_door_table_v1"  # what the preload looks up in the state


class DeviceReport(ctypes.Structure):
    _fields_ = [("device", ctypes.c_int), ("free_before", ctypes.c_uint64), ("free_after", ctypes.c_uint64)]


class CReport(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("bytes_parked", ctypes.c_uint64), ("bytes_discarded", ctypes.c_uint64),
                ("bytes_kept", ctypes.c_uint64), ("blocks", ctypes.c_uint64), ("seconds", ctypes.c_double),
                ("device_count", ctypes.c_int), ("devices", DeviceReport * MOST_DEVICES)]


class CTagInfo(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("blocks", ctypes.c_uint64), ("bytes_resident", ctypes.c_uint64),
                ("bytes_parked", ctypes.c_uint64), ("bytes_backup", ctypes.c_uint64), ("bytes_slack", ctypes.c_uint64),
                ("addresses_are_stable", ctypes.c_int), ("freshness", ctypes.c_int), ("bytes_stale", ctypes.c_uint64),
                ("bytes_residue", ctypes.c_uint64), ("version", ctypes.c_uint64), ("updates", ctypes.c_uint64),
                ("repeated_calls", ctypes.c_uint64)]


RelocateCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


_SIGNATURES = {
    "lowtide_scope_begin": [ctypes.c_char_p],
    "lowtide_scope_end": [],
    "lowtide_process_scope_begin": [ctypes.c_char_p],
    "lowtide_process_scope_end": [ctypes.c_char_p],
    "lowtide_set": [ctypes.c_char_p, ctypes.c_char_p],
    "lowtide_phase": [ctypes.c_char_p],
    "lowtide_pause": [ctypes.c_char_p, ctypes.POINTER(CReport)],
    "lowtide_resume": [ctypes.c_char_p, ctypes.POINTER(CReport)],
    "lowtide_begin_update": [ctypes.c_char_p, ctypes.c_uint64],
    "lowtide_commit_update": [ctypes.c_char_p, ctypes.c_uint64],
    "lowtide_abort_update": [ctypes.c_char_p],
    "lowtide_mark_valid": [ctypes.c_char_p, ctypes.c_uint64],
    "lowtide_drop_backup": [ctypes.c_char_p],
    "lowtide_on_relocate": [ctypes.c_char_p, RelocateCallback, ctypes.c_void_p],
    "lowtide_trim": [ctypes.POINTER(ctypes.c_uint64)],
    "lowtide_get_tag_info": [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(CTagInfo)],
    "lowtide_read_paused": [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t],
    "lowtide_write_paused": [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t],
    "lowtide_view_paused": [ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)],
}


def state_name() -> str:
    """What to open the state by: its bare name once this process has it, which finds that copy even when its file was
    replaced since; else its path."""
    try:
        ctypes.CDLL(STATE, mode=os.RTLD_NOLOAD)
        return STATE
    except OSError:
        return str(library_path(STATE))


def _mapped_files() -> Iterator[pathlib.Path]:
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        seen = dict.fromkeys("".join(line.rstrip("\n").partition("/")[1:]) for line in maps)
    return (pathlib.Path(path) for path in seen if path)


def mapped_library(name: str) -> Optional[pathlib.Path]:
    """The path of a library that this process has mapped already."""
    return next((path for path in _mapped_files() if path.name == name), None)


def is_disabled() -> bool:
    """Whether LOWTIDE_DISABLE keeps Lowtide out of this process."""
    return os.environ.get("LOWTIDE_DISABLE", "").lower() in ("1", "true", "yes", "on")


def under_lowtide() -> bool:
    """Whether this process was started with Lowtide's preload, and LOWTIDE_DISABLE does not keep Lowtide out of it. Known
    before the first GPU call, at which the preload opens the state; and also where `lowtide compat install` named it otherwise.
    """
    return not is_disabled() and any(path.name == PRELOAD or _is_preload(path) for path in _mapped_files())


def _is_preload(path: pathlib.Path) -> bool:
    if "torch_memory_saver" not in path.name:
        return False
    try:
        return _DOOR in path.read_bytes()
    except OSError:
        return False


def library_path(name: str) -> pathlib.Path:
    """Where a library of this package lies: that of a `lowtide run` around this process, else the package's own."""
    for mapped in (mapped_library(STATE), mapped_library(PRELOAD)):
        if mapped is not None and (mapped.parent / name).exists():
            return mapped.parent / name
    own = pathlib.Path(__file__).parent / "lib" / name
    if own.exists():
        return own
    raise Error(f"{name} is not in {own.parent}, and this process was not started with `lowtide run`: install the wheel, or "
                f"start it so")


@functools.lru_cache(maxsize=None)
def load() -> ctypes.CDLL:
    """The library, opened at the first call."""
    library = ctypes.CDLL(state_name())
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = ctypes.c_int
    library.lowtide_last_error.restype = ctypes.c_char_p
    return library


def call(name: str, *arguments: Any) -> None:
    """Calls a function that answers with a lowtide_result; an error becomes its exception."""
    code = getattr(load(), name)(*arguments)
    if code != 0:
        raise BY_CODE.get(code, Error)(load().lowtide_last_error().decode(errors="replace"))
