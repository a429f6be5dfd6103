# SPDX-License-Identifier: Apache-2.0
"""The PTX that is shipped is what its sources give: translated anew and compared, where the same nvcc is there."""

import os
import re
import subprocess
import sys
import tempfile

import repository

FOLDER = repository.ROOT / "backends/cuda/kernels"
SKIPPED = 77


def release(text):
    found = re.search(r"release [\d.]+, V[\d.]+", text)
    return found.group(0) if found else None


def main():
    environment = dict(os.environ, PATH=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")
    try:
        said = subprocess.run(["nvcc", "--version"], env=environment, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        print("no nvcc here")
        return SKIPPED
    complaints = []
    with tempfile.TemporaryDirectory() as folder:
        shipped = {path.name: path.read_text() for path in FOLDER.glob("*.ptx")}
        others = [name for name, text in shipped.items() if release(text) != release(said)]
        if others:
            print(f"{', '.join(others)}: made by another nvcc than the {release(said)} here")
            return SKIPPED
        subprocess.run([FOLDER / "make_ptx", folder], env=environment, check=True)
        made = sorted(os.listdir(folder))
        if made != sorted(shipped):
            complaints.append(f"{FOLDER} has {sorted(shipped)}, its sources give {made}")
        for name in made:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                if file.read() != shipped.get(name):
                    complaints.append(f"{name} is not what its source gives: run backends/cuda/kernels/make_ptx")
    return repository.report(complaints)


sys.exit(main())
