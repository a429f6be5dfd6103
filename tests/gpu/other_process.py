# SPDX-License-Identifier: Apache-2.0
"""A process of its own beside the one under test: says how much device memory is free, and takes and gives back some.

Commands on stdin, one a line, each answered by one line of JSON:
free          {"free": bytes, "by": "NVML" or "cuMemGetInfo", "name": ..., "driver": ...}
fill BYTES    allocates and writes that many bytes: {"filled": bytes} or {"error": text}
release       gives back what fill took: {"released": bytes}
"""

import ctypes
import json
import sys


class Memory(ctypes.Structure):  # nvmlMemory_t
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class Device:
    """Device 0, through libcuda.so.1 only and without a context, which would take memory."""

    def __init__(self):
        self.library_ = ctypes.CDLL("libcuda.so.1")
        self.device = ctypes.c_int()
        self.must("cuInit", 0)
        self.must("cuDeviceGet", ctypes.byref(self.device), 0)

    def must(self, name, *arguments):
        status = getattr(self.library_, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed with {status}")

    def uuid(self):
        raw = (ctypes.c_ubyte * 16)()
        self.must("cuDeviceGetUuid_v2", raw, self.device)
        text = bytes(raw).hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def name(self):
        text = ctypes.create_string_buffer(128)
        self.must("cuDeviceGetName", text, 128, self.device)
        return text.value.decode()


class Driver(Device):
    """A context on device 0."""

    def __init__(self):
        super().__init__()
        self.taken_ = []
        context = ctypes.c_void_p()
        self.must("cuDevicePrimaryCtxRetain", ctypes.byref(context), self.device)
        self.must("cuCtxSetCurrent", context)

    def free(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.must("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size):
        address = ctypes.c_uint64()
        self.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def give_back(self, address):
        self.must("cuMemFree_v2", ctypes.c_uint64(address))

    def write(self, address, content):
        self.must("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(len(content)))

    def read(self, address, size):
        content = ctypes.create_string_buffer(size)
        self.must("cuMemcpyDtoH_v2", content, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return content.raw

    def set(self, address, size, word):
        """A word of four bytes, again and again."""
        self.must("cuMemsetD32_v2", ctypes.c_uint64(address), ctypes.c_uint(word), ctypes.c_size_t(size // 4))
        self.must("cuCtxSynchronize")

    def fill(self, size):
        address = self.allocate(size)
        self.taken_.append((address, size))
        self.must("cuMemsetD8_v2", ctypes.c_uint64(address), ctypes.c_ubyte(0xA5), ctypes.c_size_t(size))
        self.must("cuCtxSynchronize")
        return size

    def release(self):
        released = sum(size for _, size in self.taken_)
        while self.taken_:
            self.give_back(self.taken_.pop()[0])
        return released


class Nvml:
    def __init__(self, uuid):
        self.library_ = ctypes.CDLL("libnvidia-ml.so.1")
        self.device_ = ctypes.c_void_p()
        self.must("nvmlInit_v2")
        self.must("nvmlDeviceGetHandleByUUID", uuid.encode(), ctypes.byref(self.device_))
        self.free()

    def must(self, name, *arguments):
        status = getattr(self.library_, name)(*arguments)
        if status != 0:
            raise OSError(f"{name} failed with {status}")

    def free(self):
        memory = Memory()
        self.must("nvmlDeviceGetMemoryInfo", self.device_, ctypes.byref(memory))
        return memory.free

    def driver_version(self):
        text = ctypes.create_string_buffer(80)
        self.must("nvmlSystemGetDriverVersion", text, 80)
        return text.value.decode()


def answer(words, driver, nvml):
    if words[0] == "free":
        return {
            "free": nvml.free() if nvml else driver.free(),
            "by": "NVML" if nvml else "cuMemGetInfo",
            "name": driver.name(),
            "driver": nvml.driver_version() if nvml else "unknown",
        }
    if words[0] == "fill":
        return {"filled": driver.fill(int(words[1]))}
    if words[0] == "release":
        return {"released": driver.release()}
    return {"error": f"unknown command {words[0]}"}


def main():
    driver = Driver()
    try:
        nvml = Nvml(driver.uuid())
    except OSError:
        nvml = None
    for line in sys.stdin:
        try:
            reply = answer(line.split(), driver, nvml)
        except (RuntimeError, OSError) as error:
            reply = {"error": str(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
