# SPDX-License-Identifier: Apache-2.0
"""Eight threads allocate, free and check in regions of their own tags, while the main thread pauses and resumes."""
import random
import threading
import time

import torch

from support import DEVICE, MIB, main, require

THREADS = 8
SECONDS = 6


class Worker(threading.Thread):
    """Allocates and frees whenever it likes, and touches its tensors only while its tag is not paused (`awake`)."""

    def __init__(self, saver, number):
        super().__init__(name=f"worker {number}", daemon=True)
        self.saver_ = saver
        self.tag = f"tag_{number}"
        self.backed = number % 2 == 0
        self.awake = threading.Lock()
        self.stop = False
        self.error = None
        self.rounds = 0
        self.random_ = random.Random(number)
        self.tensors_ = []

    def allocate_(self):
        words = self.random_.randrange(1, MIB) if self.random_.random() < 0.7 else self.random_.randrange(1, 4096)
        with self.saver_.region(self.tag, enable_cpu_backup=self.backed):
            tensor = torch.empty(words, dtype=torch.int64, device=DEVICE)
        with self.awake:
            tensor.random_(-(1 << 62), 1 << 62)
            self.tensors_.append((tensor, tensor.data_ptr(), tensor.cpu()))

    def check_one_(self):
        tensor, address, expected = self.random_.choice(self.tensors_)
        with self.awake:
            require(tensor.data_ptr() == address, f"{self.name}: a tensor has moved")
            if self.backed:
                require(torch.equal(tensor.cpu(), expected), f"{self.name}: a tensor of {tensor.numel()} words differs")
            else:
                tensor.fill_(self.rounds)
                require(bool((tensor.cpu() == self.rounds).all()), f"{self.name}: what was written was not kept")

    def run(self):
        try:
            while not self.stop:
                self.allocate_()
                self.check_one_()
                if len(self.tensors_) > 6:
                    del self.tensors_[self.random_.randrange(len(self.tensors_))]
                self.rounds += 1
        except Exception as error:  # pylint: disable=broad-except  the main thread reports it
            self.error = error


def eight_threads(saver):
    workers = [Worker(saver, number) for number in range(THREADS)]
    torch.zeros(1, device=DEVICE)
    saver.pause()  # the original is not made by several threads at once
    for worker in workers:
        worker.start()
    chooser, pauses, end = random.Random(1), 0, time.monotonic() + SECONDS
    while time.monotonic() < end and not any(worker.error for worker in workers):
        worker = chooser.choice(workers)
        with worker.awake:
            saver.pause(worker.tag)
            time.sleep(chooser.uniform(0, 0.01))
            saver.resume(worker.tag)
        pauses += 1
        time.sleep(chooser.uniform(0, 0.005))
    for worker in workers:
        worker.stop = True
    for worker in workers:
        worker.join(30)
        require(not worker.is_alive(), f"{worker.name} hangs after {worker.rounds} rounds")
        require(worker.error is None, f"{worker.name}: {type(worker.error).__name__}: {worker.error}")
        require(worker.rounds > 0, f"{worker.name} did nothing")
    require(pauses > 20, f"only {pauses} pauses")
    rounds = sum(worker.rounds for worker in workers)
    return f"{pauses} pauses, {rounds} allocations and checks by {THREADS} threads"


if __name__ == "__main__":
    main(globals())
