# SPDX-License-Identifier: Apache-2.0
"""The project's own files, with or without git, and C++ text without what is not code."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = (".cpp", ".hpp", ".h", ".S", ".def", ".cu", ".py")
SOURCE_FOLDERS = ("allocator", "backends", "shim", "tools")


def files(*folders):
    """Paths relative to the root, sorted, of the files in `folders`; of the whole project without an argument."""
    found = []
    if not folders:
        folders = (*SOURCE_FOLDERS, "tests", "docs", ".ci")
        found = [path.name for path in ROOT.iterdir() if path.is_file()]
    for folder in folders:
        for where, below, names in os.walk(ROOT / folder):
            below[:] = [name for name in below if name != "__pycache__"]
            found += [(pathlib.Path(where) / name).relative_to(ROOT).as_posix() for name in names]
    return sorted(found)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def without_comments(text, strings=True):
    """`text` with comments, and unless `strings` the contents of literals, blanked; line numbers stay."""
    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if strings else token[0] * 2
        return "\n" * token.count("\n") or " "

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', blank, text,
                  flags=re.DOTALL)


def report(complaints):
    """Prints them; the exit status of the test."""
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0
