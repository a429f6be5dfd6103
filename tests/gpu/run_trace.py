#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a trace of a PyTorch program says beside what PyTorch itself says, and what recording costs. Prints one table; exits 1
if a row fails. With --keep FOLDER the traces of a trainer and an engine, and what is made of them, stay there. Needs a GPU that
nothing else uses, 64 GiB of it, the build tree, and a Python with PyTorch."""

import argparse
import contextlib
import json
import os
import pathlib
import pickle
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "shim" / "python"
MOST_NS = 100  # of an event, on the thread that it happens on
MOST_SHARE = 0.01  # of a training step


class Bench:
    """How programs are started, and the rows of the table."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.failed = False
        self.rows = []
        (folder / "run").mkdir(mode=0o700)

    def row(self, what, right, numbers):
        self.failed |= not right
        self.rows.append((what, "ok" if right else "FAIL", numbers))
        print(f"| {what} | {'ok' if right else 'FAIL'} | {numbers} |", flush=True)

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOWTIDE_", "LD_PRELOAD", "PYTORCH_"))}
        return {**kept, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1",
                "LOWTIDE_RUNTIME_DIR": str(self.folder / "run"), **more}

    def lowtide(self, *arguments):
        command = [str(self.options.build / "bin" / "lowtide"), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self.environment()).stdout

    @contextlib.contextmanager
    def program(self, *arguments, run=(), cores=None):
        """A program under `lowtide run`, killed at the end."""
        command = [str(self.options.build / "bin" / "lowtide"), "run", *map(str, run), "--", self.options.python, *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment(),
                                   preexec_fn=cores and (lambda: os.sched_setaffinity(0, cores)))
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def counted(bench):
    """Runs the program of points to its last one. Its trace, and what PyTorch said at each point."""
    trace = bench.folder / "counted.ltt"
    settings = bench.folder / "counted.toml"
    # What cuBLAS asks the driver for itself is not among what PyTorch counts.
    settings.write_text('[tag.train]\npause = "offload"\n[unmanaged]\ncallers = ["libcublas*"]\n', encoding="utf-8")
    run = ("--tag", "train", "--config", settings, "--trace", trace)
    said = []
    with bench.program(HERE / "trace" / "counted.py", run=run) as process:
        for line in process.stdout:
            point = json.loads(line)
            if "done" in point:
                break
            said.append(point)
    return trace, said


def check_points(bench, trace, said):
    """Bytes by tag in the report are PyTorch's, at each point. What PyTorch has reserved at the last, and what is in no tag then."""
    report = json.loads(bench.lowtide("trace", "report", "--json", trace))
    phases = {phase["phase"]: phase for table in report["tables"] for phase in table["phases"]}
    for point in said:
        phase = phases.get(point["phase"], {"peaks": []})
        peaks = {each["name"]: each["bytes"] for each in phase["peaks"]}
        wrong = {tag: (size, peaks.get(tag)) for tag, size in point["resident"].items() if peaks.get(tag) != size}
        wrong.update({tag: (0, peaks[tag]) for tag in ("train", "kv_cache", "lora")
                      if peaks.get(tag, 0) > 0 and tag not in point["resident"]})
        numbers = ", ".join(f"{tag} {size / 2**20:.0f} MiB" for tag, size in sorted(point["resident"].items()))
        bench.row(f"bytes by tag: {point['phase']}", not wrong, numbers if not wrong else f"PyTorch, trace: {wrong}")
    # Nothing is freed between two points but by a pause and at `emptied`: what is used there is at most what it is at a point.
    used = {point["phase"]: point["used"] for point in said}
    wrong = {name: (size, phases[name]["used"], sum(each["bytes"] for each in phases[name]["peaks"])) for name, size in used.items()
             if not size == phases[name]["used"] == sum(each["bytes"] for each in phases[name]["peaks"])}
    bench.row("rows add up to what the device has in use", not wrong,
              ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in used.items()) if not wrong else f"device, USED, rows: {wrong}")
    most, between = max(used.values()), phases["between"]["used"]
    bench.row("a pause and a resume never count twice", between <= most, f"{between / 2**20:.0f} MiB of {most / 2**20:.0f}")
    return said[-1]["reserved"], sum(size for name, size in peaks.items() if name.startswith("unmanaged"))


SNAPSHOT = """
import pickle, sys
from torch.cuda import _memory_viz as viz
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
text = viz.segsum(snapshot)
page = viz.trace_plot(snapshot)
print(sum(segment["total_size"] for segment in snapshot["segments"]), len(snapshot["device_traces"]), len(text), len(page))
"""


def check_snapshot(bench, trace, reserved, unmanaged):
    """PyTorch's own loader and viewer take the snapshot, and its segments are what PyTorch has reserved, and cuBLAS beside it."""
    path = bench.folder / "memory.pickle"
    bench.lowtide("trace", "export", "--to", "snapshot", "-o", path, trace)
    with open(path, "rb") as file:
        pickle.load(file)
    result = subprocess.run([bench.options.python, "-c", SNAPSHOT, str(path)], capture_output=True, text=True, check=False)
    total = int(result.stdout.split()[0]) if result.returncode == 0 else -1
    bench.row("snapshot: PyTorch's loader and viewer", result.returncode == 0, result.stderr.strip()[-200:] or f"{path.stat().st_size} bytes")
    bench.row("snapshot: its segments are what PyTorch has reserved and what is in no tag", total == reserved + unmanaged,
              f"{total / 2**20:.2f} MiB; {reserved / 2**20:.2f} and {unmanaged / 2**20:.2f} MiB")


