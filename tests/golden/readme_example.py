# SPDX-License-Identifier: Apache-2.0
"""readme_example.py COMPILER LIBRARY_FOLDER: the C program of README.md compiles, runs on the simulated GPU, and prints what
README.md says."""

import os
import re
import subprocess
import sys
import tempfile

import repository


def main():
    compiler, libraries = sys.argv[1:]
    readme = repository.read("README.md")
    program = re.search(r"^```c\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE).group(1)
    promised = re.search(r"^\$ LD_LIBRARY_PATH=.* \./example\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE).group(1)
    with tempfile.TemporaryDirectory() as folder:
        source, built = os.path.join(folder, "example.c"), os.path.join(folder, "example")
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        subprocess.run([compiler, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", built,
                        f"-I{repository.ROOT}/allocator/include", f"-L{libraries}", "-llowtide", f"-Wl,-rpath,{libraries}"],
                       check=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LOWTIDE_")}
        environment.update(LD_LIBRARY_PATH=f"{libraries}/simulated", LOWTIDE_RUNTIME_DIR=folder)
        os.chmod(folder, 0o700)
        printed = subprocess.run([built], env=environment, check=True, capture_output=True, text=True, timeout=60).stdout
    return repository.report([] if printed == promised else [f"README.md promises:\n{promised}printed:\n{printed}"])


sys.exit(main())
