# SPDX-License-Identifier: Apache-2.0
"""Copies of a LoRA adapter that an engine keeps beside its slots: generation does not read them."""
import contextlib

import lowtide
from other_process import Driver
from player import Player
from row_process import require


class AdapterCopies(Player):
    def __init__(self):
        super().__init__()
        self.copies = []  # of each adapter the addresses of its pieces, the newest last

    def pack_adapter(self, number, size, pieces, tag):
        """One more, beside those that are there; under `tag`, or the driver's own."""
        driver = Driver()
        with lowtide.scope(tag) if tag else contextlib.nullcontext():
            addresses = [driver.allocate(size // pieces) for _ in range(pieces)]
        for place, address in enumerate(addresses):
            driver.set(address, size // pieces, self.word(number, place))
        self.copies.append(addresses)

    def drop_adapters(self, kept):
        """All but the newest ones."""
        driver = Driver()
        while len(self.copies) > kept:
            for address in self.copies.pop(0):
                driver.give_back(address)

    def read_parked_adapter(self, number):
        """A word of each piece, while they are parked."""
        for place, address in enumerate(self.copies[-1]):
            word = int.from_bytes(lowtide.read_paused(address, 4), "little")
            require(word == self.word(number, place), f"piece {place} of adapter {number} reads {word}")

    @staticmethod
    def word(number, place):
        return 1000 * number + place
