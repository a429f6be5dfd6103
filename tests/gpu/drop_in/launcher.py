# SPDX-License-Identifier: Apache-2.0
"""Starts a case as users of torch_memory_saver start an engine: configure_subprocess() around its process's start."""
import os
import subprocess
import sys

from torch_memory_saver import configure_subprocess


def main():
    before = os.environ.get("LD_PRELOAD")
    with configure_subprocess():
        process = subprocess.Popen([sys.executable, *sys.argv[1:]])
    if os.environ.get("LD_PRELOAD") != before:
        sys.exit("configure_subprocess left LD_PRELOAD changed")
    code = process.wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
