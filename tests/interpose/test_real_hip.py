# SPDX-License-Identifier: Apache-2.0
"""Under the doors, HIP's own runtime answers as without them on a machine that has no AMD GPU: the same results, no
output, no thread, no file. The script is its own program (--inside)."""

import argparse
import ctypes
import os
import subprocess
import sys

SKIPPED = 77
CALLS = ("hipInit", "hipGetDeviceCount", "hipMalloc", "hipMallocAsync", "hipFree", "hipMemcpy", "hipDeviceReset",
         "hipGetDevice", "hipGetLastError", "hipIpcGetMemHandle", "hipPointerGetAttributes")


def inside(library):
    """Calls what a program calls first, twice, and tells what it got and what there is in the process then."""
    hip = ctypes.CDLL(library)
    for _ in range(2):
        room = [ctypes.create_string_buffer(256) for _ in range(4)]
        for name in CALLS:
            arguments = {"hipInit": [0], "hipGetLastError": [], "hipDeviceReset": [],
                         "hipMalloc": [room[0], ctypes.c_size_t(1 << 20)],
                         "hipMallocAsync": [room[0], ctypes.c_size_t(1 << 20), None],
                         "hipMemcpy": [room[1], room[2], ctypes.c_size_t(64), 4]}.get(name, room[:2])
            print(name, getattr(hip, name)(*arguments), room[0].raw[:8].hex(), hip.hipPeekAtLastError())
    threads = {open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}
    files = sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                   if os.path.exists(f"/proc/self/fd/{fd}"))
    print(len(os.listdir("/proc/self/task")), sorted(threads), [file.split(":[")[0] for file in files if not file.startswith("/proc")])


def run(library, runtime_folder, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LD_PRELOAD", "LOWTIDE_"))}
    done = subprocess.run([sys.executable, __file__, "--inside", library], stdin=subprocess.DEVNULL, timeout=120,
                          env={**clean, "LOWTIDE_RUNTIME_DIR": runtime_folder, **environment}, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--inside")
    parser.add_argument("--preload")
    parser.add_argument("--runtime-folder")
    options = parser.parse_args()
    if options.inside:
        return inside(options.inside)
    library = next((name for name in ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5") if opens(name)), None)
    if library is None or os.path.exists("/dev/kfd"):
        print("left out: no libamdhip64, or an AMD GPU beside it")
        return SKIPPED
    os.makedirs(options.runtime_folder, exist_ok=True)
    alone = run(library, options.runtime_folder)
    status = 0 if alone[0] == 0 and "hipMalloc" in alone[1] else 1
    for environment in ({}, {"LOWTIDE_DEFAULT_TAG": "weights"}):
        under = run(library, options.runtime_folder, LD_PRELOAD=options.preload, **environment)
        if under != alone:
            print("alone:", *alone, "under the doors:", environment, *under, sep="\n")
            status = 1
    if os.listdir(options.runtime_folder):
        print("files were left:", os.listdir(options.runtime_folder))
        status = 1
    return status


def opens(name):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


sys.exit(main())
