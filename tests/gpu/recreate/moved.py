# SPDX-License-Identifier: Apache-2.0
"""Addresses that somebody else takes while their memory is parked: refused, followed, and of no matter to storages.

Where the platform keeps addresses, they are free only while another tag is resumed: a thread takes them then."""
import ctypes
import threading

from ground import DEVICE, MIB, Blocks, in_mib, lowtide, main, require, torch
from other_process import Driver

COUNT, SIZE = 16, 32 * MIB
ROUNDS = 40


class Occupier(threading.Thread):
    """Asks for every second address of `blocks` until it is stopped, and keeps those that it gets."""

    def __init__(self, driver, blocks):
        super().__init__(daemon=True)
        self.driver_ = driver
        self.wanted_ = blocks.addresses[::2]
        self.taken = []
        self.stopped_ = threading.Event()

    def run(self):
        reserve = self.driver_.library_.cuMemAddressReserve
        got, size, alignment, flags = ctypes.c_uint64(), ctypes.c_size_t(SIZE), ctypes.c_size_t(0), ctypes.c_uint64(0)
        while not self.stopped_.is_set():
            for address in set(self.wanted_) - set(self.taken):
                if reserve(ctypes.byref(got), size, alignment, ctypes.c_uint64(address), flags) != 0:
                    continue
                if got.value == address:
                    self.taken.append(address)
                else:
                    self.free_(got.value)

    def free_(self, address):
        self.driver_.must("cuMemAddressFree", ctypes.c_uint64(address), ctypes.c_size_t(SIZE))

    def stop(self):
        self.stopped_.set()
        self.join()

    def leave(self):
        while self.taken:
            self.free_(self.taken.pop())


def occupied(driver, weights):
    """Parks the tag "weights", with some of its addresses taken. Who has them."""
    others = Blocks(driver, "other", 4, 256 * MIB)
    for _ in range(ROUNDS):
        lowtide.pause("other")
        lowtide.pause("weights")
        occupier = Occupier(driver, weights)
        occupier.start()
        try:
            lowtide.resume("other")
        finally:
            occupier.stop()
        if occupier.taken:
            others.check("the tag that was resumed meanwhile")
            return occupier
        lowtide.resume()
        weights.check("nobody took anything")
        others.check("nobody took anything")
    raise AssertionError(f"no address could be taken in {ROUNDS} rounds")


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
