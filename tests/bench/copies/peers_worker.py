# SPDX-License-Identifier: Apache-2.0
"""peers_worker.py ENGINE: the commands of bench_copies through PyTorch, for what others do.

hello, alloc, tensors, fill, check, pause, resume. ENGINE:
lowtide            a scope of the C API (tensors only)
tms, tms-retained  torch_memory_saver's region(), preloaded; with its host copies retained
vllm               vLLM's method: a handle a block, and at a pause one pinned tensor and one synchronous copy a block
A tag that is kv_cache is discarded; any other is backed up."""

import contextlib
import ctypes
import json
import os
import sys
import time
import traceback

import torch

DEVICE = torch.device("cuda:0")
LEAST_OWN_BLOCK = 10 << 20  # PyTorch asks the driver for each tensor of this size
DISCARDED = "kv_cache"


def view_of(address, size):
    """A tensor over memory that PyTorch did not allocate."""

    class Memory:
        __cuda_array_interface__ = {
            "shape": (size // 8,),
            "typestr": "<i8",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }

    try:
        tensor = torch.as_tensor(Memory(), device=DEVICE)
    except Exception:  # PyTorch reads this interface by NumPy
        storage = torch._C._construct_storage_from_data_pointer(address, DEVICE, size)
        tensor = torch.empty(0, dtype=torch.int64, device=DEVICE).set_(storage, 0, (size // 8,), (1,))
    if tensor.data_ptr() != address:
        raise RuntimeError("PyTorch copied the memory instead of viewing it")
    return tensor


class Lowtide:
    def __init__(self):
        self.library_ = ctypes.CDLL(os.environ["BENCH_LOWTIDE"])
        self.library_.lowtide_last_error.restype = ctypes.c_char_p
        self.must_(self.library_.lowtide_set(b"tag.lora.pause", b"offload"))

    def must_(self, result):
        if result != 0:
            raise RuntimeError(f"lowtide: {result}: {self.library_.lowtide_last_error().decode()}")

    @contextlib.contextmanager
    def scope(self, tag):
        self.must_(self.library_.lowtide_scope_begin(tag.encode()))
        try:
            yield
        finally:
            self.must_(self.library_.lowtide_scope_end())

    def pause(self, tag):
        self.must_(self.library_.lowtide_pause(tag.encode(), None))

    def resume(self, tag):
        self.must_(self.library_.lowtide_resume(tag.encode(), None))

    def parked(self, tag):
        info = (ctypes.c_uint64 * 6)(48)
        self.must_(self.library_.lowtide_get_tag_info(tag.encode(), ctypes.c_int(-1), info))
        return info[3]


class Tms:
    def __init__(self, retained):
        from torch_memory_saver import torch_memory_saver

        self.saver_ = torch_memory_saver
        self.saver_.hook_mode = "preload"
        self.saver_.retain_cpu_backup = retained
        self.raw_ = ctypes.CDLL(os.environ["LD_PRELOAD"])  # its cudaMalloc, for blocks that PyTorch would join
        self.raw_.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]

    def scope(self, tag):
        return self.saver_.region(tag=tag, enable_cpu_backup=tag != DISCARDED)

    def blocks(self, tag, count, size):
        with self.scope(tag):
            if size >= LEAST_OWN_BLOCK:
                return [torch.empty(size // 8, dtype=torch.int64, device=DEVICE) for _ in range(count)]
            addresses = []
            for _ in range(count):
                address = ctypes.c_void_p()
                result = self.raw_.cudaMalloc(ctypes.byref(address), size)
                if result != 0:
                    raise RuntimeError(f"cudaMalloc: {result}")
                addresses.append(address.value)
        return [view_of(address, size) for address in addresses]

    def pause(self, tag):
        self.saver_.pause(tag)

    def resume(self, tag):
        self.saver_.resume(tag)


class Properties(ctypes.Structure):
    """CUmemAllocationProp of exportable device memory."""

    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("device", ctypes.c_int),
                ("metadata", ctypes.c_void_p), ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 4)]  # fmt: skip


class Access(ctypes.Structure):
    _fields_ = [("place", ctypes.c_int), ("device", ctypes.c_int), ("flags", ctypes.c_int)]


class Vllm:
    def __init__(self):
        self.driver_ = ctypes.CDLL("libcuda.so.1")
        self.properties_ = Properties(type=1, handles=1, place=1, device=0)
        rdma = ctypes.c_int()
        self.must_("cuDeviceGetAttribute", ctypes.byref(rdma), ctypes.c_int(110), ctypes.c_int(0))
        self.properties_.rdma = 1 if rdma.value else 0
        self.blocks_ = []  # [address, size, handle, the copy on the host]

    def must_(self, name, *arguments):
        result = getattr(self.driver_, name)(*arguments)
        if result != 0:
            raise RuntimeError(f"{name}: {result}")

    def map_(self, address, size):
        handle = ctypes.c_uint64()
        where, bytes_ = ctypes.c_uint64(address), ctypes.c_size_t(size)
        self.must_("cuMemCreate", ctypes.byref(handle), bytes_, ctypes.byref(self.properties_), ctypes.c_uint64(0))
        self.must_("cuMemMap", where, bytes_, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        access = Access(1, 0, 3)
        self.must_("cuMemSetAccess", where, bytes_, ctypes.byref(access), ctypes.c_size_t(1))
        return handle

    def blocks(self, _tag, count, size):
        views = []
        zero = ctypes.c_uint64(0)
        for _ in range(count):
            address, bytes_ = ctypes.c_uint64(), ctypes.c_size_t(size)
            self.must_("cuMemAddressReserve", ctypes.byref(address), bytes_, ctypes.c_size_t(0), zero, zero)
            self.blocks_.append([address.value, size, self.map_(address.value, size), None])
            views.append(view_of(address.value, size))
        return views

    def pause(self, _tag):
        for block in self.blocks_:
            address, size, handle, _ = block
            copy = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=True)
            where, bytes_ = ctypes.c_uint64(address), ctypes.c_size_t(size)
            self.must_("cuMemcpyDtoH_v2", ctypes.c_void_p(copy.data_ptr()), where, bytes_)
            block[3] = copy
            self.must_("cuMemUnmap", where, bytes_)
            self.must_("cuMemRelease", handle)

    def resume(self, _tag):
        for block in self.blocks_:
            address, size, _, copy = block
            block[2] = self.map_(address, size)
            where, bytes_ = ctypes.c_uint64(address), ctypes.c_size_t(size)
            self.must_("cuMemcpyHtoD_v2", where, ctypes.c_void_p(copy.data_ptr()), bytes_)
            block[3] = None


class Worker:
    def __init__(self, engine):
        self.words_ = torch.zeros(1, dtype=torch.int64, device=DEVICE)  # makes the context current
        engines = {"lowtide": Lowtide, "vllm": Vllm, "tms": lambda: Tms(False), "tms-retained": lambda: Tms(True)}
        self.engine_ = engines[engine]()
        self.name_ = engine
        self.tensors_ = []
        self.sums_ = None

    def hello(self):
        return {"device": torch.cuda.get_device_name(0), "pid": os.getpid(), "torch": torch.__version__}

    def prepare_(self):
        """Odd random weights for the sums of the largest tensor, outside any scope."""
        most = max(tensor.numel() for tensor in self.tensors_)
        self.words_ = torch.empty(most, dtype=torch.int64, device=DEVICE).random_(-(1 << 62), 1 << 62).bitwise_or_(1)
        torch.cuda.synchronize()

    def alloc(self, tag, count, size):
        self.tensors_ += self.engine_.blocks(tag, int(count), int(size))
        self.prepare_()
        return {"blocks": len(self.tensors_)}

    def tensors(self, tag, count, total):
        """Pairs of tensors as a rank-decomposed layer has them, of about 256 and 448 KiB for the sizes of the table."""
        each = int(total) // int(count)
        small = each * 256 // 352 // 8192 * 1024
        sizes = (small, each // 8 * 2 - small)
        with self.engine_.scope(tag):
            for i in range(int(count)):
                self.tensors_.append(torch.empty(sizes[i % 2], dtype=torch.int64, device=DEVICE))
        self.prepare_()
        return {"bytes": sum(tensor.numel() * 8 for tensor in self.tensors_)}

    def sums_now_(self):
        sums = [(tensor * self.words_[: tensor.numel()]).sum() for tensor in self.tensors_]
        return torch.stack(sums).cpu()

    def fill(self, seed):
        torch.manual_seed(int(seed))
        for tensor in self.tensors_:
            tensor.random_(-(1 << 62), 1 << 62)
        self.sums_ = self.sums_now_()
        return {}

    def check(self):
        wrong = int((self.sums_now_() != self.sums_).sum())
        if wrong:
            raise RuntimeError(f"{wrong} of {len(self.tensors_)} tensors hold other bytes")
        return {"blocks": len(self.tensors_)}

    def timed_(self, function, tag):
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        function(tag)
        return {"ms": (time.perf_counter_ns() - start) * 1e-6}

    def pause(self, tag):
        answer = self.timed_(self.engine_.pause, tag)
        if self.name_ == "lowtide":
            answer["bytes"] = self.engine_.parked(tag)
        return answer

    def resume(self, tag):
        return self.timed_(self.engine_.resume, tag)


def main():
    # Only answers go to the real output: libraries may print.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = None
    for line in sys.stdin:
        command, *words = line.split()
        try:
            if worker is None:
                worker = Worker(sys.argv[1])
            if command.endswith("_"):
                raise ValueError(f"there is no command {command}")
            answer = getattr(worker, command)(*words)
        except Exception as failed:  # the row fails, the next command may not
            traceback.print_exc()
            answer = {"error": f"{command}: {type(failed).__name__}: {failed}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    # What teardown does to a peer is not measured here.
    os._exit(0)


if __name__ == "__main__":
    main()
