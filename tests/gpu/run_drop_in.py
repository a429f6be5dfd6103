#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays what users of torch_memory_saver do, over Lowtide, in each way that leads in.

The cases in drop_in/ are written once, against torch_memory_saver's object. Each is a process of its own. While one has
the device, the next ones load PyTorch and wait for their turn. Prints one table; exits 1 if a row fails. Needs a GPU,
the build tree, a Python with PyTorch and transformers, and the wheel of torch_memory_saver."""

import argparse
import collections
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
import tomllib
import zipfile

from run_real_programs import OtherProcess, header

HERE = pathlib.Path(__file__).resolve().parent
CASES_FOLDER = HERE / "drop_in"
PYTHON_PACKAGE = HERE.parent.parent / "shim" / "python" / "lowtide"
PROJECT = HERE.parent.parent / "pyproject.toml"
SGLANG = [f"sglang/srt/{name}.py" for name in (
    "constants", "environ", "lora/eviction_policy", "lora/mem_pool", "lora/utils",
    "managers/scheduler_components/weight_updater", "plugins/__init__", "plugins/hook_registry",
    "utils/torch_memory_saver_adapter")]

ORIGINAL = ("preload", "torch")
ALL = ("preload", "torch", "module")
UNDER_RUN = ("preload+run", "torch+run", "module+run")
WAYS = {
    "preload": "the original package, Lowtide's libraries in the place of its own, configure_subprocess()",
    "torch": "the same, hook_mode = \"torch\"",
    "module": "import lowtide.compat.torch_memory_saver as torch_memory_saver",
    **{f"{way}+run": f"{way}, within `lowtide run`" for way in ALL},
}


@dataclasses.dataclass(frozen=True)
class Case:
    part: str  # the file in drop_in/
    name: str
    ways: tuple = ALL
    environment: tuple = ()  # names and values
    limit: float = 120  # seconds


TRAINER = (("TMS_INIT_ENABLE", "1"), ("TMS_INIT_ENABLE_CPU_BACKUP", "1"))
ONE_SECOND = (("LOWTIDE_CONF", "device.wait:1s"),)
CASES = [
    Case("regions", "simple", ALL + UNDER_RUN),
    Case("regions", "default_tag"),
    Case("regions", "two_tags_in_any_order", ALL + UNDER_RUN),
    Case("regions", "nested", ALL + ("module+run",)),
    Case("regions", "entered_again"),
    Case("regions", "entered_while_entered"),
    Case("states", "one_tag_with_and_without_backup"),
    Case("states", "double_calls"),
    Case("states", "allocated_in_a_paused_tag"),
    Case("states", "freed_while_paused"),
    Case("states", "disabled"),
    Case("states", "many_tiny_tensors"),
    Case("states", "memory_margin"),
    Case("regions", "regions_of_threads"),
    Case("regions", "one_state", ALL + UNDER_RUN),
    Case("backups", "pinned", ALL + ("module+run",)),
    Case("backups", "mmap"),
    Case("backups", "disk"),
    Case("backups", "retained", ALL + ("preload+run",)),
    Case("backups", "read_while_paused"),
    Case("training", "trainer", ALL + ("preload+run", "module+run"), TRAINER),
    Case("training", "disabled", ALL + ("module+run",), TRAINER),
    Case("training", "freed_to_the_driver", ALL + ("module+run",), TRAINER),
    Case("graphs", "plain"),
    Case("graphs", "pauseable", ALL + ("preload+run", "module+run")),
    Case("sglang_adapter", "regions"),
    Case("sglang_adapter", "subprocess_of_engine", ALL + ("preload+run",)),
    Case("sglang_adapter", "weight_update", ALL + ("preload+run", "module+run")),
    *[Case("sglang_handlers", name) for name in ("no_flag", "weights", "draft", "weights+draft")],
    *[Case("sglang_handlers", f"{name}graph", ("preload", "module+run"))
      for name in ("", "weights+", "draft+", "weights+draft+")],
    Case("sglang_handlers", "repeated", ("preload", "module")),
    Case("sglang_handlers", "plug_in", ("preload", "preload+run", "module+run")),
    Case("causal_lm", "logits_bit_equal", ALL + ("module+run",)),
    Case("out_of_room", "resume_raises", ("module", "module+run"), ONE_SECOND),
    Case("out_of_room", "next_use_raises", ORIGINAL + ("preload+run",), ONE_SECOND),
    Case("threads", "eight_threads"),
    Case("cycles", "colocated", ("preload", "module"), limit=240),
]


class Ground:
    """What the rows stand on: the packages in folders of their own, and an environment with nothing else of ours."""

    def __init__(self, options, root):
        self.options_ = options
        self.root = root
        self.lowtide = options.build / "bin" / "lowtide"
        self.original_ = root / "site"
        self.own_ = root / "own"
        self.run_folder_ = root / "run"
        self.run_folder_.mkdir(mode=0o700)
        self.install_original_()
        self.install_own_()
        self.sglang_ = root / "sglang"
        self.take_sglang_()

    def install_original_(self):
        with zipfile.ZipFile(self.options_.tms_wheel) as wheel:
            wheel.extractall(self.original_)
        done = subprocess.run([str(self.lowtide), "compat", "install", "--into", str(self.original_)], check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lowtide compat install: exit {done.returncode}: {done.stderr}")

    def install_own_(self):
        shutil.copytree(PYTHON_PACKAGE, self.own_ / "lowtide", ignore=shutil.ignore_patterns("__pycache__"))
        (self.own_ / "lowtide" / "lib").mkdir()
        for name in ("liblowtide.so", "liblowtide_preload.so"):
            shutil.copy2(self.options_.build / "lib" / name, self.own_ / "lowtide" / "lib" / name)

        about = self.own_ / "lowtide-0.dist-info"  # what pip would write: SGLang looks for its plug-ins there
        about.mkdir()
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: lowtide\nVersion: 0\n")
        groups = tomllib.loads(PROJECT.read_text())["project"]["entry-points"]
        lines = [f"{name} = {what}\n" for name, what in groups["sglang.srt.plugins"].items()]
        (about / "entry_points.txt").write_text("".join(["[sglang.srt.plugins]\n", *lines]))

    def take_sglang_(self):
        """The few files that are played, out of a wheel or a folder with an installed sglang."""
        source = self.options_.sglang
        if source is None:
            return
        found = zipfile.Path(source) if source.is_file() else source
        missing = [name for name in SGLANG if not (found / name).exists()]
        if missing:
            sys.exit(f"{source} has no {', '.join(missing)}: it takes a wheel of sglang 0.5.17 or later, or a folder with it")
        for name in SGLANG:
            (self.sglang_ / name).parent.mkdir(parents=True, exist_ok=True)
            (self.sglang_ / name).write_bytes((found / name).read_bytes())

    def command(self, case, way):
        command = [self.options_.python]
        if way.startswith("preload"):
            command.append(str(CASES_FOLDER / "launcher.py"))
        command += [str(CASES_FOLDER / f"{case.part}.py"), case.name]
        return [str(self.lowtide), "run", "--", *command] if way.endswith("+run") else command

    def packages_(self, case, way):
        if way.startswith("module"):
            return [self.own_]
        return [self.original_, self.own_] if case.name == "plug_in" else [self.original_]

    def environment(self, case, way, folder):
        ours = ("LOWTIDE_", "TMS_", "DROP_IN_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "LD_PRELOAD")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        cycles = self.options_.cycles if way == "preload" else max(self.options_.cycles // 5, 1)
        environment.update(
            PYTHONPATH=os.pathsep.join(map(str, self.packages_(case, way))),
            PYTHONDONTWRITEBYTECODE="1",
            CUBLAS_WORKSPACE_CONFIG=":4096:8",
            HF_HUB_OFFLINE="1",
            LOWTIDE_RUNTIME_DIR=str(self.run_folder_),
            DROP_IN_WAY=way,
            DROP_IN_LOWTIDE=str(self.lowtide),
            DROP_IN_FOLDER=str(folder),
            DROP_IN_RESULT=str(folder / "result.json"),
            DROP_IN_SGLANG=str(self.sglang_),
            DROP_IN_CYCLES=str(cycles),
        )
        environment.update(case.environment)
        return environment


class Row:
    def __init__(self, case, way):
        self.case = case
        self.way = way
        self.result = "not run"
        self.numbers = ""
        self.seconds = 0.0
        self.tail = ""
        self.left = ""  # the table of its own that the case has written
        self.process_ = None
        self.folder_ = None

    def start(self, ground, number):
        """Loads what the case needs; it does not touch the device before play()."""
        self.folder_ = ground.root / f"row{number}"
        self.folder_.mkdir()
        with open(self.folder_ / "log", "wb") as log:
            self.process_ = subprocess.Popen(
                ground.command(self.case, self.way), env=ground.environment(self.case, self.way, self.folder_),
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def play(self):
        start = time.monotonic()
        try:
            self.process_.communicate(b"go\n", timeout=self.case.limit)
            ended = f"ended with {self.process_.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"did not end within {self.case.limit:.0f} s"
        self.kill()
        self.seconds = time.monotonic() - start
        own = self.folder_ / "table.md"
        self.left = own.read_text(encoding="utf-8") if own.exists() else ""
        answer = self.folder_ / "result.json"
        said = json.loads(answer.read_text()) if answer.exists() else None
        if said is not None and self.process_.returncode == 0:
            self.result, self.numbers = said["result"], said["numbers"]
            return
        self.result, self.numbers = "FAIL", ended + (" after it had succeeded" if said else "")
        self.tail = (self.folder_ / "log").read_text(errors="replace")[-4000:]

    def kill(self):
        """Ends the case and what it has started and left behind."""
        if self.process_ is None:
            return
        try:
            os.killpg(self.process_.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process_.wait(30)

    def cells(self):
        numbers = " ".join(self.numbers.split()).replace("|", "/")
        return [f"{self.case.part}: {self.case.name}", self.way, self.result, numbers, f"{self.seconds:.1f}"]


def play_all(rows, ground, ahead):
    waiting, started = collections.deque(enumerate(rows)), collections.deque()
    begin = time.monotonic()
    try:
        while waiting or started:
            while waiting and len(started) < ahead:
                number, row = waiting.popleft()
                row.start(ground, number)
                started.append(row)
            row = started[0]
            row.play()
            started.popleft()
            print("| " + " | ".join(row.cells()) + f" | after {time.monotonic() - begin:.0f} s", flush=True)
            if row.tail:
                print(f"--- {row.case.name}, {row.way}: end of its output\n{row.tail}\n---", flush=True)
    finally:
        for row in started:
            row.kill()


def table(rows):
    head = ["case", "way in", "result", "numbers", "seconds"]
    lines = [head, ["---"] * len(head)] + [row.cells() for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def summary(rows):
    counts = collections.Counter(row.result for row in rows)
    return ", ".join(f"{count} {result}" for result, count in counts.most_common()) + f", of {len(rows)}"


def named(cases, only):
    """Those of a part or with a name that `only` has, separated by commas; all if it is none."""
    names = only.split(",") if only else None
    unknown = set(names or ()) - {name for each in cases for name in (each.part, each.name)}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; --list names them")
    return [each for each in cases if names is None or each.part in names or each.name in names]


def play_and_tell(rows, ground_of, options, prefix):
    """Plays the rows in a folder of their own, prints their tables, and ends: with 1 if a row is not ok."""
    other = OtherProcess(options.python)
    first_line = header(other.ask("free"))
    other.close()
    print(first_line, flush=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=options.folder) as root:
        play_all(rows, ground_of(options, pathlib.Path(root)), options.ahead)
    left = "".join(f"\n{row.left}" for row in rows if row.left)
    text = f"{first_line}\n\n{table(rows)}\n\n{summary(rows)}\n{left}"
    print("\n" + text, end="")
    if options.out:
        options.out.write_text(text)
    sys.exit(any(row.result != "ok" for row in rows))


def chosen_rows(options):
    names = options.only.split(",") if options.only else None
    ways = options.ways.split(",") if options.ways else list(WAYS)
    unknown = set(ways) - set(WAYS) | set(names or ()) - {name for case in CASES for name in (case.part, case.name)}
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; --list names them")
    rows = [Row(case, way) for way in WAYS for case in CASES
            if way in case.ways and way in ways and (names is None or case.part in names or case.name in names)]
    if options.sglang is None:
        rows = [row for row in rows if not row.case.part.startswith("sglang")]
    return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch and transformers")
    parser.add_argument("--tms-wheel", type=pathlib.Path, help="of torch_memory_saver, from PyPI")
    parser.add_argument("--sglang", type=pathlib.Path,
                        help="the wheel of sglang, from PyPI, or the folder that it is installed in; without it no row of it")
    parser.add_argument("--only", help="names of parts or cases, separated by commas")
    parser.add_argument("--ways", help=f"of {', '.join(WAYS)}, separated by commas")
    parser.add_argument("--cycles", type=int, default=1000, help="of the colocated loop; a fifth without preload")
    parser.add_argument("--ahead", type=int, default=5, help="how many cases have been started at a time")
    parser.add_argument("--folder", default="/var/tmp", help="where temporary files go; a disk, for disk backups")
    parser.add_argument("--out", type=pathlib.Path, help="write the header and the table to this file too")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    options = parser.parse_args()
    options.build = options.build.resolve()
    if options.tms_wheel is None and not options.list:
        parser.error("--tms-wheel is needed")
    return options


def main():
    options = parse()
    rows = chosen_rows(options)
    if options.list:
        print("\n".join(f"{row.case.part}: {row.case.name} ({row.way})" for row in rows))
        return
    other = OtherProcess(options.python)
    first_line = header(other.ask("free"))
    other.close()
    print(first_line, flush=True)
    with tempfile.TemporaryDirectory(prefix="lowtide-drop-in-", dir=options.folder) as root:
        play_all(rows, Ground(options, pathlib.Path(root)), options.ahead)
    ways = "\n".join(f"- {way}: {words}" for way, words in WAYS.items())
    text = f"{first_line}\n\n{table(rows)}\n\n{summary(rows)}\n\n{ways}\n"
    print("\n" + text, end="")
    if options.out:
        options.out.write_text(text)
    sys.exit(any(row.result not in ("ok", "not offered") for row in rows))


if __name__ == "__main__":
    main()
