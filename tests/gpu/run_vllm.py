#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays what vLLM's users do with a real vLLM under `lowtide run`, beside vLLM's own allocator.

The cases in vllm/ are a process each. The model is a Llama with random weights, made here. Lowtide comes from its wheel, so
that vLLM finds the plug-in as it would after `pip install`. Prints one table; exits 1 if a row fails. Needs a GPU that
nothing else uses (two for two_ranks) and a Python with vLLM."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

from run_real_programs import OtherProcess, header

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
WAYS = OWN, LOWTIDE, BACKEND = "vLLM's own allocator", "under `lowtide run`", "the same, sleep-mode backend `lowtide`"
CASES = [
    ("levels", OWN), ("levels", LOWTIDE), ("levels", BACKEND), ("tags_one_by_one", LOWTIDE), ("buffers_survive_level_2", LOWTIDE),
    ("no_room", LOWTIDE), ("adapters", LOWTIDE), ("adapters_on_the_device", OWN),
    ("adapters_on_the_device", LOWTIDE), ("without_sleep_mode", LOWTIDE),
    ("server", LOWTIDE), ("two_ranks", LOWTIDE),
]  # fmt: skip
LIMIT_SECONDS = 240


class Ground:
    def __init__(self, options, root):
        self.root = root
        self.options = options
        with zipfile.ZipFile(options.wheel) as wheel:
            wheel.extractall(root / "site")
        for program in (root / "site" / "lowtide" / "bin").iterdir():
            program.chmod(0o755)
        self.lowtide = root / "site" / "lowtide" / "bin" / "lowtide"
        (root / "run").mkdir(mode=0o700)

    def environment(self, way, result):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOWTIDE_") and name != "LD_PRELOAD"}
        path = [str(self.root / "site")] if way != OWN else []
        environment.update(
            PYTHONPATH=os.pathsep.join(path + [environment.get("PYTHONPATH", "")]).strip(os.pathsep),
            PYTHONDONTWRITEBYTECODE="1",
            CASE_FOLDER=str(self.root),
            CASE_RESULT=str(result),
            VLLM_TUNED_CONFIG_FOLDER=str(self.root / "kernels"),
            VLLM_ENABLE_V1_MULTIPROCESSING="0",
            VLLM_ALLOW_INSECURE_SERIALIZATION="1",
            LOWTIDE_RUNTIME_DIR=str(self.root / "run"),
        )
        if way != OWN:
            environment["CASE_LOWTIDE"] = str(self.lowtide)
        if way == BACKEND:
            environment["CASE_BACKEND"] = "lowtide"
        return environment

    def command(self, case, way):
        command = [self.options.python, str(HERE / "vllm" / "cases.py"), case]
        return command if way == OWN else [str(self.lowtide), "run", "--", *command]

    def make_model(self):
        code = f"import sys; sys.path.insert(0, {str(HERE / 'vllm')!r}); import model; model.make_all({str(self.root)!r}, {self.options.gib})"
        subprocess.run([self.options.python, "-c", code], check=True)


def play(ground, case, way, number):
    """(ok, numbers, seconds, the end of what was said)"""
    result, log = ground.root / f"result{number}", ground.root / f"log{number}"
    start = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(ground.command(case, way), env=ground.environment(way, result), stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    seconds, said = time.monotonic() - start, log.read_text(errors="replace")
    if process.returncode == 0 and result.exists():
        return True, json.loads(result.read_text()), seconds, said
    return False, f"ended with {process.returncode}", seconds, said


def in_words(numbers):
    if isinstance(numbers, str):
        return numbers
    return "; ".join(f"{name}: sleep {each['sleep']:.3f} s, wake {each['wake']:.3f} s, {each['freed'] / GIB:.2f} GiB freed"
                     for name, each in numbers.items())


def faster(rows):
    """First sleep at level 1: vLLM's own seconds over Lowtide's."""
    times = {way: numbers["level 1, first"]["sleep"] for case, way, ok, numbers, _ in rows if ok and case == "levels"}
    return None if len(times) < 2 or OWN not in times else times[OWN] / max(times[way] for way in times if way != OWN)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--wheel", type=pathlib.Path, required=True, help="Lowtide's")
    parser.add_argument("--python", default=sys.executable, help="the one that has vLLM")
    parser.add_argument("--gib", type=float, default=4, help="of weights")
    parser.add_argument("--only", default="", metavar="CASE,...")
    parser.add_argument("--ways", default="123", help=f"of 1 {OWN}, 2 {LOWTIDE}, 3 {BACKEND}")
    parser.add_argument("--logs", type=pathlib.Path, help="keep what each case printed in this folder")
    parser.add_argument("--out", type=pathlib.Path, help="write the table to this file too")
    options = parser.parse_args()
    wanted = [case for case in options.only.split(",") if case]
    other = OtherProcess(options.python)
    lines = [header(other.ask("free")), "", "| case | way | result | numbers | seconds |", "| --- | --- | --- | --- | --- |"]
    other.ask("release")
    rows, failed = [], []
    with tempfile.TemporaryDirectory(prefix="lowtide-vllm-") as folder:
        ground = Ground(options, pathlib.Path(folder))
        ground.make_model()
        for number, (case, way) in enumerate(CASES):
            if (wanted and case not in wanted) or str(WAYS.index(way) + 1) not in options.ways:
                continue
            ok, numbers, seconds, said = play(ground, case, way, number)
            rows.append((case, way, ok, numbers, seconds))
            lines.append(f"| {case} | {way} | {'ok' if ok else '**FAIL**'} | {in_words(numbers)} | {seconds:.0f} |")
            print(lines[-1], file=sys.stderr, flush=True)
            if options.logs:
                shutil.copy(ground.root / f"log{number}", options.logs / f"{number}-{case}.log")
            if not ok:
                failed.append(case)
                print(f"---- {case}\n{said[-5000:]}", file=sys.stderr, flush=True)
    ratio = faster(rows)
    if ratio is not None:
        lines += ["", f"The first sleep at level 1 is {ratio:.1f} times as fast as with vLLM's own allocator (goal: 5)."]
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    sys.exit(1 if failed or (ratio is not None and ratio < 5) else 0)


if __name__ == "__main__":
    main()
