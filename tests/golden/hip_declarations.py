# SPDX-License-Identifier: Apache-2.0
"""hip_declarations.py CXX: our declarations of HIP are AMD's, where AMD's header is installed (Debian: libamdhip64-dev).

Both headers are compiled together, which finds every function of another type; the values of all enumerators and macros
and the layout of all structures are printed under each and compared.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import repository

OURS = "backends/hip/hip_declarations.h"
SKIPPED = 77
# Structures that changed, and the major versions of HIP that have them as we do.
ONLY_IN = {"hipMemAllocationProp": range(6, 100), "hipPointerAttribute_t": range(5, 6)}
VENDOR = ("-D__HIP_PLATFORM_AMD__", "-isystem", "/opt/rocm/include", "-w")


def compiled(compiler, program, *options):
    """Builds and runs `program`; its output, or None with the compiler's complaint on stderr."""
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "facts.cpp"), pathlib.Path(folder, "facts")
        source.write_text(program, encoding="utf-8")
        built = subprocess.run([compiler, "-std=c++20", "-I", repository.ROOT, *options, source, "-o", binary])
        if built.returncode != 0:
            return None
        return subprocess.run([binary], check=True, capture_output=True, text=True).stdout


def fields_of(body):
    """The members of a structure; those of an inner one by their path."""
    inner = re.search(r"struct \{(.*?)\} (\w+);", body, re.DOTALL)
    names = [f"{inner[2]}.{field}" for field in fields_of(inner[1])] + [inner[2]] if inner else []
    outer = body.replace(inner[0], "") if inner else body
    for declaration in outer.split(";")[:-1]:
        names += [re.search(r"(\w+)(?:\[\w+\])?$", part.strip())[1] for part in declaration.split(",")]
    return names


def facts(header, major):
    """C++ expressions of what has to be equal in that version of HIP."""
    for body in re.findall(r"typedef enum \w+ \{(.*?)\}", header, re.DOTALL):
        yield from re.findall(r"(\w+)(?: = \w+)?\s*(?:,|$)", body.strip())
    yield from re.findall(r"#define (hip\w+) ", header)
    for body, name in re.findall(r"typedef struct \w+ \{\n(.*?)^\} (\w+);", header, re.DOTALL | re.MULTILINE):
        if major not in ONLY_IN.get(name, (major,)):
            continue
        yield f"sizeof({name})"
        yield from (f"offsetof({name}, {field})" for field in fields_of(body))


def major_version(compiler):
    """Of AMD's header; None where there is none."""
    command = [compiler, "-std=c++20", *VENDOR, "-include", "hip/hip_runtime_api.h", "-E", "-dM", "-x", "c++", "/dev/null"]
    found = re.search(r"#define HIP_VERSION_MAJOR (\d+)", subprocess.run(command, capture_output=True, text=True).stdout)
    return int(found[1]) if found else None


def main():
    compiler = sys.argv[1]
    major = major_version(compiler)
    if major is None:
        print("there is no hip/hip_runtime_api.h here to compare with (Debian: libamdhip64-dev)")
        return SKIPPED
    header = re.sub(r"/\*.*?\*/", "", repository.read(OURS), flags=re.DOTALL)
    expressions = list(facts(header, major))
    if len(expressions) < 100:
        return repository.report([f"only {len(expressions)} facts were read from {OURS}"])
    lines = "".join(f'  std::printf("%s = %lld\\n", "{fact}", (long long)({fact}));\n' for fact in expressions)
    program = f"#include <cstddef>\n#include <cstdio>\n#include VENDORS\n#include \"{OURS}\"\nint main() {{\n{lines}}}\n"
    ours = compiled(compiler, program, "-DVENDORS=<cstddef>")
    theirs = compiled(compiler, program, "-DVENDORS=<hip/hip_runtime_api.h>", *VENDOR)
    if ours is None or theirs is None:
        return repository.report([f"{OURS} does not compile, or not beside AMD's header"])
    return repository.report([f"{OURS} says {mine}, AMD's header {other}"
                              for mine, other in zip(ours.splitlines(), theirs.splitlines()) if mine != other])


sys.exit(main())
