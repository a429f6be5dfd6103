# SPDX-License-Identifier: Apache-2.0
"""Pausing and resuming by tag, without PyTorch."""
import contextlib
import ctypes
import dataclasses
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from . import library


@dataclasses.dataclass(frozen=True)
class Report:
    """What a pause or a resume did. Sizes are in bytes."""
    parked: int  # pause: copied to host memory or disk and taken off the device; resume: brought back
    discarded: int  # pause: dropped; resume: brought back without their old content
    kept: int  # left on the device
    blocks: int
    seconds: float
    free: Dict[int, Tuple[int, int]]  # of each device: free memory before and after, as its driver reports it


@dataclasses.dataclass(frozen=True)
class TagInfo:
    """The memory of a tag, in bytes."""
    blocks: int
    resident: int  # requested, with physical memory behind
    parked: int  # requested, without
    backup: int  # in host memory or on disk
    slack: int  # held beyond what was requested
    addresses_are_stable: bool = True  # parked memory comes back at its address for certain: ask before a graph is captured
    freshness: str = "valid"  # of the worst block: "valid", "stale" or "syncing"; see lowtide.updates
    stale: int = 0  # requested, of blocks that are not valid
    residue: int = 0  # what updates were found not to write
    version: int = 0  # of the content that was last committed or declared valid
    updates: int = 0  # commits and declarations
    repeated_calls: int = 0  # that found done what they ask for


_FRESHNESS = ("valid", "stale", "syncing")


def _tag(tag: Optional[str]) -> Optional[bytes]:
    if tag is not None and not isinstance(tag, str):
        raise TypeError(f"a tag is a str, not {tag!r}")
    return None if tag is None else tag.encode()


def _transition(function: str, tag: Optional[str]) -> Report:
    report = library.CReport(struct_size=ctypes.sizeof(library.CReport))
    library.call(function, _tag(tag), ctypes.byref(report))
    free = {each.device: (each.free_before, each.free_after) for each in report.devices[:report.device_count]}
    return Report(report.bytes_parked, report.bytes_discarded, report.bytes_kept, report.blocks, report.seconds, free)


def pause(tag: Optional[str] = None) -> Report:
    """Parks all blocks of `tag` (None: of all tags) on all devices, as one transaction; those that are parked are skipped.

    Waits for all work of this process on the devices. Until the resume nothing may touch the tag's memory.
    Raises HostBudgetError, RefusedError (a stream capture is under way), DriverError.
    """
    return _transition("lowtide_pause", tag)


def resume(tag: Optional[str] = None) -> Report:
    """Brings all blocks of `tag` back to their addresses: all of them or none.

    Raises DeviceMemoryError, with the bytes needed and free, after waiting for `device.wait`; the same call works once
    there is room. Raises MovedError where addresses are not stable, one could not be had back and nobody follows the tag
    (on_relocate); nothing changed, and the same call works once the address is free.
    """
    return _transition("lowtide_resume", tag)


_followers: Dict[str, Any] = {}


def on_relocate(tag: str, moved: Optional[Callable[[int, int, int], None]]) -> None:
    """`moved(from, to, bytes)` is called, before a resume returns, for each block of `tag` that came back at another address,
    by the thread that resumes. None: nobody follows the tag any more. An exception of `moved` is printed, and not raised.
    """
    callback = library.RelocateCallback()
    if moved is not None:
        callback = library.RelocateCallback(lambda old, new, size, _: moved(old, new, size))
    library.call("lowtide_on_relocate", tag.encode(), callback, None)
    _followers[tag] = callback  # C keeps no reference; the old one goes when no call of it can begin


def info(tag: str, device: int = -1) -> TagInfo:
    """The memory of `tag` on a device, or on all (-1). Raises InvalidError for a tag that nothing carries."""
    found = library.CTagInfo(struct_size=ctypes.sizeof(library.CTagInfo))
    library.call("lowtide_get_tag_info", tag.encode(), device, ctypes.byref(found))
    return TagInfo(found.blocks, found.bytes_resident, found.bytes_parked, found.bytes_backup, found.bytes_slack,
                   bool(found.addresses_are_stable), _FRESHNESS[found.freshness], found.bytes_stale, found.bytes_residue,
                   found.version, found.updates, found.repeated_calls)


def set(key: str, value: Any) -> None:  # pylint: disable=redefined-builtin
    """Sets a key of the configuration: set("tag.kv_cache.pause", "discard"). Raises ConfigError, which names it."""
    library.call("lowtide_set", key.encode(), str(value).encode())


def phase(name: str) -> None:
    """The process is in this phase until the next call; `[[match]]` rules can ask for it. If the configuration declares it
    (`[[phase]]`), its steps of this process are carried out. Raises BusyError where an update has to come first: commit it,
    and call again. Raises InvalidError for a bad name."""
    library.call("lowtide_phase", name.encode())


def trim() -> int:
    """Gives back the host memory that is kept for the next pause. Returns how many bytes went back."""
    given = ctypes.c_uint64()
    library.call("lowtide_trim", ctypes.byref(given))
    return given.value


@contextlib.contextmanager
def scope(tag: str) -> Iterator[None]:
    """What the calling thread allocates from the driver meanwhile carries `tag`. Scopes nest.

    PyTorch hands out memory that it has without asking the driver: use lowtide.region there.
    """
    library.call("lowtide_scope_begin", tag.encode())
    try:
        yield
    finally:
        library.call("lowtide_scope_end")


@contextlib.contextmanager
def process_scope(tag: str) -> Iterator[None]:
    """What all threads that have no scope of their own allocate from the driver meanwhile carries `tag`."""
    library.call("lowtide_process_scope_begin", tag.encode())
    try:
        yield
    finally:
        library.call("lowtide_process_scope_end", tag.encode())
