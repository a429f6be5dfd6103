# SPDX-License-Identifier: Apache-2.0
"""A trainer or an engine for pictures of a trace: does what a line on stdin says, and answers with a line. Both say the same
phases. Beside its tags each has memory that nothing tags: buffers of a communication library's kind, pinned host memory."""

import ctypes
import sys

import torch

import lowtide

MIB = 1 << 20
GIB = 1 << 30


class Actor:
    def __init__(self):
        torch.cuda.init()
        self.other = self.outside(768 * MIB)
        self.pinned = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)

    @staticmethod
    def outside(size):
        """As a library that asks the driver itself; the default tag is for what PyTorch allocates."""
        cuda, pointer = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
        torch.empty(1, device="cuda")
        assert cuda.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(size), None) == 0
        return pointer

    def pause(self, tag):
        torch.cuda.empty_cache()
        lowtide.pause(tag)

    def resume(self, tag):
        lowtide.resume(tag)

    def phase(self, name):
        lowtide.phase(name)


class Engine(Actor):
    def __init__(self):
        super().__init__()
        with lowtide.region("weights"):
            self.weights = [torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(256)]
        with lowtide.region("kv_cache"):
            self.cache = torch.zeros(20 * GIB, dtype=torch.uint8, device="cuda")

    def work(self, steps):
        state = torch.randn(256, 4096, device="cuda", dtype=torch.bfloat16)
        for _ in range(int(steps)):
            for weight in self.weights:
                state = torch.nn.functional.normalize(state @ weight)
        torch.cuda.synchronize()


class Trainer(Actor):
    def __init__(self):
        super().__init__()
        with lowtide.region("trainer_state"):
            self.model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, device="cuda") for _ in range(64)])
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)
            self.step(64)

    def step(self, rows):
        self.optimizer.zero_grad(set_to_none=False)
        self.model(torch.randn(rows, 4096, device="cuda")).square().mean().backward()
        self.optimizer.step()

    def work(self, steps):
        for _ in range(int(steps)):
            self.step(16384)
        torch.cuda.synchronize()


def main():
    actor = {"engine": Engine, "trainer": Trainer}[sys.argv[1]]()
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *words = line.split()
        try:
            getattr(actor, verb)(*words)
            print("done", flush=True)
        except lowtide.Error as error:
            print(f"error {error}", flush=True)


if __name__ == "__main__":
    main()
