#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program on HIP's runtime that knows nothing of Lowtide: blocks from hipMalloc, read and written anew in a loop."""
import ctypes
import hashlib
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "victims"))
import rundir  # noqa: E402

TO_DEVICE, TO_HOST = 1, 2  # hipMemcpyKind
PATTERN = 1 << 16


class Runtime:
    def __init__(self):
        self.library_ = ctypes.CDLL(os.environ["RECREATE_HIP"])

    def must(self, name, *arguments):
        status = getattr(self.library_, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} failed with {status}")

    def allocate(self, size):
        address = ctypes.c_void_p()
        self.must("hipMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        return address

    def write(self, address, content):
        self.must("hipMemcpy", address, content, ctypes.c_size_t(len(content)), TO_DEVICE)

    def read(self, address, size):
        content = ctypes.create_string_buffer(size)
        self.must("hipMemcpy", content, address, ctypes.c_size_t(size), TO_HOST)
        return content.raw


def content(block, version, size):
    return random.Random(f"{block} {version}").randbytes(PATTERN) * (size // PATTERN)


def main():
    options = rundir.arguments(gib=1, blocks=32)
    size = int(options.gib * (1 << 30)) // options.blocks // PATTERN * PATTERN
    runtime = Runtime()
    blocks = [runtime.allocate(size) for _ in range(options.blocks)]
    versions = [0] * len(blocks)
    for number, address in enumerate(blocks):
        runtime.write(address, content(number, 0, size))
    folder, mismatches = rundir.RunFolder(options), 0
    for step in folder.loop():
        number = step % len(blocks)
        mismatches += runtime.read(blocks[number], size) != content(number, versions[number], size)
        versions[number] = step + 1
        runtime.write(blocks[number], content(number, step + 1, size))
    digests = {f"block {number}": hashlib.sha256(runtime.read(address, size)).hexdigest()
               for number, address in enumerate(blocks)}
    for address in blocks:
        runtime.must("hipFree", address)
    folder.finish(digests, {"mismatches_seen_in_the_loop": mismatches}, {})


if __name__ == "__main__":
    main()
