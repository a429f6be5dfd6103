#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory that a pause frees and a resume allocates again, and HIP served by the CUDA driver, on a real GPU.

The programs in recreate/ run with LOWTIDE_BACKEND=recreate, most of them under `lowtide run`, each in a process of its
own. While one has the device, the next ones load PyTorch and wait for their turn. Prints one table; exits 1 if a row
fails. Needs a GPU, the build tree, and a Python with PyTorch and transformers."""

import argparse
import os
import pathlib
import sys

from run_drop_in import Case, Row, named, play_and_tell

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "shim" / "python"
RUN, ALONE = "run", "alone"  # ways: under `lowtide run`, or a program that starts others
HIP = "runtime that LOWTIDE_TEST_HIP names"


def case(part, name, way=RUN, backend="recreate", limit=120, **environment):
    """`backend`: of LOWTIDE_BACKEND; empty: what is found by trying."""
    chosen = {"LOWTIDE_BACKEND": backend} if backend else {}
    return Case(part, name, (way, ), tuple({**chosen, **environment}.items()), limit)


CASES = [
    case("models", "torch_script"),
    case("models", "causal_lm"),
    case("models", "paged_kv"),
    *[case("moved", name) for name in ("refused_then_retried", "followed", "storages")],
    case("cycles", "cycles", limit=180),
    *[case("programs", "hip", ALONE, backend) for backend in ("", "vmm+cycle", "recreate", "off")],
    *[case("programs", "contract", ALONE, "", RECREATE_TEST="backend_contract_test", RECREATE_CASE=name)
      for name in ("vmm on the driver that LOWTIDE_TEST_DRIVER names", "recreate on that driver", "off on that driver")],
    *[case("programs", "contract", ALONE, "", RECREATE_TEST="hip_contract_test", RECREATE_CASE=f"{name} on the {HIP}")
      for name in ("vmm", "vmm in chunks", "vmm+cycle", "recreate")],
    case("programs", "bench", ALONE, "", limit=150),
    case("programs", "doctor", ALONE, ""),
]


class Ground:
    """How a row is started. In its environment is nothing else of ours."""

    def __init__(self, options, root):
        self.options_ = options
        self.root = root
        self.run_folder_ = root / "run"
        self.run_folder_.mkdir(mode=0o700)

    def command(self, chosen, way):
        command = [self.options_.python, str(HERE / "recreate" / f"{chosen.part}.py"), chosen.name]
        return [str(self.options_.build / "bin" / "lowtide"), "run", "--", *command] if way == RUN else command

    def environment(self, chosen, way, folder):
        ours = ("LOWTIDE_", "TMS_", "DROP_IN_", "RECREATE_", "PYTORCH_", "LD_PRELOAD")
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(ours) or name.startswith("LOWTIDE_SIM_")}
        hip = str(self.options_.build / "lib" / "simulated" / "libamdhip64.so.6")
        environment.update(
            PYTHONPATH=str(PACKAGE),
            PYTHONDONTWRITEBYTECODE="1",
            CUBLAS_WORKSPACE_CONFIG=":4096:8",
            HF_HUB_OFFLINE="1",
            LOWTIDE_RUNTIME_DIR=str(self.run_folder_),
            LOWTIDE_TEST_DRIVER="libcuda.so.1",
            LOWTIDE_TEST_HIP=hip,
            DROP_IN_FOLDER=str(folder),
            DROP_IN_RESULT=str(folder / "result.json"),
            RECREATE_BUILD=str(self.options_.build),
            RECREATE_CYCLES=str(self.options_.cycles),
            RECREATE_HIP=hip,
        )
        environment.update(chosen.environment)
        return environment


class ToldRow(Row):
    """Says in the table how it was set."""

    def __init__(self, chosen, way):
        super().__init__(chosen, way)
        settings = dict(chosen.environment)
        told = [settings[name] for name in ("RECREATE_TEST", "RECREATE_CASE") if name in settings]
        self.way = ", ".join(told) or settings.get("LOWTIDE_BACKEND", "by trying")
        self.start_way_ = way

    def start(self, ground, number):
        shown, self.way = self.way, self.start_way_
        super().start(ground, number)
        self.way = shown


def chosen_rows(options):
    return [ToldRow(each, each.ways[0]) for each in named(CASES, options.only)]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=HERE.parent.parent / "build" / "release")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch and transformers")
    parser.add_argument("--only", help="names of parts or cases, separated by commas")
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--ahead", type=int, default=3, help="how many cases have been started at a time")
    parser.add_argument("--folder", default="/var/tmp", help="where temporary files go")
    parser.add_argument("--out", type=pathlib.Path, help="write the header and the table to this file too")
    parser.add_argument("--list", action="store_true", help="name the rows and end")
    options = parser.parse_args()
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    rows = chosen_rows(options)
    if options.list:
        print("\n".join(f"{row.case.part}: {row.case.name} ({row.way})" for row in rows))
        return
    play_and_tell(rows, Ground, options, "lowtide-recreate-")


if __name__ == "__main__":
    main()
