# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of a paused region are kept, and reading them there."""
import os

import torch

from support import DEVICE, Held, expect_gone, free_bytes, in_mib, main, require


def cycle_bit_exact(saver, held):
    """Two cycles with other bytes in each. Returns what the first freed."""
    freed = []
    for number in range(2):
        held.rewrite()
        before = free_bytes()
        saver.pause("weights")
        freed.append(expect_gone(before, held))
        saver.resume("weights")
        held.check(f"cycle {number}")
    return f"{in_mib(freed[0])} of {in_mib(held.size)} freed"


def pinned(saver):
    with saver.region("weights", enable_cpu_backup=True, cpu_backup_backend="pinned"):
        held = Held(512)
    return cycle_bit_exact(saver, held)


def mmap(saver):
    with saver.region("weights", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        held = Held(512)
    return cycle_bit_exact(saver, held)


def disk(saver):
    folder = os.path.join(os.environ["DROP_IN_FOLDER"], "disk")
    saver.set_disk_backup_dir(folder)
    require(os.path.isdir(folder), "set_disk_backup_dir did not make its folder")
    with saver.region("weights", enable_disk_backup=True):
        held = Held(256)
    numbers = cycle_bit_exact(saver, held)
    require(not os.listdir(folder), f"the resume left files behind: {os.listdir(folder)}")
    return numbers


def retained(saver):
    """A host copy can be read while its region is paused, and afterwards if it is retained."""
    saver.retain_cpu_backup = False
    require(not saver.retain_cpu_backup, "retain_cpu_backup is not what was set")
    with saver.region("weights", enable_cpu_backup=True):
        held = Held(128)
    require(saver.get_cpu_backup(held.tensor) is None, "there is a host copy before any pause")
    saver.pause("weights")
    require(torch.equal(saver.get_cpu_backup(held.tensor), held.bytes), "the host copy differs")
    saver.resume("weights")
    held.check("after the resume")
    require(saver.get_cpu_backup(held.tensor) is None, "there is a host copy that was not to be retained")

    saver.retain_cpu_backup = True
    require(saver.retain_cpu_backup, "retain_cpu_backup is not what was set")
    for _ in range(2):
        held.rewrite()
        saver.pause("weights")
        require(torch.equal(saver.get_cpu_backup(held.tensor), held.bytes), "the host copy differs while paused")
        saver.resume("weights")
        held.check("after the resume")
        copy = saver.get_cpu_backup(held.tensor)
        require(copy is not None and torch.equal(copy, held.bytes), "the retained host copy differs after the resume")


def read_while_paused(saver):
    """get_cpu_backup of whole tensors, parts and other types; by reference it is the same memory each time."""
    with saver.region("weights", enable_cpu_backup=True):
        held = Held(192)
        halves = torch.randn(1000, 333, device=DEVICE, dtype=torch.bfloat16)
    with saver.region("scratch"):
        dropped = Held(32)
    wanted = halves.cpu()
    saver.pause()
    part = held.tensor[12345:2_000_000]
    require(torch.equal(saver.get_cpu_backup(part), held.bytes[12345:2_000_000]), "a part differs")
    first, second = (saver.get_cpu_backup(held.tensor, zero_copy=True) for _ in range(2))
    require(torch.equal(first, held.bytes), "the host memory by reference differs")
    require(first.data_ptr() == second.data_ptr(), "zero_copy made copies")
    require(saver.get_cpu_backup(held.tensor).data_ptr() != first.data_ptr(), "a copy that is none")
    found = saver.get_cpu_backup(halves)
    require(found.dtype == torch.bfloat16 and torch.equal(found, wanted), "a bfloat16 matrix differs")
    del first, second
    saver.resume()
    held.check("after the resume")
    require(torch.equal(halves.cpu(), wanted), "the bfloat16 matrix differs after the resume")
    dropped.check_usable("what has no backup")


if __name__ == "__main__":
    main(globals())
