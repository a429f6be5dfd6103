#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trainer and an engine that share a device, under the sync policy: what frameworks were seen to get wrong, replayed.

The cases in policy/ lead two processes each, step by step. While one case has the device, the processes of the next ones
load PyTorch and wait for their turn. Prints one table, and the phase tables of the rows; exits 1 if a row fails. Needs a
GPU that nothing else uses, the build tree, and a Python with PyTorch, transformers and peft. On the simulated GPU the
processes hold plain blocks instead of a model."""

import argparse
import os
import pathlib
import sys

from run_drop_in import Case, Row, named, play_and_tell

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "shim" / "python"
WAY = "two processes"
CASES = [Case(part, name, (WAY,)) for part, names in {
    "order": ("adamw", "fsdp2", "flat", "backend_off", "mode_off"),
    "adapters": ("copies", "base_discarded", "never_written"),
    "content": ("learnt", "like_verl", "like_skyrl", "like_slime"),
    "room": ("cycles", "cycles_by_hand", "wakes"),  # last: nobody loads PyTorch beside what is timed
}.items() for name in names]


class Ground:
    """How a row is started. In its environment is nothing else of ours."""

    def __init__(self, options, root):
        self.options_ = options
        self.root = root
        self.run_folder_ = root / "run"
        self.run_folder_.mkdir(mode=0o700)

    def command(self, chosen, way):  # pylint: disable=unused-argument  all are played in one way
        return [self.options_.python, str(HERE / "policy" / f"{chosen.part}.py"), chosen.name]

    def environment(self, chosen, way, folder):  # pylint: disable=unused-argument
        ours = ("LOWTIDE_", "TMS_", "DROP_IN_", "POLICY_", "PYTORCH_", "LD_PRELOAD")
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(ours) or name.startswith("LOWTIDE_SIM_")}
        environment.update(
            PYTHONPATH=str(PACKAGE),
            PYTHONDONTWRITEBYTECODE="1",
            CUBLAS_WORKSPACE_CONFIG=":4096:8",
            HF_HUB_OFFLINE="1",
            LOWTIDE_RUNTIME_DIR=str(self.run_folder_),
            DROP_IN_WAY="module+run",
            DROP_IN_FOLDER=str(folder),
            DROP_IN_RESULT=str(folder / "result.json"),
            POLICY_LOWTIDE=str(self.options_.build / "bin" / "lowtide"),
            POLICY_CYCLES=str(self.options_.cycles),
            POLICY_ADAPTER_GIB=str(self.options_.adapter_gib),
        )
        return environment


def chosen_rows(options):
    return [Row(each, WAY) for each in named(CASES, options.only)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch, transformers and peft")
    parser.add_argument("--only", help="names of parts or cases, separated by commas")
    parser.add_argument("--cycles", type=int, default=200, help="of two processes for which there is no room together")
    parser.add_argument("--adapter-gib", type=float, default=6, help="copies of a LoRA adapter")
    parser.add_argument("--ahead", type=int, default=4, help="how many cases have been started at a time")
    parser.add_argument("--folder", default="/var/tmp", help="where temporary files go")
    parser.add_argument("--out", type=pathlib.Path, help="write the header and the tables to this file too")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    rows = chosen_rows(options)
    if options.list:
        print("\n".join(f"{row.case.part}: {row.case.name}" for row in rows))
        return
    play_and_tell(rows, Ground, options, "lowtide-policy-")


if __name__ == "__main__":
    main()
