#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays what SGLang's users do with a real SGLang over Lowtide, beside torch_memory_saver.

The cases in sglang/ are a process each. The model is a Llama with random weights, made here. Lowtide comes from its wheels, so
that SGLang finds the plug-in as it would after `pip install`. Prints one table; exits 1 if a row fails. Needs a GPU that
nothing else uses and a Python with SGLang."""

import os
import pathlib
import subprocess
import sys

import engine_rows

WAYS = {"original": "torch_memory_saver's own", "lowtide": "under `lowtide run`, Lowtide's module torch_memory_saver",
        "installed": "the original package, after `lowtide compat install`"}
CASES = [
    ("whole", "original"), ("whole", "lowtide"), ("whole", "installed"), ("weights_dropped", "lowtide"), ("tags_one_by_one", "lowtide"),
    ("graphs", "original"), ("graphs", "lowtide"), ("adapters", "lowtide"), ("no_room", "lowtide"), ("outside", "lowtide"),
    ("outside", "installed"),
]  # fmt: skip
LIMIT_SECONDS = 150
CUDART = "import glob, nvidia; print(*sorted({f.rpartition('/')[0] for p in nvidia.__path__ for f in glob.glob(p + '/*/lib/libcudart.so.*')}), sep=':')"


class Ground(engine_rows.Ground):
    own_way = "original"

    def __init__(self, options, root):
        super().__init__(options, root)
        self.saver = engine_rows.unpacked(options.saver, root / "saver")
        self.original = engine_rows.unpacked(options.original, root / "original")
        self.installed = engine_rows.unpacked(options.original, root / "installed")
        done = subprocess.run([str(self.lowtide), "compat", "install", "--into", str(self.installed)], check=False,
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lowtide compat install: exit {done.returncode}: {done.stderr}")
        # The original's library is linked to the CUDA runtime, which lies with PyTorch and not where the loader looks.
        self.cuda = subprocess.run([options.python, "-c", CUDART], check=True, capture_output=True, text=True).stdout.strip()

    def packages(self, way):
        return {"original": [self.original], "lowtide": [self.saver, self.site], "installed": [self.installed, self.site]}[way]

    def settings(self, way):
        paths = [self.cuda, os.environ.get("LD_LIBRARY_PATH", "")]
        return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths))} if way == "original" else {}

    def command(self, case, way):
        command = [self.options.python, str(engine_rows.HERE / "sglang" / "cases.py"), case]
        return [str(self.lowtide), "run", "--", *command] if way == "lowtide" else command


def beside(rows):
    """The original's seconds over Lowtide's, of the same cycle."""
    cycles = {row.way: row.numbers for row in rows if row.ok and row.case == "whole"}
    if not {"original", "lowtide"} <= set(cycles):
        return []
    ratios = [f"{what} {cycles['original'][name][what] / cycles['lowtide'][name][what]:.1f}" for name in ("first", "third")
              for what in ("release", "resume")]
    return ["", "torch_memory_saver's seconds over Lowtide's, whole: first " + ", ".join(ratios[:2]) + "; third " + ", ".join(ratios[2:])]


def main():
    parser = engine_rows.parser(__doc__, "SGLang", WAYS)
    parser.add_argument("--saver", type=pathlib.Path, required=True, help="Lowtide's wheel of the module torch_memory_saver")
    parser.add_argument("--original", type=pathlib.Path, required=True, help="the wheel of torch_memory_saver")
    options = parser.parse_args()
    rows, lines = engine_rows.play_all(Ground, engine_rows.chosen(CASES, WAYS, options), WAYS, options, LIMIT_SECONDS)
    engine_rows.finish(lines + beside(rows), options, all(row.ok for row in rows))


if __name__ == "__main__":
    main()
