#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pauses and resumes real GPU programs at random moments, and compares what they compute with undisturbed runs.

For each program in victims/: start it with `lowtide run --tag weights --`; while it is busy, pause it again and again;
read from another process that its tagged bytes came back to the device; half of the times let that process use them;
resume; stop it after as many steps as it made. Then run it without Lowtide for that number of steps: all digests and
results must be the same. Prints one table; exits 1 if a row fails. Needs a GPU, the build tree, and a Python with
PyTorch, JAX and CuPy."""

import argparse
import json
import os
import pathlib
import platform
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
LEAST_FREED = 0.99


class Failure(Exception):
    """A row of the table fails, with the reason."""


class OtherProcess:
    """other_process.py: sees and takes device memory from outside."""

    def __init__(self, python, environment=None):
        command = [python, str(HERE / "other_process.py")]
        self.process_ = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(self, command, timeout=60):
        watchdog = threading.Timer(timeout, self.process_.kill)
        watchdog.start()
        try:
            self.process_.stdin.write(command + "\n")
            self.process_.stdin.flush()
            line = self.process_.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            raise Failure(f"the other process did not answer '{command}' within {timeout} s")
        reply = json.loads(line)
        if "error" in reply:
            raise Failure(f"the other process: {command}: {reply['error']}")
        return reply

    def free(self):
        return self.ask("free")["free"]

    def close(self):
        self.process_.stdin.close()
        try:
            self.process_.wait(10)
        except subprocess.TimeoutExpired:
            self.process_.kill()


class Victim:
    def __init__(self, command, folder, environment):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.log_ = self.folder / "stderr"
        with open(self.log_, "wb") as stderr, open(self.folder / "stdout", "wb") as stdout:
            self.process = subprocess.Popen(
                [*command, "--dir", str(self.folder)], stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL,
                env=environment, start_new_session=True)
        self.pid = None

    def wait_for(self, condition, what, timeout):
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None and not condition():
                raise Failure(f"the program ended with {self.process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise Failure(f"no {what} within {timeout:.0f} s")
            time.sleep(0.005)

    def wait_until_ready(self, timeout):
        ready = self.folder / "ready"
        self.wait_for(ready.exists, "'ready' file", timeout)
        self.pid = int(ready.read_text())

    def steps(self):
        data = (self.folder / "progress").read_bytes()
        return struct.unpack("=q", data)[0] if len(data) == 8 else 0

    def wait_for_steps(self, more, timeout):
        goal = self.steps() + more
        self.wait_for(lambda: self.steps() >= goal, f"step {goal} (at {self.steps()})", timeout)

    def result(self, timeout):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"the program did not end within {timeout:.0f} s") from None
        if code != 0:
            raise Failure(f"the program ended with {code}")
        return json.loads((self.folder / "result.json").read_text())

    def stop(self):
        (self.folder / "stop").touch()

    def log_tail(self):
        return self.log_.read_text(errors="replace")[-3000:]

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)


class Lowtide:
    def __init__(self, binary, runtime_dir):
        self.binary_ = str(binary)
        self.environment = dict(os.environ, LOWTIDE_RUNTIME_DIR=str(runtime_dir))

    def run_command(self, command):
        return [self.binary_, "run", "--tag", "weights", "--"] + command

    def ask(self, *words, timeout=90):
        """The objects that the command printed, and its seconds."""
        start = time.monotonic()
        try:
            done = subprocess.run(
                [self.binary_, *words, "--json"],
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise Failure(f"lowtide {' '.join(words)}: no answer within {timeout} s") from None
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise Failure(
                f"lowtide {' '.join(words)}: exit {done.returncode}: {done.stdout[-600:]} {done.stderr[-600:]}"
            )
        return objects_of(done.stdout), seconds

    def report(self, verb, pid):
        answers, seconds = self.ask(verb, str(pid))
        reports = [
            found for answer in answers for found in dictionaries_with(answer, "bytes_parked") if "seconds" in found
        ]
        if not reports:
            raise Failure(f"lowtide {verb}: no report in {answers}")
        return reports[-1], seconds

    def tagged(self, pid):
        """Requested bytes and blocks of the tag, resident or parked."""
        answers, _ = self.ask("status", str(pid))
        tags = [
            tag for answer in answers for tag in dictionaries_with(answer, "bytes_resident") if tag["tag"] == "weights"
        ]
        return sum(tag["bytes_resident"] + tag["bytes_parked"] for tag in tags), sum(tag["blocks"] for tag in tags)

    def status_text(self, pid):
        try:
            return json.dumps(self.ask("status", str(pid), timeout=10)[0], indent=1)
        except Failure as failure:
            return str(failure)


def objects_of(text):
    decoder, objects, position = json.JSONDecoder(), [], 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            raise Failure(f"no JSON in what lowtide printed: {text[position : position + 300]!r}") from None
        objects.append(value)
    return objects


def dictionaries_with(value, key):
    if isinstance(value, dict):
        if key in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from dictionaries_with(item, key)


class Row:
    def __init__(self, name):
        self.name = name
        self.blocks = self.tagged = self.steps = 0
        self.freed, self.pauses, self.resumes = [], [], []
        self.same = "-"
        self.result = "not run"

    def cells(self):
        freed = (
            [f"{100 * min(self.freed):.2f}", f"{100 * statistics.median(self.freed):.2f}"] if self.freed else ["-", "-"]
        )
        pauses = [f"{self.pauses[0]:.2f}", f"{statistics.median(self.pauses):.3f}"] if self.pauses else ["-", "-"]
        resumes = [f"{statistics.median(self.resumes):.3f}"] if self.resumes else ["-"]
        counts = [str(self.blocks), f"{self.tagged / GIB:.1f}", str(self.steps), str(len(self.resumes))]
        return [self.name, *counts, *freed, *pauses, *resumes, self.same, self.result]


class Proof:
    def __init__(self, options, lowtide, other, root):
        self.options_ = options
        self.lowtide_ = lowtide
        self.other_ = other
        self.root_ = root
        self.random_ = random.Random(options.seed)

    def one_pause(self, victim, row, lend):
        victim.wait_for_steps(2, 60)
        time.sleep(self.random_.uniform(0.05, 0.6))
        tagged, blocks = self.lowtide_.tagged(victim.pid)
        free_before = self.other_.free()
        report, seconds = self.lowtide_.report("pause", victim.pid)
        freed = self.other_.free() - free_before
        row.pauses.append(seconds)
        row.freed.append(freed / tagged)
        row.tagged, row.blocks = tagged, blocks
        if freed < LEAST_FREED * tagged:
            raise Failure(f"pause {len(row.pauses)} freed {freed} of {tagged} tagged bytes; report: {report}")
        time.sleep(0.05)  # a thread that was between two calls reaches the gate
        steps = victim.steps()
        if lend:
            self.other_.ask(f"fill {freed * 9 // 10}")
            self.other_.ask("release")
        time.sleep(0.1)
        if victim.steps() != steps:
            raise Failure(f"the paused program went from step {steps} to {victim.steps()}")
        _, seconds = self.lowtide_.report("resume", victim.pid)
        row.resumes.append(seconds)
        victim.wait_for_steps(2, 60)

    def disturbed(self, command, row):
        victim = Victim(
            self.lowtide_.run_command(command), self.root_ / f"{row.name}.disturbed", self.lowtide_.environment
        )
        try:
            victim.wait_until_ready(180)
            for number in range(self.options_.pauses):
                self.one_pause(victim, row, lend=number % 2 == 1)
            victim.stop()
            return victim.result(120)
        except Failure:
            print(f"--- {row.name}: status\n{self.lowtide_.status_text(victim.pid or victim.process.pid)}")
            print(f"--- {row.name}: end of its stderr\n{victim.log_tail()}", flush=True)
            raise
        finally:
            victim.kill()

    def undisturbed(self, command, row, steps):
        victim = Victim(command + ["--steps", str(steps)], self.root_ / f"{row.name}.undisturbed", dict(os.environ))
        try:
            return victim.result(240)
        except Failure:
            print(f"--- {row.name}, without Lowtide: end of its stderr\n{victim.log_tail()}", flush=True)
            raise
        finally:
            victim.kill()

    def prove(self, name, command, least_bytes):
        row = Row(name)
        try:
            disturbed = self.disturbed(command, row)
            row.steps = disturbed["steps"]
            if row.tagged < least_bytes:
                raise Failure(f"only {row.tagged} bytes were tagged, of {least_bytes} that the program holds")
            undisturbed = self.undisturbed(command, row, row.steps)
            differing = differences(disturbed, undisturbed)
            row.same = "no" if differing else "yes"
            if differing:
                raise Failure(
                    f"{len(differing)} of {len(disturbed['digests'])} digests or results differ: {differing[:8]}"
                )
            if disturbed["results"].get("mismatches_seen_in_the_loop", 0) != 0:
                raise Failure("the program itself saw wrong bytes in its loop")
            row.result = "ok"
        except Failure as failure:
            row.result = "FAIL"
            print(f"--- {name}: {failure}", flush=True)
        return row


def differences(one, two):
    return [
        name
        for part in ("digests", "results")
        for name in one[part].keys() | two[part].keys()
        if one[part].get(name) != two[part].get(name)
    ]


def programs(options):
    python = [options.python]
    victims = HERE / "victims"
    large = ["--gib", str(options.gib), "--blocks", str(options.blocks)]
    small = ["--gib", str(min(options.gib, 4)), "--blocks", "40"]
    return {
        "torch_loop": (python + [str(victims / "torch_loop.py")] + large, options.gib),
        "static_cudart": ([str(options.build / "tests" / "static_cudart")] + large, options.gib),
        # XLA's pool comes from cuMemCreate, which is observed and not managed: what is tagged is the rest.
        "jax_smoke": (python + [str(victims / "jax_smoke.py")] + small, 0),
        "cupy_smoke": (python + [str(victims / "cupy_smoke.py")] + small, min(options.gib, 4)),
    }


def table(rows):
    head = [
        "program",
        "blocks",
        "tagged GiB",
        "steps",
        "pauses",
        "min freed %",
        "median freed %",
        "first pause s",
        "median pause s",
        "median resume s",
        "digests equal",
        "result",
    ]
    lines = [head, ["---"] * len(head)] + [row.cells() for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--lowtide", type=pathlib.Path, help="default: BUILD/bin/lowtide")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch, JAX and CuPy")
    parser.add_argument("--only", help="names of programs, separated by commas")
    parser.add_argument("--gib", type=float, default=20)
    parser.add_argument("--blocks", type=int, default=210)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="3 pauses of 4 GiB in 40 blocks")
    parser.add_argument("--out", type=pathlib.Path, help="write the header and the table to this file too")
    options = parser.parse_args()
    if options.quick:
        options.gib, options.blocks, options.pauses = 4, 40, 3
    options.build = options.build.resolve()
    options.lowtide = (options.lowtide or options.build / "bin" / "lowtide").resolve()
    return options


def header(seen):
    return (
        f"{seen['name']}, driver {seen['driver']}, free memory read by {seen['by']} in another process; "
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores; {time.strftime('%Y-%m-%d %H:%M')}"
    )


def main():
    options = parse()
    chosen = programs(options)
    names = options.only.split(",") if options.only else list(chosen)
    other = OtherProcess(options.python)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lowtide-gpu-") as root:
        runtime = pathlib.Path(root) / "run"
        runtime.mkdir(mode=0o700)
        first_line = header(other.ask("free"))
        print(first_line, flush=True)
        proof = Proof(options, Lowtide(options.lowtide, runtime), other, pathlib.Path(root))
        rows = []
        for name in names:
            command, gib = chosen[name]
            rows.append(proof.prove(name, command, least_bytes=int(gib * GIB * LEAST_FREED)))
            print("| " + " | ".join(rows[-1].cells()) + f" | after {time.monotonic() - start:.0f} s", flush=True)
    other.close()
    text = f"{first_line}\n\n{table(rows)}\n"
    print("\n" + text, end="")
    if options.out:
        options.out.write_text(text)
    sys.exit(any(row.result != "ok" for row in rows))


if __name__ == "__main__":
    main()
