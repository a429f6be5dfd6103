# SPDX-License-Identifier: Apache-2.0
"""What the programs share: blocks behind raw pointers, what another process sees of a pause, and how a row ends."""
import ctypes
import os
import pathlib
import random
import sys
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "drop_in"), str(HERE.parent.parent / "bench" / "copies")]
os.environ.setdefault("DROP_IN_WAY", "module+run")

import torch  # noqa: E402

from support import DEVICE, MIB, finish, in_mib, other_process, require, wait_for_turn  # noqa: E402,F401

import lowtide  # noqa: E402
from lowtide import library  # noqa: E402

GIB = 1 << 30
BUILD = pathlib.Path(os.environ["RECREATE_BUILD"])


def main(cases):
    """Runs the case named on the command line, which returns its numbers."""
    wait_for_turn()
    torch.manual_seed(4711)
    try:
        finish("ok", cases[sys.argv[1]]())
    except Exception:  # pylint: disable=broad-except  a row of the table, whatever it was
        traceback.print_exc()
        sys.exit(1)


def bytes_of_tags(*tags):
    """Requested, resident or parked."""
    found = [lowtide.info(tag) for tag in tags]
    return sum(each.resident + each.parked for each in found)


def expect_unstable(*tags):
    """What a program asks before it captures a graph."""
    for tag in tags:
        require(not lowtide.info(tag).addresses_are_stable, f"the addresses of {tag} are said to be stable")


def pause_for(other, *tags, lend=True):
    """Pauses the tags; their bytes are there for another process, which takes them. The share that it sees."""
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    tagged, before = bytes_of_tags(*tags), other.free()
    for tag in tags:
        lowtide.pause(tag)
    freed = other.free() - before
    require(freed >= 0.99 * tagged, f"another process sees {freed} bytes more, {tagged} were tagged")
    if lend:  # with more than was free before, if the tags have more than the margin
        other.ask(f"fill {max(before + freed - GIB, freed * 9 // 10)}")
        other.ask("release")
    return freed / tagged


def resume(*tags):
    for tag in tags:
        lowtide.resume(tag)


def captured(function):
    """A graph of what the function does, and what it returned."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        answer = function()
    return graph, answer


def replayed(function):
    """What a graph answers that is captured now."""
    graph, answer = captured(function)
    answer.zero_()
    graph.replay()
    return answer.cpu()


class Blocks:
    """Blocks of a tag whose owner knows them by raw pointers, with bytes that can be told apart."""

    def __init__(self, driver, tag, count, size):
        self.driver_ = driver
        self.size = size
        state = library.load()
        state.lowtide_malloc.restype = ctypes.c_void_p
        state.lowtide_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        state.lowtide_free.restype = None
        state.lowtide_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        with lowtide.scope(tag):
            self.addresses = [state.lowtide_malloc(size, 0, None) for _ in range(count)]
        require(all(self.addresses), f"no memory: {state.lowtide_last_error().decode()}")
        generator = random.Random(tag)
        self.contents = [generator.randbytes(4096) * (size // 4096) for _ in self.addresses]
        for address, content in zip(self.addresses, self.contents):
            self.driver_.must("cuMemcpyHtoD_v2", ctypes.c_uint64(address), content, ctypes.c_size_t(size))

    @property
    def bytes(self):
        return self.size * len(self.addresses)

    def check(self, what):
        buffer = ctypes.create_string_buffer(self.size)
        for number, (address, content) in enumerate(zip(self.addresses, self.contents)):
            self.driver_.must("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(self.size))
            require(buffer.raw == content, f"{what}: the bytes of block {number} at {address:#x} differ")

    def check_backups(self, what):
        buffer = ctypes.create_string_buffer(self.size)
        for number, (address, content) in enumerate(zip(self.addresses, self.contents)):
            library.call("lowtide_read_paused", address, buffer, self.size)
            require(buffer.raw == content, f"{what}: the backup of block {number} differs")

    def overlapping(self, address, size):
        """The blocks that a range meets."""
        return {each for each in self.addresses if each < address + size and address < each + self.size}

    def free(self):
        for address in self.addresses:
            library.load().lowtide_free(address, self.size, 0, None)
