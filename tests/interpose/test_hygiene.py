# SPDX-License-Identifier: Apache-2.0
"""Preloaded into programs that never use a GPU, the doors change and start nothing."""

import os
import shutil
import subprocess
import sys

PROGRAMS = [
    ["/bin/true"],
    ["git", "--version"],
    ["bash", "-c", "echo child; /bin/true"],
    [sys.executable, "-c", "import threading, socket, ctypes; print('python')"],
]

# Threads, open files and sockets, and mapped libraries, as the process itself sees them.
INSIDE = """
import ctypes, os
print(sorted(os.listdir('/proc/self/task')) == [str(os.getpid())])
print(sorted(fd for fd in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{fd}')))
maps = open('/proc/self/maps').read()
print('liblowtide.so' in maps)
"""

failures = 0


def check(holds, message):
    global failures
    if not holds:
        failures += 1
        print("does not hold:", message)


def run(command, preload):
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    if preload:
        environment["LD_PRELOAD"] = preload
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def is_preloaded(preload):
    status, out, _ = run(["cat", "/proc/self/maps"], preload)
    return status == 0 and "liblowtide_preload.so" in out


def main():
    preload = os.path.abspath(sys.argv[1])
    check(is_preloaded(preload), "the library is mapped when it is preloaded")
    for program in PROGRAMS:
        if shutil.which(program[0]) is None:
            print("left out, not installed:", program[0])
            continue
        check(run(program, preload) == run(program, None), f"{program[0]} answers and prints the same")
    inside = [sys.executable, "-c", INSIDE]
    alone = run(inside, None)
    check(alone[0] == 0 and alone[1].startswith("True"), f"the comparison itself works: {alone}")
    check(run(inside, preload) == alone, "no thread, no file, no socket, no state")
    return 1 if failures else 0


sys.exit(main())
