# SPDX-License-Identifier: Apache-2.0
"""Tags in every state: mixed, paused twice, allocated in and freed while paused, in crumbs, and up to a margin."""
import gc
import random

import torch

from support import DEVICE, MIB, Held, NotOffered, expect_gone, free_bytes, in_mib, main, may_disable, require


def one_tag_with_and_without_backup(saver):
    with saver.region("mixed", enable_cpu_backup=True):
        kept = Held(64)
    with saver.region("mixed"):
        dropped = Held(96)
    for _ in range(2):
        before = free_bytes()
        saver.pause("mixed")
        expect_gone(before, kept, dropped)
        saver.resume("mixed")
        kept.check("what has a backup")
        dropped.check_usable("what has none")
        kept.check("what has a backup, after the other was written")


def double_calls(saver):
    """What the original ends the process for."""
    with saver.region("weights", enable_cpu_backup=True):
        held = Held(64)
    saver.resume("weights")
    held.check("after a resume that nothing needed")
    before = free_bytes()
    saver.pause("weights")
    saver.pause("weights")
    saver.pause()
    expect_gone(before, held)
    saver.resume("weights")
    saver.resume("weights")
    saver.resume()
    held.check("after three resumes")
    saver.pause("a tag that nothing carries")
    saver.resume("a tag that nothing carries")


def allocated_in_a_paused_tag(saver):
    with saver.region("kv", enable_cpu_backup=True):
        old = Held(64)
    saver.pause("kv")
    before = free_bytes()
    with saver.region("kv", enable_cpu_backup=True):
        new = Held(48)
    require(before - free_bytes() >= new.size, "what is allocated in a paused tag is not resident")
    new.check("allocated while its tag is paused")
    saver.resume("kv")
    old.check("paused before")
    new.check("allocated in between")
    before = free_bytes()
    saver.pause("kv")
    expect_gone(before, old, new)
    saver.resume("kv")
    old.check("the older one, second time")
    new.check("the newer one, second time")


def freed_while_paused(saver):
    with saver.region("kv", enable_cpu_backup=True):
        held = [Held(48) for _ in range(5)]
    saver.pause("kv")
    before = free_bytes()
    del held[1], held[2]
    gc.collect()
    torch.cuda.empty_cache()
    require(free_bytes() >= before - MIB, "a free while paused took memory")
    saver.resume("kv")
    for each in held:
        each.check("what was not freed")
    with saver.region("kv", enable_cpu_backup=True):
        held.append(Held(48))
    saver.pause("kv")
    saver.resume("kv")
    for each in held:
        each.check("after one more cycle")


def disabled(saver):
    """disable() within a region: what is allocated there stays on the device."""
    if not may_disable():
        raise NotOffered("PyTorch 2.11 ends the process when the original's disable() is used within a region")
    with saver.region("kv", enable_cpu_backup=True):
        first = Held(48)
        with saver.disable():
            stays = Held(80)
            before = free_bytes()
            saver.pause("kv")
            expect_gone(before, first)
            stays.check("while the region is paused")
            saver.resume("kv")
            stays.check("after the resume")
            del stays
        second = Held(96)  # larger than what disable() may have left in a pool
    before = free_bytes()
    saver.pause("kv")
    expect_gone(before, first, second)
    saver.resume("kv")
    first.check("allocated before disable()")
    second.check("allocated after disable()")


def many_tiny_tensors(saver):
    """3,000 tensors of 8 bytes to 128 KiB cost about their size, and each comes back."""
    sizes = random.Random(7)
    before = free_bytes()
    tensors = []
    with saver.region("tiny", enable_cpu_backup=True):
        for _ in range(3000):
            tensors.append(torch.empty(sizes.randrange(1, 16384), dtype=torch.int64, device=DEVICE).random_())
    total = sum(tensor.numel() * 8 for tensor in tensors)
    taken = before - free_bytes()
    expected = [tensor.cpu() for tensor in tensors]
    before = free_bytes()
    saver.pause("tiny")
    freed = free_bytes() - before
    require(freed >= total, f"the pause freed {freed} of {total} bytes")
    require(taken <= total * 1.1 + 48 * MIB, f"tensors of {total} bytes took {taken}")
    saver.resume("tiny")
    for tensor, wanted in zip(tensors, expected):
        require(torch.equal(tensor.cpu(), wanted), "a tiny tensor differs")
    return f"{in_mib(total)} in 3000 tensors took {in_mib(taken)}, {in_mib(freed)} freed"


def memory_margin(saver):
    """An allocation in a region that would leave less than the margin is out of memory, and can be repeated."""
    with saver.region("kv"):
        Held(2)
    saver.memory_margin_bytes = free_bytes() - 64 * MIB
    try:
        with saver.region("kv"):
            Held(256)
        refused = False
    except torch.cuda.OutOfMemoryError:
        refused = True
    saver.memory_margin_bytes = 0
    require(refused, "256 MiB were given where the margin left 64")
    with saver.region("kv"):
        held = Held(256)
    saver.pause("kv")
    saver.resume("kv")
    held.check_usable("after the resume")


if __name__ == "__main__":
    main(globals())
