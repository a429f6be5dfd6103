# SPDX-License-Identifier: Apache-2.0
"""What the file liblowtide_preload.so promises to the processes it is preloaded into."""

import argparse
import os
import re
import subprocess
import sys

MOST_TLS_BYTES = 64
NEWEST_GLIBC = (2, 34)
ALLOWED_NEEDED = {"libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LOADER_DOORS = ["dlsym", "dlvsym", "dlopen"]

failures = 0


def check(holds, message):
    global failures
    if not holds:
        failures += 1
        print("does not hold:", message)


def output(*command, text=None):
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def listed_symbols(preprocess, hooks):
    """The names in hooks.def and in torch_memory_saver.def, as the compiler's preprocessor reads them."""
    compat = os.path.join(os.path.dirname(hooks), "compat", "torch_memory_saver.def")
    marked = (f'#define HOOK(name, class, typedef) SYMBOL name\n#define HIP(name, class) SYMBOL name\n'
              f'#define LOADER(name) SYMBOL name\n#include "{hooks}"\n'
              f'#define TMS(type, name, parameters, arguments, otherwise) SYMBOL name\n#define TMS_RESUME TMS\n#include "{compat}"\n')
    return set(re.findall(r"SYMBOL (\w+)", output(*preprocess, "-", text=marked)))


def exported_symbols(readelf, library):
    rows = [line.split() for line in output(readelf, "--dyn-syms", "-W", library).splitlines()]
    rows = [row for row in rows if len(row) == 8 and row[0].rstrip(":").isdigit() and row[6] != "UND" and row[4] != "LOCAL"]
    check(all(row[4] == "GLOBAL" and row[3] == "FUNC" for row in rows), "every export is a plain global function")
    check(not any("@" in row[7] for row in rows), "exports carry no version")
    return {row[7] for row in rows}


def check_dynamic(readelf, library):
    dynamic = output(readelf, "-d", "-W", library)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
    check(needed <= ALLOWED_NEEDED, f"NEEDED is libc alone: {needed}")
    check("NODELETE" in dynamic, "it cannot be unloaded (-z nodelete)")
    check("VERDEF" not in dynamic, "it defines no versions: a named node would miss interposed references")
    check(re.search(r"\(RUNPATH\).*\[\$ORIGIN\]", dynamic), "it finds liblowtide.so beside itself")
    check("TEXTREL" not in dynamic, "no text relocations")
    constructors = re.search(r"INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    check(int(constructors.group(1)) <= 8, "no constructor but the compiler's own frame_dummy")


def check_versions(readelf, library):
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output(readelf, "--version-info", "-W", library))
    newest = max((int(major), int(minor)) for major, minor in versions)
    check(newest <= NEWEST_GLIBC, f"nothing above GLIBC_2.34 is needed: {newest}")


def check_segments(readelf, library):
    segments = output(readelf, "-l", "-W", library)
    tls = re.search(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x[0-9a-f]+)", segments, re.M)
    check(tls is None or int(tls.group(1), 16) <= MOST_TLS_BYTES, "static TLS stays small")
    check(re.search(r"GNU_STACK.*\bRW\b", segments), "the stack stays non-executable")


def check_tail_jump(objdump, library, name):
    """A frame of ours would make the loader take us for the one who asks (RTLD_NEXT, RUNPATH)."""
    disassembly = output(objdump, "-d", "--no-show-raw-insn", library)
    code = re.search(rf"<{name}>:\n(.*?)\n\n", disassembly, re.S).group(1)
    calls = re.findall(r"\s(?:callq?|bl)\s+\S+ <(\S+)>", code)
    check(calls == [f"lowtide_decide_{name}"], f"{name} calls its decider and nothing else: {calls}")
    check(re.search(rf"jmpq?\s+\*.*<lowtide_real_{name}>|\bbr\s+x16", code), f"{name} jumps to the real function")


def main():
    parser = argparse.ArgumentParser()
    for option in ("library", "hooks", "readelf", "objdump"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--preprocess", nargs=argparse.REMAINDER, required=True)
    options = parser.parse_args()
    exported = exported_symbols(options.readelf, options.library)
    listed = listed_symbols(options.preprocess, options.hooks)
    check(exported == listed, f"exports are the list: missing {listed - exported}, beyond it {exported - listed}")
    check_dynamic(options.readelf, options.library)
    check_versions(options.readelf, options.library)
    check_segments(options.readelf, options.library)
    for name in LOADER_DOORS:
        check_tail_jump(options.objdump, options.library, name)
    return 1 if failures else 0


sys.exit(main())
