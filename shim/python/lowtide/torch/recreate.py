# SPDX-License-Identifier: Apache-2.0
"""Pausing PyTorch's tensors where addresses cannot be kept: storages are emptied, and later filled again in place.
Tensors, views, parameters and what autograd saved stay valid; the memory behind them lies elsewhere afterwards."""
import dataclasses
import threading
import time
from typing import Any, Dict, List, Optional, Set, Tuple, Union

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import api
from ..errors import DeviceMemoryError, HostBudgetError, InvalidError, RefusedError
from . import holdings, memory, movable
from .holdings import Held, Left

__all__ = ["Left", "Report", "Storages", "region"]

_FILL = {"none": None, "zero": 0, "poison": 0xcd}


@dataclasses.dataclass(frozen=True)
class Report(api.Report):
    """What a pause or a resume did; blocks are storages."""
    moved: int  # resume: storages whose memory is at another address than before
    graphs: int  # captured CUDA graphs that are alive: those that use what moves must be captured again
    left: Tuple[Left, ...]  # what was not paused or resumed, and why


@dataclasses.dataclass(frozen=True)
class _Parked:
    """A storage without memory. Holds it weakly: its tensors may go meanwhile."""
    name: str
    storage: StorageWeakRef
    device: torch.device
    size: int
    address: int
    copy: Optional[List[torch.Tensor]]  # None: dropped
    fill: Optional[int]


_Coming = Tuple[_Parked, torch.UntypedStorage]


class Storages:
    """The storages that tensors, modules and optimizers hold, or lists, tuples, sets and mappings of them.

    A module holds its parameters with their gradients, its buffers and what else lies in its attributes; an optimizer
    its state, and not the parameters. What they hold is looked up anew by each pause. Keep this object while it is
    paused: it has the copies.
    """

    def __init__(self, *objects: Any, device: Union[str, torch.device, None] = None) -> None:
        """`device`: those on "cuda:1", or on all devices of type "cuda"; None: on all devices but the CPU.

        Raises TypeError for an object that is not looked into.
        """
        holdings.check(objects)
        self._objects = objects
        self._device = None if device is None else torch.device(device)
        self._parked: Dict[StorageWeakRef, _Parked] = {}
        self._lock = threading.Lock()

    def pause(self, action: str = "offload", fill: str = "none") -> Report:
        """Copies the storages to host memory ("offload") or drops their content ("discard"), and takes them off the
        device: all of them or none. `fill` ("none", "zero", "poison") is what dropped ones hold after the resume.

        Storages that are paused are skipped. Waits for all work on their devices. Until the resume nothing may touch
        the tensors. Raises HostBudgetError, RefusedError (a stream capture is under way), InvalidError.
        """
        if action not in ("offload", "discard") or fill not in _FILL:
            raise InvalidError(f"not an action and a fill: {action!r}, {fill!r} (offload, discard; none, zero, poison)")
        with self._lock, torch._C.DisableTorchFunctionSubclass():  # a subclass may answer anything
            found, hidden = holdings.held(self._objects, self._is_meant)
            account = _Account({each.storage.device for each in found})
            graphs = memory.captured_graphs(account.devices)
            account.graphs = len(graphs)
            going, left = movable.apart(found, memory.of_graphs(graphs))
            copies = _copies(going, account.devices) if action == "offload" else [None] * len(going)
            for each, copy in zip(going, copies):
                parked = _Parked(each.name, StorageWeakRef(each.storage), each.storage.device, each.storage.nbytes(),
                                 each.address, copy, _FILL[fill])
                self._parked[parked.storage] = parked
                each.storage.resize_(0)
                account.count(parked)
            memory.empty_cache(account.devices)
            return account.report(hidden + left)

    def resume(self) -> Report:
        """Gives the paused storages memory and content again: all of them or none. Storages whose tensors are gone are
        forgotten, and those that were given memory meanwhile are left as they are.

        The memory belongs to the current stream, as that of a new tensor. Raises DeviceMemoryError, with the bytes
        needed and free: the same call works once there is room. Raises RefusedError (a stream capture is under way).
        """
        with self._lock, torch._C.DisableTorchFunctionSubclass():  # a subclass may answer anything
            coming, left = self._wanted()
            account = _Account({parked.device for parked, _ in coming})
            try:
                _allocate(coming)
                for parked, storage in coming:
                    _fill(parked, storage)
                memory.synchronize(account.devices)
            except BaseException:
                _take_back(coming)
                raise
            self._parked.clear()
            for parked, storage in coming:
                account.count(parked, storage.data_ptr() != parked.address)
            if account.moved:
                account.graphs = len(memory.captured_graphs(account.devices))
            return account.report(left)

    def _is_meant(self, device: torch.device) -> bool:
        if self._device is None:
            return device.type != "cpu"
        return device.type == self._device.type and self._device.index in (None, device.index)

    def _wanted(self) -> Tuple[List[_Coming], List[Left]]:
        coming, left = [], []
        for ref, parked in self._parked.items():
            storage = torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
            if storage is not None and storage.nbytes() == 0:
                coming.append((parked, storage))
            elif storage is not None:
                left.append(Left(parked.name, storage.nbytes(), "it was given memory while it was paused"))
        return coming, left


