# SPDX-License-Identifier: Apache-2.0
"""Reading and writing what is parked, without bringing it back."""
import ctypes
from typing import Any

from . import library


def read_paused(source: Any, size: int = -1) -> Any:
    """The parked bytes of a tensor, as a CPU tensor of its type and shape; or of `size` bytes at a device address.

    A tensor must be contiguous, and may be part of a larger block. Raises InvalidError if it is resident or was dropped,
    and waits for a pause or resume that is under way.
    """
    if isinstance(source, int):
        if size < 0:
            raise TypeError("read_paused of an address wants a size in bytes")
        buffer = ctypes.create_string_buffer(size)
        library.call("lowtide_read_paused", source, buffer, size)
        return buffer.raw
    if not source.is_contiguous():
        raise ValueError("read_paused wants a contiguous tensor")
    copy = source.new_empty(source.shape, device="cpu")
    library.call("lowtide_read_paused", source.data_ptr(), copy.data_ptr(), source.numel() * source.element_size())
    return copy


def write_paused(target: Any, source: Any) -> None:
    """Writes to the parked bytes of a tensor from a CPU tensor of its type and shape, or from bytes to a device address."""
    if isinstance(target, int):
        library.call("lowtide_write_paused", target, bytes(source), len(source))
        return
    if not target.is_contiguous() or not source.is_contiguous() or source.device.type != "cpu":
        raise ValueError("write_paused wants contiguous tensors, and its source on the CPU")
    if source.dtype != target.dtype or source.shape != target.shape:
        raise ValueError(f"write_paused: {source.dtype} {tuple(source.shape)} is not {target.dtype} {tuple(target.shape)}")
    library.call("lowtide_write_paused", target.data_ptr(), source.data_ptr(), source.numel() * source.element_size())
