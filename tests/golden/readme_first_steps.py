# SPDX-License-Identifier: Apache-2.0
"""readme_first_steps.py BUILD_FOLDER: the first steps of README.md, which need no GPU, do and print what it says."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import repository

HEADING = "## Pause a process, with or without a GPU\n"
# As if somebody typed the steps: the program is up before the next one, and does not stay when one fails.
AT_EXIT = "trap 'kill $! 2>/dev/null' EXIT"
AFTER_START = "until lowtide ps | grep -q hello.py; do sleep 0.05; kill -0 $! || exit; done"


def steps_of(readme):
    """The program, the commands, and what they are to print."""
    section = readme.split(HEADING)[1].split("\n## ")[0]
    program = re.search(r"^```python\n(.*?)^```$", section, re.DOTALL | re.MULTILINE).group(1)
    lines = re.search(r"^```\n(\$.*?)^```$", section, re.DOTALL | re.MULTILINE).group(1).splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    return program, commands, [line for line in lines if not line.startswith("$ ")]


def comparable(lines):
    """Without what differs between runs and machines: PIDs, times, the interpreter's folder, the width of columns."""
    text = "\n".join(" ".join(line.split()) for line in lines)
    text = re.sub(r"^\d+ |(?<=^process )\d+", "PID ", text, flags=re.MULTILINE)
    return re.sub(r"\S*/(?=python)", "", re.sub(r"[\d.]+ s$", "TIME", text, flags=re.MULTILINE))


def main():
    build, = sys.argv[1:]
    program, commands, promised = steps_of(repository.read("README.md"))
    script = "\n".join([AT_EXIT, *(f"{each}\n{AFTER_START}" if each.endswith("&") else each for each in commands)])
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "hello.py").write_text(program, encoding="utf-8")
        (pathlib.Path(folder) / "build").mkdir()
        (pathlib.Path(folder) / "build" / "release").symlink_to(build)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("LOWTIDE_")}
        played = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env={**environment, "LOWTIDE_RUNTIME_DIR": folder + "/run"},
                                capture_output=True, text=True, timeout=50, check=False)
    printed = played.stdout.splitlines()
    if played.returncode == 0 and played.stderr == "" and comparable(printed) == comparable(promised):
        return 0
    return repository.report([f"exit {played.returncode}, said: {played.stderr}", "README.md promises:", *promised, "printed:", *printed])


sys.exit(main())
