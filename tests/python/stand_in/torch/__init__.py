# SPDX-License-Identifier: Apache-2.0
"""As much of PyTorch as Lowtide's package calls, over the real allocator functions: pools, routing, graphs. It refuses what
PyTorch refuses: a pool that is allocated to twice."""
import contextlib
import ctypes
import itertools
import os
import threading
import types
import weakref

__version__ = "0 (a stand-in)"

_routes = []  # (device, pool id, thread or None for all), in the order in which they began
_pools = weakref.WeakValueDictionary()
_count = itertools.count(1)
_lock = threading.Lock()
_blocks = []  # (pool id, device, address, size)
_current = threading.local()


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        self.malloc, self.free = getattr(library, malloc), getattr(library, free)
        self.malloc.restype = ctypes.c_void_p
        self.malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]

    def allocator(self):
        return self


class MemPool:
    def __init__(self, allocator=None):
        with _lock:
            self.id = (0, next(_count))
            _pools[self.id] = self
        self.allocator, self.device = allocator, current_device()

    def __del__(self):
        if _routes:  # PyTorch 2.11 ends the process
            os._exit(134)


def _begin(device, pool, thread):
    with _lock:
        if any(route[1] == pool for route in _routes):
            raise RuntimeError(f"already recording to {pool}")
        if _pools[pool].device != device:
            raise RuntimeError(f"{pool} is of device {_pools[pool].device}")
        _routes.append((device, pool, thread))


def _end(device, pool):
    with _lock:
        _routes[:] = [route for route in _routes if route[:2] != (device, pool)]


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    device = current_device() if device is None else device
    _begin(device, pool.id, threading.get_ident())
    try:
        yield
    finally:
        _end(device, pool.id)


def current_device():
    return getattr(_current, "device", 0)


@contextlib.contextmanager
def on_device(index):
    before, _current.device = current_device(), index
    try:
        yield
    finally:
        _current.device = before


class CUDAGraph:
    pool_id = None

    def pool(self):
        return self.pool_id

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """The graph's own memory is asked of the driver here."""

    def capture_end(self):
        pass


@contextlib.contextmanager
def graph(cuda_graph, pool=None, stream=None, capture_error_mode="global"):
    cuda_graph.pool_id = pool
    _begin(current_device(), pool, threading.get_ident())
    try:
        yield
    finally:
        _end(current_device(), pool)


def active_pool():
    """Of the calling thread: the one that PyTorch would allocate from. The first of several, as older versions do."""
    with _lock:
        for device, pool, thread in _routes:
            if device == current_device() and thread in (None, threading.get_ident()):
                return _pools[pool]
    return None


def allocate(size):
    """The address of new memory of the active pool; None if there is no pool or it has no allocator."""
    pool = active_pool()
    if pool is None or pool.allocator is None:
        return None
    address = pool.allocator.malloc(size, current_device(), None)
    if address:
        _blocks.append((pool.id, pool.device, address, size))
    return address


class Tensor:
    """Bytes, on the device or on the host."""

    def __init__(self, address, size, content=b""):
        self.address, self.size, self.content, self.is_cuda = address, size, content, address is not None

    def untyped_storage(self):
        return types.SimpleNamespace(data_ptr=lambda: self.address, nbytes=lambda: self.size)

    def numel(self):
        return self.size

    def read(self):
        if self.address is None:
            return self.content
        data = ctypes.create_string_buffer(self.size)
        _must(_cuda().cuMemcpyDtoH_v2(data, ctypes.c_uint64(self.address), ctypes.c_size_t(self.size)))
        return data.raw

    def cpu(self):
        return Tensor(None, self.size, self.read())

    def copy_(self, other):
        data = other.read()
        _must(_cuda().cuMemcpyHtoD_v2(ctypes.c_uint64(self.address), data, ctypes.c_size_t(len(data))))


def tensor_of(content, size):
    """A tensor in the active pool that begins with `content`."""
    tensor = Tensor(allocate(size), size)
    tensor.copy_(Tensor(None, size, content.ljust(size, b".")))
    return tensor


def as_tensor(foreign, device):
    address, _ = foreign.__cuda_array_interface__["data"]
    return Tensor(address, foreign.__cuda_array_interface__["shape"][0])


def memory_snapshot():
    return [{"segment_pool_id": pool, "device": device,
             "blocks": [{"state": "active_allocated", "address": address, "size": size}]}
            for pool, device, address, size in _blocks]


def _cuda():
    return ctypes.CDLL("libcuda.so.1")


def _must(result):
    if result != 0:
        raise RuntimeError(f"CUDA error {result}")


cuda = types.SimpleNamespace(is_current_stream_capturing=lambda: False, empty_cache=lambda: None, memory_snapshot=memory_snapshot, MemPool=MemPool, use_mem_pool=use_mem_pool, current_device=current_device, device=on_device,
                             CUDAGraph=CUDAGraph, graph=graph,
                             memory=types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator))
_C = types.SimpleNamespace(_cuda_beginAllocateToPool=lambda device, pool: _begin(device, pool, None),
                           _cuda_endAllocateToPool=_end, _cuda_releasePool=lambda device, pool: None)
