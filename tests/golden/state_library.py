# SPDX-License-Identifier: Apache-2.0
"""What the file liblowtide.so promises to the processes that load it."""

import argparse
import pathlib
import re
import subprocess
import sys

MOST_TLS_BYTES = 64
NEWEST_GLIBC = (2, 34)  # Ubuntu 22.04, a usual image of the engines, has 2.35
# Any process that runs a GPU program has these; a vendor library here would make it fail where there is none.
ALLOWED_NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}

failures = 0


def check(holds, message):
    global failures
    if not holds:
        failures += 1
        print("does not hold:", message)


def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def declared(header):
    return set(re.findall(r"^LOWTIDE_API .*?\b(lowtide_\w+)\(", header.read_text(), re.M))


def compat(table):
    return set(re.findall(r"^TMS(?:_RESUME)?\(.*?, (\w+), \(", table.read_text(), re.M))


def exported(library):
    rows = [line.split() for line in readelf("--dyn-syms", library).splitlines()]
    return {row[7] for row in rows if len(row) == 8 and row[6] not in ("UND", "Ndx") and row[4] != "LOCAL"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--header", type=pathlib.Path, required=True)
    parser.add_argument("--compat", type=pathlib.Path, required=True)
    options = parser.parse_args()
    wanted = declared(options.header) | compat(options.compat) | {"lowtide_door_table_v1_get"}
    found = exported(options.library)
    check(found == wanted, f"exports are lowtide.h, torch_memory_saver.def and the door table: missing {wanted - found}, beyond {found - wanted}")

    dynamic = readelf("-d", options.library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    check(needed <= ALLOWED_NEEDED, f"nothing is needed but libc and libgcc_s: {needed - ALLOWED_NEEDED}")
    check("NODELETE" in dynamic, "it cannot be unloaded (-z nodelete)")
    check("VERDEF" not in dynamic, "it defines no versions")

    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("--version-info", options.library))
    newest = max((int(major), int(minor)) for major, minor in versions)
    check(newest <= NEWEST_GLIBC, f"nothing above GLIBC_2.34 is needed: {newest}")

    tls = re.search(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", readelf("-l", options.library), re.M)
    check(tls is not None and int(tls.group(1), 16) <= MOST_TLS_BYTES, "static TLS stays small")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
