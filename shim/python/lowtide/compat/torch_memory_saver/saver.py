# SPDX-License-Identifier: Apache-2.0
"""The object that torch_memory_saver's users call."""
import contextlib
import ctypes
import dataclasses
import os
from typing import Any, Iterator, Optional

from ... import pools
from ...errors import InvalidError
from .flags import Flags, flags, saver_library, transition

_MODES = ("preload", "torch")


class TorchMemorySaver:
    """Memory that is given up by a pause and comes back at its addresses by a resume."""

    @contextlib.contextmanager
    def region(self, tag: str = "default", enable_cpu_backup: bool = False, enable_disk_backup: bool = False,
               cpu_backup_backend: Optional[str] = None) -> Iterator[None]:
        """What the calling thread allocates meanwhile through PyTorch is paused and resumed with `tag`.

        Its bytes are kept in host memory, on disk, or dropped by a pause. One tag may have memory of all three kinds.
        `cpu_backup_backend` is "pinned" or "mmap", which mean the same here. Raises InvalidError for a contradiction.
        """
        wanted = _wanted(tag, enable_cpu_backup, enable_disk_backup, cpu_backup_backend)
        name = ("torch_memory_saver", tag, enable_cpu_backup, enable_disk_backup)
        with flags(wanted), pools.allocating_to(name):
            yield

    @contextlib.contextmanager
    def cuda_graph(self, cuda_graph: Any, pool: Any = None, stream: Any = None, capture_error_mode: str = "global",
                   tag: str = "default", enable_cpu_backup: bool = False,
                   cpu_backup_backend: Optional[str] = None) -> Iterator[None]:
        """torch.cuda.graph, whose memory is paused and resumed with `tag`.

        What a graph keeps in its memory from one replay to the next is lost by a pause without a backup. Raises
        UnsupportedError in a process that is not preloaded, for a pool that is not Lowtide's.
        """
        import torch
        wanted = _wanted(tag, enable_cpu_backup, False, cpu_backup_backend)
        own = pools.pool_of_graph(cuda_graph, pool)
        with pools.no_pool_goes(), torch.cuda.graph(cuda_graph, pool=own, stream=stream, capture_error_mode=capture_error_mode), flags(wanted):
            yield

    @contextlib.contextmanager
    def disable(self, dispose_mem_pool_after_use: bool = True) -> Iterator[None]:
        """What is allocated meanwhile is no region's. Its memory goes back to the device when its tensors are gone and no region
        is entered. Raises InvalidError outside of a region.
        """
        if not dispose_mem_pool_after_use:
            raise InvalidError("disable() gives its pool back: dispose_mem_pool_after_use=False is not offered")
        now = Flags.current()
        if not now.interesting:
            raise InvalidError("disable() is for the inside of a region, or a process started with TMS_INIT_ENABLE=1")
        with flags(dataclasses.replace(now, interesting=False)), pools.allocating_outside():
            yield

    def pause(self, tag: Optional[str] = None) -> None:
        """Takes the memory of `tag` (None: of all regions) off the devices. What is paused already stays so.

        Waits for the work of this process on the devices. Raises lowtide's errors; then nothing has changed.
        """
        transition("tms_pause", tag)

    def resume(self, tag: Optional[str] = None) -> None:
        """Brings the memory of `tag` (None: of all regions) back: all of it or nothing.

        Waits for room up to `device.wait` (20 s unless it was set). Raises DeviceMemoryError with the bytes needed and free;
        until a later resume succeeds, work on the device is refused with out-of-memory.
        """
        transition("tms_resume", tag)

    @property
    def enabled(self) -> bool:
        """Always."""
        return True

    def _set_hook_mode(self, mode: str) -> None:
        if mode not in _MODES:
            raise InvalidError(f"hook_mode is one of {', '.join(_MODES)}, not {mode}")

    hook_mode = property(fset=_set_hook_mode, doc="Either mode is served, and needs not be said.")

    def _set_memory_margin_bytes(self, value: int) -> None:
        saver_library().set_memory_margin_bytes(value)

    memory_margin_bytes = property(fset=_set_memory_margin_bytes,
                                   doc="Bytes of device memory that allocations in regions leave free.")

    @property
    def retain_cpu_backup(self) -> bool:
        """Whether get_cpu_backup also answers for active memory, with what its last pause copied. Copies are kept for the next
        pause in any case, until this is set to False (host.retain)."""
        return saver_library().tms_get_retain_cpu_backup()

    @retain_cpu_backup.setter
    def retain_cpu_backup(self, value: bool) -> None:
        saver_library().tms_set_retain_cpu_backup(value)

    def get_cpu_backup(self, x: Any, zero_copy: bool = False) -> Any:
        """The copied bytes of a contiguous tensor, as a CPU tensor of its type and shape; None if there are none: it was
        dropped or lies on disk, or is active and retain_cpu_backup is not set.

        With `zero_copy` it lies on the backup, and is good until the next pause or resume; not to be written to.
        """
        import torch
        if not x.is_cuda or not x.is_contiguous():
            raise InvalidError("get_cpu_backup wants a contiguous tensor on a device")
        size = x.numel() * x.element_size()
        address = saver_library().tms_get_cpu_backup_pointer(x.data_ptr(), size)
        if not address:
            return None
        there = torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=x.dtype).view(x.shape)
        return there if zero_copy else there.clone()

    def set_disk_backup_dir(self, path: str) -> None:
        """The folder of disk backups, made if it is not there."""
        os.makedirs(path, exist_ok=True)
        saver_library().tms_set_disk_backup_dir(os.path.abspath(path).encode())


def _wanted(tag: str, cpu_backup: bool, disk_backup: bool, cpu_backend: Optional[str]) -> Flags:
    if cpu_backup and disk_backup:
        raise InvalidError("a region keeps its bytes in host memory or on disk, not both")
    if cpu_backend is not None and not cpu_backup:
        raise InvalidError("cpu_backup_backend says nothing without enable_cpu_backup")
    if cpu_backend not in (None, "pinned", "mmap"):
        raise InvalidError(f"cpu_backup_backend is pinned or mmap, not {cpu_backend}")
    return Flags(True, tag, cpu_backup, cpu_backend or Flags.current().cpu_backend, disk_backup)
