# SPDX-License-Identifier: Apache-2.0
"""python -m lowtide ...: the `lowtide` command of this package, or of the PATH."""
import os
import pathlib
import shutil
import sys


def main() -> int:
    own = pathlib.Path(__file__).parent / "bin" / "lowtide"
    command = str(own) if own.exists() else shutil.which("lowtide")
    if command is None:
        print(f"lowtide: the command is neither in {own.parent} nor in PATH", file=sys.stderr)
        return 127
    os.execv(command, ["lowtide", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
