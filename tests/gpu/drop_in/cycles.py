# SPDX-License-Identifier: Apache-2.0
"""A colocated loop: an engine and a trainer, two processes on one device, take turns: resume, work, pause."""
import os
import subprocess
import sys
import threading

import torch

from support import DEVICE, MIB, Held, captures_are_tagged, free_bytes, main, open_package, require

MIB_EACH = 64
ANSWER_WITHIN = 30  # seconds; a cycle takes some ten milliseconds
DRIFT = 16 * MIB  # what the residue may differ between the first hundred cycles and any later


class Side:
    """A region with a backup, one without, and a graph that reads the first and writes the second."""

    def __init__(self, saver, seed):
        torch.manual_seed(seed)
        self.saver_ = saver
        with saver.region("weights", enable_cpu_backup=True):
            self.held = Held(MIB_EACH)
        with saver.region("scratch"):
            self.scratch = torch.empty_like(self.held.tensor)
        self.expected = self.held.tensor * 3 + 1
        self.differing = torch.empty((), dtype=torch.int64, device=DEVICE)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.work_()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph_ = torch.cuda.CUDAGraph()
        with self.capture_(stream):
            self.work_()

    def capture_(self, stream):
        if captures_are_tagged():
            return self.saver_.cuda_graph(self.graph_, stream=stream, tag="cuda_graph", enable_cpu_backup=True)
        return torch.cuda.graph(self.graph_, stream=stream)

    def work_(self):
        torch.mul(self.held.tensor, 3, out=self.scratch)
        self.scratch.add_(1)
        self.differing.copy_((self.scratch != self.expected).sum())

    def pause(self):
        self.saver_.pause("scratch")
        self.saver_.pause()

    def turn(self, number):
        self.saver_.resume("weights")
        self.saver_.resume()
        self.differing.fill_(-1)
        self.graph_.replay()
        differing = int(self.differing)
        require(differing == 0, f"cycle {number}: {differing} of {self.held.tensor.numel()} words differ")
        self.pause()


def peer():
    """The trainer: a turn for each line on stdin, one line back."""
    side = Side(open_package().torch_memory_saver, seed=2)
    side.pause()
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin):
        side.turn(number)
        print("done", flush=True)


class Peer:
    def __init__(self):
        command = [sys.executable, __file__, "peer"]
        self.process_ = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, wanted, seconds):
        watchdog = threading.Timer(seconds, self.process_.kill)
        watchdog.start()
        line = self.process_.stdout.readline().strip()
        watchdog.cancel()
        require(line == wanted, f"the trainer said {line!r} instead of {wanted!r} within {seconds} s")

    def turn(self):
        self.process_.stdin.write("turn\n")
        self.process_.stdin.flush()
        self.answer("done", ANSWER_WITHIN)

    def close(self):
        self.process_.stdin.close()
        code = self.process_.wait(30)
        require(code == 0, f"the trainer ended with {code}")


def resident_host_mib():
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB


def colocated(saver):
    cycles = int(os.environ["DROP_IN_CYCLES"])
    trainer = Peer()
    trainer.answer("ready", 90)
    side = Side(saver, seed=1)
    side.pause()
    free, host = [], []
    for number in range(cycles):
        side.turn(number)
        trainer.turn()
        if number % 100 == 99 or number == cycles - 1:
            free.append(free_bytes())
            host.append(resident_host_mib())
    trainer.close()
    residue = [(free[0] - each) // MIB for each in free]
    flat = all(abs(free[0] - each) <= DRIFT for each in free)
    require(flat, f"device memory drifts, in MiB per 100 cycles: {residue}")
    require(host[-1] <= host[0] + 64, f"host memory grows, in MiB per 100 cycles: {host}")
    growth = f"device {residue} MiB per 100 cycles against the first, host {host[0]} to {host[-1]} MiB"
    return f"{cycles} cycles of both; {growth}"


if __name__ == "__main__":
    if sys.argv[1] == "peer":
        peer()
    else:
        main(globals())
