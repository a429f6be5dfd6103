# SPDX-License-Identifier: Apache-2.0
"""Many cycles, while other memory of the process comes and goes and some of it stays: every byte right, no growth."""
import ctypes
import os
import random
import statistics

from ground import DEVICE, MIB, lowtide, main, require, torch
from other_process import Driver

CYCLES = int(os.environ["RECREATE_CYCLES"])
EQUAL_POINTS = 50  # cycles from one to the next
MOST_OCCUPIERS = 40
DRIFT = 32 * MIB  # what is free at a point depends on how the blocks that live then lie
HOST_DRIFT = 64 * MIB


class Memory:
    """Device memory behind a raw pointer, as a tensor sees it."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {
            "shape": (size // 8,), "typestr": "<i8", "data": (address, False), "version": 2}


def view_of(address, size):
    return torch.as_tensor(Memory(address, size), device=DEVICE)


def checksum(tensor):
    """Of every byte and its place, made on the device."""
    places = torch.arange(1, 2 * tensor.numel(), 2, device=tensor.device)
    return int((tensor * places).sum())


class Held:
    """The tag under test: tensors of PyTorch's, and blocks from the driver."""

    def __init__(self, driver, generator):
        self.random_ = generator
        with lowtide.region("weights"):
            self.tensors = [self.tensor_(generator.randint(1, 40)) for _ in range(24)]
        with lowtide.scope("weights"):
            for _ in range(8):
                size = generator.randint(1, 16) * 2 * MIB
                address = ctypes.c_uint64()
                driver.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
                self.tensors.append(view_of(address.value, size))
        self.sums = [0] * len(self.tensors)
        for number in range(len(self.tensors)):
            self.rewrite(number)

    @staticmethod
    def tensor_(mib):
        return torch.empty(mib * MIB // 8, dtype=torch.int64, device=DEVICE)

    def rewrite(self, number):
        self.tensors[number].random_(-(1 << 62), 1 << 62)
        self.sums[number] = checksum(self.tensors[number])

    def rewrite_one(self):
        self.rewrite(self.random_.randrange(len(self.tensors)))

    def check(self, cycle):
        wrong = [number for number, tensor in enumerate(self.tensors) if checksum(tensor) != self.sums[number]]
        require(not wrong, f"cycle {cycle}: tensors {wrong} hold other bytes")


class Occupiers:
    """Memory without a tag and of another tag, through PyTorch and from the driver."""

    def __init__(self, driver, generator):
        self.driver_ = driver
        self.random_ = generator
        self.alive = []

    def come(self, most):
        for _ in range(self.random_.randint(0, min(most, MOST_OCCUPIERS - len(self.alive)))):
            size = self.random_.randint(1, 64) * MIB // self.random_.choice((1, 1, 2, 64))
            if self.random_.random() < 0.5:
                self.alive.append(torch.empty(size, dtype=torch.uint8, device=DEVICE))
                continue
            address = ctypes.c_uint64()
            tag = self.random_.choice((None, "other"))
            if tag:
                lowtide.library.call("lowtide_scope_begin", tag.encode())
            self.driver_.must("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            if tag:
                lowtide.library.call("lowtide_scope_end")
            self.alive.append(address)

    def go(self, share):
        self.random_.shuffle(self.alive)
        for _ in range(int(len(self.alive) * share)):
            gone = self.alive.pop()
            if isinstance(gone, ctypes.c_uint64):
                self.driver_.must("cuMemFree_v2", gone)
        if self.random_.random() < 0.5 or share == 1:
            torch.cuda.empty_cache()


def resources():
    torch.cuda.synchronize()
    with open("/proc/self/statm", encoding="utf-8") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return torch.cuda.mem_get_info()[0], resident, len(os.listdir("/proc/self/fd"))


def resume_all(occupiers):
    """Whether every address was there at the first try."""
    try:
        lowtide.resume()
        return True
    except lowtide.MovedError:
        occupiers.go(1)
        lowtide.resume()
        return False


def cycles():
    generator = random.Random(4711)
    driver = Driver()
    held, occupiers = Held(driver, generator), Occupiers(driver, generator)
    lowtide.set("tag.other.pause", "discard")
    stable, points = 0, []
    for cycle in range(CYCLES):
        occupiers.come(6)
        lowtide.pause("weights" if generator.random() < 0.7 else None)
        occupiers.go(generator.random())
        occupiers.come(6)
        stable += resume_all(occupiers)
        held.check(cycle)
        held.rewrite_one()
        if (cycle + 1) % EQUAL_POINTS == 0 or cycle == CYCLES - 1:
            occupiers.go(1)
            points.append(resources())
    free, host, descriptors = zip(*points)
    half = (len(free) + 1) // 2
    first, last = statistics.median(free[:half]), statistics.median(free[-half:])
    require(abs(first - last) <= DRIFT, f"free device memory drifts: {free}")
    require(host[-1] <= host[0] + HOST_DRIFT, f"host memory grows: {host}")
    require(descriptors[-1] <= descriptors[0], f"open descriptors grow: {descriptors}")
    change = f"device {(first - last) / MIB:+.0f} MiB, host {(host[-1] - host[0]) // MIB:+} MiB"
    info = lowtide.info("weights")
    return (f"{CYCLES} cycles of {info.resident // MIB} MiB in {info.blocks} blocks, "
            f"every address came back in {stable} ({stable / CYCLES:.1%}); {change}, "
            f"descriptors {descriptors[0]} to {descriptors[-1]}")


if __name__ == "__main__":
    main(globals())
