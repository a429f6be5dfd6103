# SPDX-License-Identifier: Apache-2.0
"""Processes that hold one block of one tag, from the driver, and nothing else."""
import random
import time

import lowtide
from other_process import Driver
from player import Player

SAMPLE = 64 << 10
PLACES = 8


class Holder(Player):
    """`pause` and `resume` are Lowtide's."""

    def build(self):
        self.driver = Driver()

    def hold(self, tag, size):
        self.tag, self.size = tag, size
        with lowtide.scope(tag):
            self.address = self.driver.allocate(size)
        self.content = random.Random(tag).randbytes(SAMPLE)
        self.write()

    def places(self):
        return range(0, self.size - SAMPLE + 1, max((self.size - SAMPLE) // PLACES, 1))

    def write(self):
        for place in self.places():
            self.driver.write(self.address + place, self.content)

    def check(self):
        """Of what is there, in places all over it."""
        for place in self.places():
            if self.driver.read(self.address + place, SAMPLE) != self.content:
                raise AssertionError(f"other bytes at {place} of {self.size}")

    def cycles_of(self, times):
        """Microseconds of a pause and a resume, each time."""
        taken = []
        for _ in range(times):
            start = time.monotonic()
            lowtide.pause(self.tag)
            lowtide.resume(self.tag)
            taken.append(1e6 * (time.monotonic() - start))
        return taken


class ByHand(Holder):
    """The same without Lowtide: copied to the host, freed, and allocated again."""

    def hold(self, tag, size):
        self.tag, self.size = tag, size
        self.address = self.driver.allocate(size)
        self.content = random.Random(tag).randbytes(SAMPLE)
        self.write()

    def pause(self, tag=None):
        self.driver.give_back(self.address)

    def resume(self, tag=None):
        self.address = self.driver.allocate(self.size)
        self.write()


KINDS = {"holder": Holder, "by_hand": ByHand}
