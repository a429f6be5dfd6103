#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Lowtide costs: runs bench_cost and a PyTorch training step bare and under Lowtide, in turn, several times, and
prints a table of medians. Exits 1 if a goal is missed. Run it on a machine with a GPU that nothing else uses."""

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


def figures(command, environment):
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["what"]: line["ns"] for line in lines}


def repeat(bare, under, repetitions):
    """Name -> ([ns bare], [ns under Lowtide]). The two take turns, so that a drift of the machine meets both."""
    measured = {}
    for repetition in range(repetitions):
        turns = ((0, bare), (1, under)) if repetition % 2 == 0 else ((1, under), (0, bare))
        for side, (command, environment) in turns:
            for what, value in figures(command, environment).items():
                measured.setdefault(what, ([], []))[side].append(value)
    return measured


def bare_values(measured, what):
    """A tagged figure has no bare run of its own: the untagged one is what the bare driver takes."""
    return measured[what][0] or measured[what.replace(", tagged", ", untagged")][0]


def shown(nanoseconds):
    for limit, unit, scale in ((1e3, "ns", 1), (1e6, "us", 1e3)):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.1f} {unit}"
    return f"{nanoseconds / 1e6:.3f} ms"


def spread(values):
    return f"{shown(min(values))} to {shown(max(values))}"


def verdict(what, bare, under):
    for part, (limited, limit) in GOALS.items():
        if part in what:
            extra = under - bare if limited == "extra ns" else 100 * (under / bare - 1)
            return f"{limited} < {limit}", "met" if extra < limit else "MISSED"
    return "", ""


def rows_of(measured):
    for what, (_, under_all) in measured.items():
        bare_all = bare_values(measured, what)
        bare, under = statistics.median(bare_all), statistics.median(under_all)
        extra = f"{under - bare:+.1f} ns" if abs(under - bare) < 1e4 else f"{(under - bare) / 1e3:+.1f} us"
        yield [
            what,
            shown(bare),
            shown(under),
            extra,
            f"{under / bare:.3f}",
            spread(bare_all),
            spread(under_all),
            *verdict(what, bare, under),
        ]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--repetitions", type=int, default=5)
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
    bare_environment = dict(os.environ)
    measured = repeat(
        ([bench], bare_environment), ([bench, "--preloaded"], dict(os.environ, LD_PRELOAD=preload)), options.repetitions
    )
    if not options.no_torch:
        step = [options.python, str(HERE / "torch_step.py")]
        run = [str(options.build / "bin" / "lowtide"), "run", "--tag", "weights", "--"]
        measured |= repeat((step, bare_environment), (run + step, bare_environment), options.repetitions)
    head = ["call", "bare", "under Lowtide", "extra", "ratio", "bare, range", "under, range", "goal", "verdict"]
    rows = list(rows_of(measured))
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    first = (
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores, {time.strftime('%Y-%m-%d %H:%M')}; "
        f"medians of {options.repetitions} runs each, taken in turn"
    )
    text = first + "\n\n" + "\n".join(lines) + "\n"
    print(text, end="")
    if options.out:
        options.out.write_text(text)
    sys.exit(any("MISSED" in row for row in rows))


if __name__ == "__main__":
    main()
