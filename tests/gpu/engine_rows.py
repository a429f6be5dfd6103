# SPDX-License-Identifier: Apache-2.0
"""The rows of run_vllm.py and run_sglang.py: what both do around their cases.

A case is a function in a file of its engine's folder. It is played by a process of its own, in one of several ways, over the
random model in its folder; it writes its numbers to $CASE_RESULT and ends with 0."""
import argparse
import dataclasses
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
HEAD = ["| case | way | result | numbers | seconds |", "| --- | --- | --- | --- | --- |"]


@dataclasses.dataclass
class Row:
    case: str
    way: str
    ok: bool
    numbers: object  # of the case, or how it ended
    seconds: float
    said: str

    def line(self, ways):
        words = in_words(self.numbers).replace("|", "/").replace("\n", " ")
        return f"| {self.case} | {ways[self.way]} | {'ok' if self.ok else '**FAIL**'} | {words} | {self.seconds:.0f} |"


class Ground:
    """What the rows stand on. An engine's own adds where its packages are, and what its settings are."""

    own_way = None  # the one that runs without Lowtide

    def __init__(self, options, root):
        self.options = options
        self.root = root
        self.site = unpacked(options.wheel, root / "site")
        self.lowtide = self.site / "lowtide" / "bin" / "lowtide"
        (root / "run").mkdir(mode=0o700)

    def packages(self, way):
        return [] if way == self.own_way else [self.site]

    def settings(self, way):
        return {}

    def command(self, case, way):
        raise NotImplementedError

    def environment(self, way, result):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOWTIDE_") and name != "LD_PRELOAD"}
        paths = [*map(str, self.packages(way)), environment.get("PYTHONPATH", "")]
        environment.update(
            PYTHONPATH=os.pathsep.join(filter(None, paths)),
            PYTHONDONTWRITEBYTECODE="1",
            HF_HUB_OFFLINE="1",
            CASE_FOLDER=str(self.root),
            CASE_RESULT=str(result),
            LOWTIDE_RUNTIME_DIR=str(self.root / "run"),
        )
        if way != self.own_way:
            environment["CASE_LOWTIDE"] = str(self.lowtide)
        environment.update(self.settings(way))
        return environment

    def make_model(self):
        code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import random_llama as made; made.make_all({str(self.root)!r}, {self.options.gib})"
        subprocess.run([self.options.python, "-c", code], check=True)


def unpacked(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for program in folder.glob("lowtide/bin/*"):
        program.chmod(0o755)
    return folder


def play(ground, case, way, number, limit):
    result, log = ground.root / f"result{number}", ground.root / f"log{number}"
    start = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(ground.command(case, way), env=ground.environment(way, result), stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(limit)
            ended = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"did not end within {limit} s"
        end_all_of(process)
    seconds, said = time.monotonic() - start, log.read_text(errors="replace")
    ok = process.returncode == 0 and result.exists()
    return Row(case, way, ok, json.loads(result.read_text()) if ok else ended, seconds, said)


def end_all_of(process):
    """What a case has started and left behind is in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(30)


def in_words(numbers):
    """Of a text, or of {cycle: {what was done: seconds, "freed": bytes}}."""
    if isinstance(numbers, str):
        return numbers
    return "; ".join(f"{cycle}: " + ", ".join(in_unit(what, value) for what, value in each.items()) for cycle, each in numbers.items())


def in_unit(what, value):
    return f"{value / GIB:.2f} GiB freed" if what == "freed" else f"{what} {value:.3f} s"


def parser(description, engine, ways):
    made = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    made.add_argument("--wheel", type=pathlib.Path, required=True, help="Lowtide's")
    made.add_argument("--python", default=sys.executable, help=f"the one that has {engine}")
    made.add_argument("--gib", type=float, default=4, help="of weights")
    made.add_argument("--only", default="", metavar="CASE,...")
    made.add_argument("--ways", default="", metavar="WAY,...", help="of " + "; ".join(f"{way}: {words}" for way, words in ways.items()))
    made.add_argument("--logs", type=pathlib.Path, help="keep what each case printed in this folder")
    made.add_argument("--out", type=pathlib.Path, help="write the table to this file too")
    return made


def chosen(cases, ways, options):
    only, wanted = ([name for name in text.split(",") if name] for text in (options.only, options.ways))
    unknown = set(only) - {case for case, _ in cases} | set(wanted) - set(ways)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; cases: {', '.join(sorted({case for case, _ in cases}))}; ways: {', '.join(ways)}")
    return [(case, way) for case, way in cases if (not only or case in only) and (not wanted or way in wanted)]


def play_all(ground_of, cases, ways, options, limit):
    """The rows and the lines of their table. Where a row failed, the end of what it said is on stderr."""
    other = OtherProcess(options.python)
    lines, rows = [header(other.ask("free")), "", *HEAD], []
    other.close()
    with tempfile.TemporaryDirectory(prefix="lowtide-rows-") as folder:
        ground = ground_of(options, pathlib.Path(folder))
        ground.make_model()
        for number, (case, way) in enumerate(cases):
            row = play(ground, case, way, number, limit)
            rows.append(row)
            lines.append(row.line(ways))
            print(lines[-1], file=sys.stderr, flush=True)
            if options.logs:
                options.logs.mkdir(parents=True, exist_ok=True)
                shutil.copy(ground.root / f"log{number}", options.logs / f"{number}-{case}-{way}.log")
            if not row.ok:
                print(f"---- {case}, {way}\n{row.said[-5000:]}", file=sys.stderr, flush=True)
    return rows, lines


def finish(lines, options, ok):
    text = "\n".join(lines) + "\n"
    print(text)
    if options.out:
        options.out.write_text(text)
    sys.exit(0 if ok else 1)