def step_times(bench, more):
    """ns of a training step, by model; on cores of its own, since the host's share of a step is what may change."""
    cores = sorted(os.sched_getaffinity(0))[-4:]
    run = ("--tag", "train", "--set", "tag.train.pause=offload", *more)
    with bench.program(HERE.parent / "bench" / "torch_step.py", run=run, cores=cores) as process:
        lines = [json.loads(line) for line in process.stdout]
    return {line["what"].rsplit(" ", 1)[-1]: line["ns"] for line in lines}


def check_cost(bench):
    """A training step while it is recorded, beside one that is not: the median difference of a pair. Which of a pair is first
    changes in turns, since the second of two programs finds a warmer machine."""
    pairs = []
    for i in range(bench.options.pairs):
        ways = [(), ("--trace", bench.folder / f"cost{i}.ltt")]
        times = [step_times(bench, way) for way in (ways if i % 2 == 0 else reversed(ways))]
        pairs.append(times if i % 2 == 0 else times[::-1])
    for model in pairs[0][0]:
        shares = [recorded[model] / plain[model] - 1 for plain, recorded in pairs]
        without, with_trace = (statistics.median(each[model] for each in side) for side in zip(*pairs))
        bench.row(f"a step of {model} while recorded", statistics.median(shares) < MOST_SHARE,
                  f"{without / 1e6:.3f} ms, recorded {with_trace / 1e6:.3f} ms; pairs differ by {100 * min(shares):+.1f} to "
                  f"{100 * max(shares):+.1f} %, median {100 * statistics.median(shares):+.2f} %")


def check_events(bench):
    program = bench.options.build / "tests" / "bench_trace"
    if not program.exists():
        bench.row("ns of an event", False, f"there is no {program}")
        return
    text = subprocess.run([program, str(bench.folder)], check=True, capture_output=True, text=True).stdout
    for what, ns in re.findall(r"^(.+?) +([\d.]+) ns", text, re.MULTILINE):
        bench.row(what, what.startswith(("clock", "a known stack")) or float(ns) < MOST_NS, f"{ns} ns")


def ask(process, line):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    answer = process.stdout.readline().strip()
    if answer != "done":
        raise RuntimeError(f"{line}: {answer}")


def play_pair(bench):
    """A trainer and an engine that take turns, three times; the traces and what is made of them."""
    keep = bench.options.keep or bench.folder
    keep.mkdir(parents=True, exist_ok=True)
    traces = [keep / f"{name}.ltt" for name in ("engine", "trainer")]
    setting = ("--set", "trace.stacks=python")
    with contextlib.ExitStack() as stack:
        engine, trainer = (stack.enter_context(bench.program(HERE / "trace" / "actor.py", trace.stem, run=("--trace", trace, *setting)))
                           for trace in traces)
        for process in (engine, trainer):
            if process.stdout.readline().strip() != "ready":
                raise RuntimeError("an actor did not start")
        ask(trainer, "pause trainer_state")
        for _ in range(3):
            for phase, active, steps, paused in (("rollout", engine, 40, ["weights", "kv_cache"]), ("train", trainer, 8, ["trainer_state"])):
                for process in (engine, trainer):
                    ask(process, f"phase {phase}")
                ask(active, f"work {steps}")
                for tag in paused:
                    ask(active, f"pause {tag}")
                for tag in (["trainer_state"] if active is engine else ["weights", "kv_cache"]):
                    ask(trainer if active is engine else engine, f"resume {tag}")
        time.sleep(0.3)
    made = {"report.txt": ("report",), "report.json": ("report", "--json"), "log.txt": ("log",)}
    for name, verb in made.items():
        (keep / name).write_text(bench.lowtide("trace", *verb, *traces), encoding="utf-8")
    for name, verb in {"page.html": ("plot",), "picture.svg": ("plot",), "run.pftrace": ("export", "--to", "perfetto")}.items():
        bench.lowtide("trace", *verb, "-o", keep / name, *traces)
    report = json.loads((keep / "report.json").read_text())
    names = {each["name"] for table in report["tables"] for phase in table["phases"] for each in phase["peaks"]}
    wanted = {"weights", "kv_cache", "trainer_state", "unmanaged async"}
    bench.row("a trainer and an engine that take turns", wanted <= names, ", ".join(sorted(names)))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--only", default="points,cost,events,pair", help="parts, separated by commas")
    parser.add_argument("--pairs", type=int, default=6, help="of runs whose steps are compared")
    parser.add_argument("--keep", type=pathlib.Path, help="where the traces of the trainer and the engine stay")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    print("| what | | numbers |\n| --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory(prefix="lowtide-trace-", dir="/var/tmp") as folder:
        bench = Bench(options, pathlib.Path(folder))
        parts = options.only.split(",")
        if "points" in parts:
            trace, said = counted(bench)
            if said:
                check_snapshot(bench, trace, *check_points(bench, trace, said))
            else:
                bench.row("bytes by tag", False, "the program said nothing")
        if "cost" in parts:
            check_cost(bench)
        if "events" in parts:
            check_events(bench)
        if "pair" in parts:
            play_pair(bench)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
