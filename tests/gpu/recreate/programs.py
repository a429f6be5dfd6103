# SPDX-License-Identifier: Apache-2.0
"""Rows that are programs of the build: HIP served by the CUDA driver, the contract, the cost, the doctor's report."""
import argparse
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

from ground import BUILD, GIB, HERE, MIB, main, other_process, require
from program import Program
from run_real_programs import Failure, Lowtide, Proof, Row, Victim, differences

FOLDER = pathlib.Path(os.environ["DROP_IN_FOLDER"])
SIMULATED = "lib/simulated" in os.environ.get("LD_LIBRARY_PATH", "")
BACKEND = os.environ.get("LOWTIDE_BACKEND", "vmm")


def hip_command():
    return [sys.executable, str(HERE / "hip_loop.py"), "--gib", "0.25" if SIMULATED else "1"]


def kept_in_place(lowtide, victim):
    """With `off` a pause answers and changes nothing."""
    victim.wait_until_ready(60)
    for _ in range(3):
        victim.wait_for_steps(2, 60)
        tagged, blocks = lowtide.tagged(victim.pid)
        report, _ = lowtide.report("pause", victim.pid)
        require((report["bytes_parked"], report["bytes_kept"]) == (0, tagged), f"{tagged} bytes are tagged: {report}")
        lowtide.report("resume", victim.pid)
    victim.stop()
    return victim.result(60), f"{tagged / GIB:.2f} GiB in {blocks} blocks kept, 3 pauses"


def hip():
    """Paused from outside, as the programs of run_real_programs.py, with the same looks at its bytes."""
    lowtide, other = Lowtide(BUILD / "bin" / "lowtide", os.environ["LOWTIDE_RUNTIME_DIR"]), other_process()
    options = argparse.Namespace(pauses=4, seed=1)
    proof, row = Proof(options, lowtide, other, FOLDER), Row("hip_loop")
    if BACKEND == "off":
        victim = Victim(lowtide.run_command(hip_command()), FOLDER / "kept", lowtide.environment)
        try:
            disturbed, numbers = kept_in_place(lowtide, victim)
        except Failure:
            print(victim.log_tail())
            raise
        finally:
            victim.kill()
    else:
        disturbed = proof.disturbed(hip_command(), row)
        freed, cycles = min(row.freed), len(row.resumes)
        numbers = f"{row.tagged / GIB:.2f} GiB in {row.blocks} blocks, {freed:.1%} freed, {cycles} cycles"
    undisturbed = proof.undisturbed(hip_command(), row, disturbed["steps"])
    differing = differences(disturbed, undisturbed)
    require(not differing and disturbed["results"]["mismatches_seen_in_the_loop"] == 0, f"other bytes: {differing}")
    other.close()
    return f"{numbers}, {disturbed['steps']} steps"


def contract():
    """A test program of the build; of the HIP ones a case."""
    test, case = os.environ["RECREATE_TEST"], os.environ.get("RECREATE_CASE")
    command = [str(BUILD / "tests" / test), *(["-c", case] if case else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    require(done.returncode == 0, f"exit {done.returncode}: {(done.stdout + done.stderr)[-2500:]}")
    found = re.search(r"(\d+) assertions? in (\d+) test cases?", done.stdout)
    require(found, f"no number of assertions: {done.stdout[-500:]}")
    return f"{found[1]} assertions in {found[2]} test cases"


def doctor():
    start = time.monotonic()
    command = [str(BUILD / "bin" / "lowtide"), "doctor", "--selftest", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    seconds = time.monotonic() - start
    require(done.returncode == 0, f"exit {done.returncode}: {(done.stdout + done.stderr)[-2500:]}")
    words = []
    device = json.loads(done.stdout)["report"]["devices"][0]
    for each in device["candidates"]:
        failed = [check["name"] for check in each["checks"] if not check["ok"]]
        require(not failed and not each["error"], f"{each['backend']}: {failed} {each['error']}")
        trial = each.get("trial") or {}
        tried = f"{trial['verdict']} ({1000 * trial['seconds']:.1f} ms)" if trial.get("attempts") else "not tried"
        words.append(f"{each['backend']} {tried}, {len(each['checks'])} checks")
    return f"takes {device['backend']}; {'; '.join(words)}; {seconds:.1f} s in all"


class Side:
    """One backend's times."""

    def __init__(self, backend, count, size):
        preload = str(BUILD / "lib" / "liblowtide_preload.so")
        environment = {**os.environ, "LD_PRELOAD": preload, "LOWTIDE_BACKEND": backend}
        self.name, self.bytes, self.times = backend, count * size, {}
        self.worker = Program([BUILD / "tests" / "bench_copies"], environment, FOLDER / f"{backend}.{size}", backend)

    def prepare(self, count, size):
        self.worker.ask("set", "tag.weights.pause", "offload")
        self.worker.ask("alloc", "weights", count, size)

    def cycle(self, seed, action):
        """With a rest before each call: the driver clears what was given back afterwards."""
        self.worker.ask("set", "tag.weights.pause", action)
        self.worker.ask("fill", seed)
        for verb in ("pause", "resume"):
            time.sleep(0.3)
            self.times.setdefault((action, verb), []).append(self.worker.ask(verb, "weights")["ms"])
        if action == "offload":
            self.worker.ask("check")

    def median(self, action, verb):
        """Of all cycles but the first."""
        return statistics.median(self.times[action, verb][1:])

    def copy(self, verb):
        """GiB/s of the copies: what a cycle with them takes longer than one without."""
        return self.bytes / GIB / (self.median("offload", verb) - self.median("discard", verb)) * 1000


HEAD = ["blocks", "backend", "pause", "resume", "copy out", "copy in", "pause, discarding", "resume, discarding"]


def bench():
    """A cycle of both backends in turn: everything is written anew in between. A table is left in table.md."""
    total = GIB // 4 if SIMULATED else 8 * GIB
    lines, words, generator = [HEAD, ["---"] * len(HEAD)], [], random.Random(1)
    for size in (20 * MIB, min(512 * MIB, total)):
        count = total // size
        vmm, recreate = Side("vmm", count, size), Side("recreate", count, size)
        with vmm.worker, recreate.worker:
            vmm.prepare(count, size)
            recreate.prepare(count, size)
            for action in ("offload", "discard"):
                for number in range(6):
                    for side in (vmm, recreate) if number % 2 else (recreate, vmm):
                        side.cycle(generator.randrange(1, 1 << 31), action)
        for side in (vmm, recreate):
            times = [f"{side.median(action, verb):.1f} ms"
                     for action in ("offload", "discard") for verb in ("pause", "resume")]
            speeds = [f"{side.copy(verb):.1f} GiB/s" for verb in ("pause", "resume")]
            lines.append([f"{count} of {size // MIB} MiB", side.name, *times[:2], *speeds, *times[2:]])
        shares = [recreate.copy(verb) / vmm.copy(verb) for verb in ("pause", "resume")]
        words.append(f"{size // MIB} MiB: copies at {shares[0]:.3f} and {shares[1]:.3f} of vmm's rate")
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    (FOLDER / "table.md").write_text(text, encoding="utf-8")
    return "; ".join(words)


if __name__ == "__main__":
    main(globals())
