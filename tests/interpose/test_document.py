# SPDX-License-Identifier: Apache-2.0
"""The table of docs/interposition.md is the list of hooks.def. With --write, makes it so."""

import os
import re
import sys

BEGIN = "<!-- hooks: begin -->\n"
END = "<!-- hooks: end -->\n"
SUFFIXES = (("z", "_ptsz"), ("d", "_ptds"), ("s", "_spt"))


def listed(path):
    """(group, class, name) of every symbol, in order; a group is introduced by a comment of its own."""
    group, rows = "", []
    here = os.path.dirname(path)
    text = open(path, encoding="utf-8").read() + open(os.path.join(here, "hip_hooks.def"), encoding="utf-8").read()
    for line in text.splitlines():
        if comment := re.fullmatch(r"/\* (.*) \*/", line):
            group = comment.group(1)
        elif hook := re.fullmatch(r"(?:HOOK\((\w+), (\w+), \w+|HIP\((\w+), (\w+))\)", line):
            rows.append((group, hook.group(2) or hook.group(4), hook.group(1) or hook.group(3)))
        elif door := re.fullmatch(r"LOADER\((\w+)\)", line):
            rows.append(("The dynamic loader.", "RESOLVE", door.group(1)))
    return rows


def folded(names):
    """Names in order, those that also exist with a per-thread-stream suffix written once: `name` z, d or s."""
    every = set(names)
    out = []
    for name in names:
        if (suffix := re.search(r"_(?:pt[sd][zs]|spt)$", name)) and name[:suffix.start()] in every:
            continue
        twin = next((mark for mark, suffix in SUFFIXES if name + suffix in every), "")
        out.append(f"`{name}`{twin}")
    return " ".join(out)


def table(rows):
    groups = {}
    for group, kind, name in rows:
        groups.setdefault((group, kind), []).append(name)
    lines = ["| group | class | symbols |", "| --- | --- | --- |"]
    lines += [f"| {group} | {kind} | {folded(names)} |" for (group, kind), names in groups.items()]
    return "\n".join(lines) + "\n"


def main():
    hooks, document = sys.argv[1:3]
    text = open(document, encoding="utf-8").read()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = before + BEGIN + table(listed(hooks)) + END + after
    if wanted == text:
        return 0
    if "--write" in sys.argv:
        open(document, "w", encoding="utf-8").write(wanted)
        return 0
    print(f"the table of {document} is not the list of {hooks}; {sys.argv[0]} HOOKS DOCUMENT --write makes it so")
    return 1


sys.exit(main())
