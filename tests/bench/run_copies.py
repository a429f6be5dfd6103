#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What pauses and resumes cost beside the link's own rate, torch_memory_saver, vLLM's method and the bare driver.

One table. L is the rate of one pinned buffer in this run: to the host for pauses, to the device for resumes. Every
figure is a median, on random data, whose bytes are checked after each resume. Exits 1 if a goal is missed or a row of
Lowtide's fails. Run it on a machine with a GPU that nothing else uses; peers need a Python with PyTorch."""

import argparse
import json
import os
import pathlib
import platform
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "copies"))
sys.dont_write_bytecode = True

import jobs  # noqa: E402  beside this file
import table  # noqa: E402
from program import Failed, Programs, say  # noqa: E402


def pair(text):
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} is not KEY=VALUE")
    return key, value


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--tms-wheel", type=pathlib.Path, help="torch_memory_saver's wheel")
    parser.add_argument("--no-peers", action="store_true", help="Lowtide and the bare driver alone")
    names = ", ".join(dict.fromkeys(name for name, *_ in jobs.JOBS))
    parser.add_argument("--only", default="", metavar="ROW,...", help=f"of {names}, or names of single rows")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=8, help="what has not begun by then is skipped")
    parser.add_argument("--set", type=pair, action="append", default=[], metavar="K=V", help="a setting of Lowtide's")
    parser.add_argument("--defaults", action="store_true", help="nothing is set but the tags' actions")
    parser.add_argument("--scale", type=float, default=1.0, help="of all sizes; a trial, no measurement")
    parser.add_argument("--simulated", action="store_true", help="on the simulated GPU; a trial, no measurement")
    parser.add_argument("--no-warm", action="store_true", help="do not touch host memory first")
    parser.add_argument("--out", type=pathlib.Path, help="write the table to this file too")
    parser.add_argument("--json", type=pathlib.Path, help="write all figures to this file")
    options = parser.parse_args()
    if options.defaults and options.set:
        parser.error("--defaults and --set contradict each other")
    options.build = options.build.resolve()
    options.repetitions = max(1, options.repetitions)
    if options.simulated:
        options.no_peers = True
    return options, chosen(parser, options)


def chosen(parser, options):
    """The jobs to play and the rows to show."""
    words = [word for word in options.only.split(",") if word]
    known = {name for name, *_ in jobs.JOBS} | {row[0] for row in table.ROWS}
    for word in words:
        if word not in known:
            parser.error(f"--only: {word} is none of {', '.join(sorted(known))}")
    named = [job for job in jobs.JOBS if not words or job[0] in words or set(job[3]) & set(words)]
    if options.simulated:  # PyTorch's kernels do not run there
        named = [job for job in named if job[0] != "lora"]
    rows = {row for _, _, engine, filled in named for row in filled if engine == "lowtide"}
    return [job for job in named if job[2] == "lowtide" or not options.no_peers], rows


def play(bench, job, failures, started):
    name, function, engine, rows = job
    # A peer's job may take a minute by itself.
    latest = 60 * bench.options.minutes - (0 if engine == "lowtide" else 60)
    if time.monotonic() - started > latest:
        why = f"SKIPPED after {bench.options.minutes:g} minutes"
    else:
        say(f"{name}, {engine}; {time.monotonic() - started:.0f} s")
        try:
            function(bench, engine)
            return
        except Failed as failed:
            why = f"FAILED: {failed}"
        except Exception as failed:  # the other rows go on
            why = f"FAILED: {type(failed).__name__}: {failed}"
    say(f"{name}, {engine}: {why}")
    for row in rows:
        failures[row, engine] = why
        # Half a row is none, except that a peer's slow one may have lost only its last repetitions.
        if engine == "lowtide":
            bench.figures.pop((row, engine), None)


def driver_version():
    try:
        return pathlib.Path("/proc/driver/nvidia/version").read_text().split("Kernel Module")[1].split()[0:3]
    except (OSError, IndexError):
        return []


def heading(bench, hello, link):
    version = " ".join(word for word in driver_version() if word[0].isdigit())
    gib = jobs.GIB
    text = (
        f"{hello['device']}{', driver ' + version if version else ''}, {platform.system()} {platform.release()}, "
        f"{len(os.sched_getaffinity(0))} cores, {time.strftime('%Y-%m-%d %H:%M')}. "
        f"L = {link['to_host'] / gib:.1f} GiB/s to the host, {link['to_device'] / gib:.1f} GiB/s to the device. "
        f"Medians of {bench.options.repetitions}, fresh processes of {min(3, bench.options.repetitions)}; "
        "torch_memory_saver without retained copies once."
    )
    settings = ", ".join(f"{key}={value}" for key, value in bench.options.set)
    text += f" Settings: {settings}." if settings else " Settings: the defaults."
    trial = bench.options.scale != 1 or bench.options.simulated
    return text + (" A TRIAL at another size or without a GPU: no measurement." if trial else "")


def write(options, bench, text, link, failures):
    print(text, end="", flush=True)
    if options.out:
        options.out.write_text(text)
    if options.json:
        figures = [
            {"row": row, "engine": engine, "bytes": bench.totals.get((row, engine)), "figures": values}
            for (row, engine), values in bench.figures.items()
        ]
        failed = [{"row": row, "engine": engine, "why": why} for (row, engine), why in failures.items()]
        options.json.write_text(json.dumps({"link": link, "figures": figures, "failures": failed}, indent=1) + "\n")


def main():
    options, (wanted_jobs, wanted_rows) = parse()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        bench = jobs.Bench(options, Programs(options, folder))
        if not options.no_warm:
            try:
                size, seconds = jobs.warm(bench)
                say(f"{size / jobs.GIB:.1f} GiB of host memory touched in {seconds:.1f} s")
            except Failed as failed:
                say(f"host memory was not warmed up: {failed}")
        try:
            hello, link = jobs.link(bench)
        except Failed as failed:
            sys.exit(f"run_copies: the link's rate: {failed}")
        say(f"L = {link['to_host'] / jobs.GIB:.2f} GiB/s to the host, {link['to_device'] / jobs.GIB:.2f} to the device")
        failures, rows = {}, []
        for job in wanted_jobs:
            play(bench, job, failures, started)
            # What has been measured is not lost if this is ended from outside.
            rows = list(table.rows_of(table.Judge(bench, link, failures), wanted_rows))
            if options.out:
                options.out.write_text(heading(bench, hello, link) + "\n\n" + table.markdown(rows))
    say(f"{time.monotonic() - started:.0f} s in all")
    write(options, bench, heading(bench, hello, link) + "\n\n" + table.markdown(rows), link, failures)
    bad = {"FAILED"} if options.scale != 1 or options.simulated else {"FAILED", table.MISSED}
    sys.exit(any(row[-1] in bad for row in rows))


if __name__ == "__main__":
    main()
