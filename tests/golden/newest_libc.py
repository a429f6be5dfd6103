# SPDX-License-Identifier: Apache-2.0
"""What is built on one machine runs on another: no file asks for a libc newer than that of Ubuntu 22.04."""

import re
import subprocess
import sys

NEWEST_GLIBC = (2, 35)


def newest(path):
    text = subprocess.run(["readelf", "-W", "--version-info", path], check=True, capture_output=True, text=True).stdout
    return max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", text))


def main():
    found = {path: newest(path) for path in sys.argv[1:]}
    for path, version in found.items():
        if version > NEWEST_GLIBC:
            print(f"{path} needs GLIBC_{version[0]}.{version[1]}, Ubuntu 22.04 has {NEWEST_GLIBC[0]}.{NEWEST_GLIBC[1]}")
    return 1 if not found or any(version > NEWEST_GLIBC for version in found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