def region(device: Union[str, torch.device] = "cuda") -> Any:
    """What the calling thread allocates on `device` meanwhile shares no memory of PyTorch's with anything else: all of
    it leaves the device at its first pause. After a resume that is so for all storages."""
    return memory.of_its_own(torch.device(device))


class _Account:
    """Of one pause or resume, which it begins: refused during a capture, and after all work on the devices."""

    def __init__(self, devices: Set[torch.device]) -> None:
        if any(device.type == "cuda" for device in devices) and torch.cuda.is_current_stream_capturing():
            raise RefusedError("a stream capture is under way: end it first")
        self.devices = devices
        self.graphs = self.moved = self._parked = self._discarded = self._blocks = 0
        self._start = time.monotonic()
        self._free = memory.free(devices)
        memory.synchronize(devices)

    def count(self, parked: _Parked, moved: bool = False) -> None:
        self._blocks += 1
        self.moved += moved
        if parked.copy is None:
            self._discarded += parked.size
        else:
            self._parked += parked.size

    def report(self, left: List[Left]) -> Report:
        after = memory.free(self.devices)
        free = {index: (before, after[index]) for index, before in self._free.items()}
        return Report(self._parked, self._discarded, sum(each.bytes for each in left), self._blocks,
                      time.monotonic() - self._start, free, self.moved, self.graphs, tuple(left))


def _copies(going: List[Held], devices: Set[torch.device]) -> List[List[torch.Tensor]]:
    """Raises HostBudgetError."""
    sizes = [each.storage.nbytes() for each in going]
    try:
        slabs = memory.on_host(sum(sizes), pinned=any(device.type == "cuda" for device in devices))
    except RuntimeError as error:
        raise HostBudgetError(f"the copies need {sum(sizes)} bytes of host memory, which are not there; nothing has "
                              f"changed ({error})") from error
    copies = list(memory.cut(slabs, sizes))
    for each, copy in zip(going, copies):
        memory.copy_out(each.storage, copy)
    memory.synchronize(devices)
    return copies


def _allocate(coming: List[_Coming]) -> None:
    """Raises DeviceMemoryError."""
    for device in {parked.device for parked, _ in coming}:
        theirs = [each for each in coming if each[0].device == device]
        try:
            with memory.of_its_own(device):
                for parked, storage in theirs:
                    storage.resize_(parked.size)
        except RuntimeError as error:
            if device.type != "cpu" and not isinstance(error, torch.OutOfMemoryError):
                raise
            _take_back(coming)  # so that what it had is counted as free
            needed, free = sum(parked.size for parked, _ in theirs), memory.free({device}).get(device.index, "too few")
            raise DeviceMemoryError(f"the resume needs {needed} bytes on {device}, {free} are free: everything stays "
                                    f"paused, and the same call works once there is room") from error


def _fill(parked: _Parked, storage: torch.UntypedStorage) -> None:
    if parked.copy is not None:
        memory.copy_in(storage, parked.copy)
    elif parked.fill is not None:
        storage.fill_(parked.fill)


def _take_back(coming: List[_Coming]) -> None:
    for _, storage in coming:
        storage.resize_(0)
    memory.empty_cache({parked.device for parked, _ in coming})
