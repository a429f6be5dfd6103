# SPDX-License-Identifier: Apache-2.0
"""Addresses that somebody else takes while their memory is parked: refused, followed, and of no matter to storages.

A parked block's addresses are held for it. A process that may map no more address space cannot hold them: its limit
is set to nothing for the time of a pause."""
import contextlib
import ctypes
import resource

from ground import DEVICE, MIB, Blocks, in_mib, lowtide, main, require, torch
from other_process import Driver

COUNT, SIZE = 16, 64 * MIB


@contextlib.contextmanager
def no_new_addresses():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class Occupier:
    """Has every second address of `blocks`, which are parked."""

    def __init__(self, driver, blocks):
        self.driver_ = driver
        self.taken = []
        for address in blocks.addresses[::2]:
            got = ctypes.c_uint64()
            driver.must("cuMemAddressReserve", ctypes.byref(got), ctypes.c_size_t(SIZE), ctypes.c_size_t(0),
                        ctypes.c_uint64(address), ctypes.c_uint64(0))
            require(got.value == address, f"{address:#x} is not free: {got.value:#x} came instead")
            self.taken.append(address)

    def leave(self):
        while self.taken:
            self.driver_.must("cuMemAddressFree", ctypes.c_uint64(self.taken.pop()), ctypes.c_size_t(SIZE))


def occupied(driver, weights):
    """Parks the tag "weights", with some of its addresses taken. Who has them."""
    lowtide.pause("weights")  # what a pause maps for itself stays
    lowtide.resume("weights")
    weights.check("nobody took anything")
    with no_new_addresses():
        lowtide.pause("weights")
    return Occupier(driver, weights)


def check_parked(weights, what):
    info = lowtide.info("weights")
    require((info.parked, info.resident) == (weights.bytes, 0), f"{what}: {info}")
    weights.check_backups(what)


def refused_then_retried():
    driver = Driver()
    weights = Blocks(driver, "weights", COUNT, SIZE)
    occupier = occupied(driver, weights)
    taken, free = len(occupier.taken), driver.free()
    for attempt in range(2):
        try:
            lowtide.resume("weights")
        except lowtide.MovedError as error:
            require("on_relocate" in str(error), f"no advice: {error}")
        else:
            raise AssertionError("the resume succeeded although the addresses are taken")
        check_parked(weights, f"attempt {attempt}")
        require(abs(driver.free() - free) < 16 * MIB, f"{free - driver.free()} bytes stayed with the refused resume")
    occupier.leave()
    lowtide.resume("weights")
    weights.check("after the occupier left")
    lowtide.pause()
    lowtide.resume()
    weights.check("one cycle later")
    return f"{taken} of {COUNT} places taken, refused twice, then resumed at its addresses"


def followed():
    driver = Driver()
    weights = Blocks(driver, "weights", COUNT, SIZE)
    occupier = occupied(driver, weights)
    places, moves = set(occupier.taken), {}

    def follow(old, new, size):
        moves[old] = new
        require(size == SIZE, f"a block of {size} bytes")

    lowtide.on_relocate("weights", follow)
    lowtide.resume("weights")
    require(places <= set(moves) <= set(weights.addresses), f"{len(moves)} moves for {len(places)} places")
    require(not any(weights.overlapping(new, SIZE) & places for new in moves.values()), "moved onto the occupier")
    weights.addresses = [moves.get(address, address) for address in weights.addresses]
    weights.check("at the new addresses")
    occupier.leave()
    moves.clear()
    lowtide.pause("weights")
    lowtide.resume("weights")
    weights.addresses = [moves.get(address, address) for address in weights.addresses]
    weights.check("a cycle later")
    before = driver.free()
    weights.free()
    require(driver.free() - before >= weights.bytes, "a moved block is not freed by its new address")
    return f"{len(places)} of {COUNT} places taken; every move was told"


def storages():
    """lowtide.torch.recreate, while others have all the addresses."""
    from lowtide.torch import recreate
    with recreate.region():
        model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(16)]).to(DEVICE)
    batch = torch.rand(64, 2048, device=DEVICE)
    with torch.no_grad():
        expected = model(batch).cpu()
        parked = recreate.Storages(model)
        moved = []
        for _ in range(3):
            places = [each.data_ptr() for each in model.parameters()]
            sizes = [each.nbytes for each in model.parameters()]
            report = parked.pause()
            with recreate.region():
                occupiers = [torch.ones(size // 4, device=DEVICE) for size in sizes]
            moved.append(parked.resume().moved)
            require(moved[-1] == sum(old != each.data_ptr() for old, each in zip(places, model.parameters())),
                    f"{moved[-1]} storages are said to have moved")
            require(torch.equal(model(batch).cpu(), expected), "the outputs differ")
            require(all(bool(each.eq(1).all()) for each in occupiers), "an occupier's bytes were overwritten")
            del occupiers
        require(max(moved) > 0, "nobody took an address")
    return f"{in_mib(report.parked)} in {report.blocks} storages, {moved} moved in 3 cycles"


if __name__ == "__main__":
    main(globals())
