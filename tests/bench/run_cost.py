#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Lowtide costs, as a table of medians. A driver call is compared with the driver's own function in one process
(bench_cost). A PyTorch training step is compared between processes bare and under Lowtide, which take turns on the same
cores. Exits 1 if a goal is missed. Run it on a machine with a GPU that nothing else uses."""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

# The part of a name -> (what the goal limits, the limit).
GOALS = {
    "cuMemGetAddressRange": ("extra ns", 50),
    "cuMemFree of NULL": ("extra ns", 50),
    "launch": ("extra ns", 10),
    "training step": ("extra %", 1),
}


def lines_of(command, environment):
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def calls(bench, environment, repetitions):
    """Name -> ([ns bare], [ns under Lowtide], [extra ns]), one value a repetition."""
    measured = {}
    for _ in range(repetitions):
        for line in lines_of([bench], environment):
            for values, key in zip(measured.setdefault(line["what"], ([], [], [])), ("bare_ns", "under_ns", "extra_ns")):
                values.append(line[key])
    return measured


def steps(bare, under, repetitions):
    """The same for whole programs, whose extra is that of two runs that follow each other."""
    measured = {}
    for repetition in range(repetitions):
        found = {}
        for command in (bare, under) if repetition % 2 == 0 else (under, bare):
            found[command[0]] = {line["what"]: line["ns"] for line in lines_of(command, os.environ)}
        for what, value in found[bare[0]].items():
            other = found[under[0]][what]
            for values, one in zip(measured.setdefault(what, ([], [], [])), (value, other, other - value)):
                values.append(one)
    return measured


def shown(nanoseconds):
    for limit, unit, scale in ((1e3, "ns", 1), (1e6, "us", 1e3)):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.1f} {unit}"
    return f"{nanoseconds / 1e6:.3f} ms"


def spread(values):
    return f"{shown(min(values))} to {shown(max(values))}"


def verdict(what, bare, extra):
    for part, (limited, limit) in GOALS.items():
        if part in what:
            value = extra if limited == "extra ns" else 100 * extra / bare
            return f"{limited} < {limit}", "met" if value < limit else "MISSED"
    return "", ""


def rows_of(measured):
    for what, (bare_all, under_all, extra_all) in measured.items():
        bare, under, extra = (statistics.median(values) for values in (bare_all, under_all, extra_all))
        extra_text = f"{extra:+.1f} ns" if abs(extra) < 1e4 else f"{extra / 1e3:+.1f} us"
        share = f"{100 * extra / bare:+.1f} %"
        yield [what, shown(bare), shown(under), extra_text, share, spread(bare_all), f"{min(extra_all):+.0f} to {max(extra_all):+.0f} ns",
               *verdict(what, bare, extra)]  # fmt: skip


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--torch-repetitions", type=int, default=7)
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, help="write the table to this file too")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    bench = str(options.build / "tests" / "bench_cost")
    preload = ":".join(
        filter(None, (str(options.build / "lib" / "liblowtide_preload.so"), os.environ.get("LD_PRELOAD")))
    )
    measured = calls(bench, dict(os.environ, LD_PRELOAD=preload), options.repetitions)
    if not options.no_torch:
        # The same few cores for both: neighbours on others slow them alike.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:4])
        step = [options.python, str(HERE / "torch_step.py")]
        run = [str(options.build / "bin" / "lowtide"), "run", "--tag", "weights", "--"]
        measured |= steps(step, run + step, options.torch_repetitions)
    head = ["call", "bare", "under Lowtide", "extra", "of bare", "bare, range", "extra, range", "goal", "verdict"]
    rows = list(rows_of(measured))
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    first = (
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}; "
        f"medians of {options.repetitions} runs each ({options.torch_repetitions} of PyTorch), bare and hooked in turn"
    )
    text = first + "\n\n" + "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    sys.exit(any("MISSED" in row for row in rows))


if __name__ == "__main__":
    main()
