# SPDX-License-Identifier: Apache-2.0
"""Random operations on storages that are paused and resumed, beside an undisturbed twin of each: bytes, aliasing, and
what is paused. LOWTIDE_TEST_SEED and LOWTIDE_TEST_ROUNDS choose others."""
import os
import random
import sys
import unittest
from unittest import mock

from support import PACKAGE

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
sys.path.insert(0, str(PACKAGE))

import lowtide  # noqa: E402
from lowtide.torch import memory, recreate  # noqa: E402

SEED = int(os.environ.get("LOWTIDE_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("LOWTIDE_TEST_ROUNDS", "200"))
KINDS = (torch.uint8, torch.int16, torch.float32, torch.bfloat16, torch.complex64)
BYTE = {"zero": 0, "poison": 0xcd}


class Block:
    """A storage by views of it, each beside the same view of a twin that nobody pauses."""

    def __init__(self, whole, fixed):
        self.views = [(whole, whole.clone())]
        self.size = whole.nbytes
        self.fixed = fixed  # cannot be paused
        self.parked = False
        self.lost = None  # the fill, while it is parked without its content

    def storage(self):
        return self.views[0][0].untyped_storage()

    def twin(self):
        return self.views[0][1].untyped_storage()


class Model:

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.blocks = []
        self.held = {}  # what is handed in: names to lists of views
        self.storages = recreate.Storages([self.held], device="cpu")

    def make(self):
        size = self.random.choice((8, 40, 64, 1000, 4096))
        whole = torch.frombuffer(bytearray(self.random.randbytes(size)), dtype=torch.uint8)
        fixed = self.random.random() < .1
        block = Block(whole if fixed else whole.clone(), fixed)
        self.blocks.append(block)
        self.hold(block)

    def hold(self, block):
        """One view at least is handed in, or the storage would not be known."""
        some = self.random.sample(block.views, self.random.randint(1, len(block.views)))
        self.held[id(block)] = [view for view, _ in some]

    def view(self):
        """Of whatever is there. PyTorch refuses a part of what is parked, and not another tensor with the same one."""
        block = self.random.choice(self.blocks)
        alias = [each.detach() for each in self.random.choice(block.views)]
        both = alias if block.parked else self.strided(block)
        if both:
            if both[0].is_floating_point() and self.random.random() < .5:
                both[0] = torch.nn.Parameter(both[0].detach())
            block.views.append(tuple(both))
            self.hold(block)

    def strided(self, block):
        """Of a type, an offset and strides; None if there are no such bytes."""
        kind = self.random.choice(KINDS)
        numbers = block.size // kind.itemsize
        shape = [self.random.randint(1, 4) for _ in range(self.random.randint(0, 3))]
        strides = [self.random.randint(0, 5) for _ in shape]
        reach = sum((length - 1) * stride for length, stride in zip(shape, strides))
        if reach >= numbers:
            return None
        offset = self.random.randint(0, numbers - 1 - reach)
        empty = (torch.empty(0, dtype=kind) for _ in range(2))
        return [each.set_(of, offset, shape, strides) for each, of in zip(empty, (block.storage(), block.twin()))]

    def forget_views(self):
        block = self.random.choice(self.blocks)
        self.random.shuffle(block.views)
        del block.views[self.random.randint(1, len(block.views)):]
        self.hold(block)

    def write(self):
        """By one view; all others see it."""
        block = self.random.choice(self.blocks)
        if not block.parked:
            view, twin = self.random.choice(block.views)
            value = self.random.randint(0, 99)
            view.detach().fill_(value)
            twin.fill_(value)

    def free(self):
        block = self.blocks.pop(self.random.randrange(len(self.blocks)))
        del self.held[id(block)]

    def pause(self):
        action, fill = self.random.choice(("offload", "discard")), self.random.choice(tuple(BYTE))
        going = [block for block in self.blocks if not block.parked and not block.fixed]
        report = self.storages.pause(action, fill)
        moved = sum(block.size for block in going)
        kept = sum(block.size for block in self.blocks if block.fixed)
        assert (report.parked, report.discarded) == ((moved, 0) if action == "offload" else (0, moved))
        assert (report.kept, report.blocks) == (kept, len(going))
        for block in going:
            block.parked, block.lost = True, fill if action == "discard" else None

    def resume(self):
        parked = [block for block in self.blocks if block.parked]
        report = self.storages.resume()
        lost = sum(block.size for block in parked if block.lost)
        assert (report.blocks, report.discarded) == (len(parked), lost)
        assert report.parked == sum(block.size for block in parked) - lost
        for block in parked:
            if block.lost:
                block.twin().fill_(BYTE[block.lost])
            block.parked, block.lost = False, None

    def resume_without_room(self):
        parked = sum(block.parked for block in self.blocks)
        if parked == 0:
            return
        real, left = torch.UntypedStorage.resize_, [self.random.randint(1, parked)]

        def resize_(storage, size):
            left[0] -= size > 0
            if left[0] == 0 and size > 0:
                raise RuntimeError("no memory")
            return real(storage, size)

        with mock.patch.object(torch.UntypedStorage, "resize_", resize_):
            try:
                self.storages.resume()
            except lowtide.DeviceMemoryError:
                return
        raise AssertionError("the resume found room")

    def check(self):
        for block in self.blocks:
            if block.parked:
                assert block.storage().nbytes() == 0
                continue
            whole = (torch.empty(0, dtype=torch.uint8).set_(each) for each in (block.storage(), block.twin()))
            assert torch.equal(*whole)
            for view, twin in block.views:
                assert view.untyped_storage()._cdata == block.storage()._cdata
                assert shape(view) == shape(twin) and same_bytes(view.detach(), twin)


def shape(tensor):
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def same_bytes(*tensors):
    """Also of numbers that are not equal to themselves."""
    packed = (torch.empty(each.shape, dtype=each.dtype).copy_(each).view(-1) for each in tensors)
    return torch.equal(*(each.view(torch.uint8) for each in packed))


class Operations(unittest.TestCase):

    def test_in_any_order(self):
        weights = {"make": 4, "view": 8, "forget_views": 3, "write": 6, "free": 3, "pause": 3, "resume": 3,
                   "resume_without_room": 1}
        for seed in range(SEED, SEED + ROUNDS):
            model, done = Model(seed), []
            model.make()
            with mock.patch.object(memory, "_SLAB", model.random.choice((64, 1000, 1 << 20))):
                try:
                    for _ in range(150):
                        if not model.blocks:
                            model.make()
                        done += model.random.choices(tuple(weights), tuple(weights.values()))
                        getattr(model, done[-1])()
                        model.check()
                except Exception as error:
                    raise AssertionError(f"seed {seed}, after {' '.join(done)}") from error


if __name__ == "__main__":
    unittest.main()
