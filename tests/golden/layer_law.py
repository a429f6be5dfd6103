# SPDX-License-Identifier: Apache-2.0
"""The layer law of allocator/README.md, read from the includes. --self-test: planted breaches are found."""

import re
import sys

import repository

ALLOCATOR = {
    "base": "base",
    "core": "base core",
    "backup": "base core backup",
    "trace": "base core trace",
    "control": "base core control",
    "policy": "base core backup trace control policy",
    "runtime": "base core backup trace control policy runtime",
    "api": "base core backup trace control policy runtime api",
}
TOOLS_MAY_USE = ("base", "trace", "control", "policy")
# HIP's types and functions, which stand for the vendor's header.
HIP_DECLARATIONS = "backends/hip/hip_declarations.h"
PORT = tuple(f"allocator/core/{name}.hpp" for name in ("types", "backend", "held_addresses", "trial_memory"))
VENDOR = re.compile(r"cuda\w*(?:\.h|/.*)|cu(?:blas|dnn)\w*\.h|nccl\.h|nvml\.h|hip/.*|hsa/.*|rccl/.*")
VENDOR_FOLDERS = ("backends/cuda/", "backends/hip/", "backends/simulated/", "shim/")
# It stands for a user's program in the demo: it uses the C API and the driver as such a program does.
A_USERS_PROGRAM = "tools/demo/worker.cpp"

ENDS_THE_PROCESS = re.compile(r"\b(?:_?exit|_Exit|quick_exit|abort|terminate)\s*\(")
GETENV = re.compile(r"\b(?:secure_)?getenv\s*\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def allocator_layer(path):
    parts = path.split("/")
    if len(parts) == 3 and parts[1] in ALLOCATOR:
        return parts[1]
    return "runtime" if parts[1].startswith("runtime") else "api"


def may_include(path, included):
    """Whether the file `path` may include the project's file `included`."""
    here, there = path.split("/")[0], included.split("/")[0]
    if here == there and here in ("shim", "tools"):
        return True
    if path == A_USERS_PROGRAM and included == "allocator/include/lowtide/lowtide.h":
        return True
    if there == "allocator":
        layer = allocator_layer(included)
        return {
            "allocator": lambda: layer in ALLOCATOR[allocator_layer(path)].split(),
            "backends": lambda: layer == "base" or included in PORT,
            "shim": lambda: True,
            "tools": lambda: layer in TOOLS_MAY_USE,
        }[here]()
    if there == "backends":
        return here == "shim" or path.split("/")[:2] == included.split("/")[:2] or (
            here == "backends" and included == HIP_DECLARATIONS)
    return False


def breaches(path, text, exists):
    """What `path` with the content `text` does against the law; `exists` tells which of the project's files there are."""
    code = repository.without_comments(text)
    found = []
    for quote, included in INCLUDE.findall(code):
        if quote == '"':
            if not exists(included):
                found.append(f"includes {included}, which is no path from the root of the project")
            elif not may_include(path, included):
                found.append(f"includes {included}")
        elif VENDOR.fullmatch(included) and not path.startswith(VENDOR_FOLDERS) and path != A_USERS_PROGRAM:
            found.append(f"includes the vendor's {included}")
        elif included == "dlfcn.h" and path.startswith("allocator/"):
            found.append("includes dlfcn.h")
    code = repository.without_comments(text, strings=False)
    if not path.startswith("allocator/base/env."):
        found += [f"calls {call}), which only allocator/base/env does" for call in GETENV.findall(code)]
    if path.startswith(("allocator/", "shim/", "backends/cuda/")):
        found += [f"calls {call}) in somebody else's process" for call in ENDS_THE_PROCESS.findall(code)]
    return [f"{path}: {what}" for what in found]


PLANTED = [
    ("allocator/base/x.hpp", '#include "allocator/core/types.hpp"'),
    ("allocator/core/x.cpp", '#include "allocator/backup/slab.hpp"'),
    ("allocator/control/x.cpp", '  #  include "allocator/policy/keys.hpp"'),
    ("allocator/backup/x.cpp", '#include "allocator/control/send.hpp"'),
    ("allocator/policy/x.cpp", '#include "allocator/runtime.hpp"'),
    ("allocator/runtime_x.cpp", '#include "allocator/lowtide_c.hpp"'),
    ("allocator/core/x.cpp", "#include <cuda.h>"),
    ("allocator/core/x.cpp", "#include <dlfcn.h>"),
    ("allocator/core/x.cpp", '#include "backends/cuda/driver.hpp"'),
    ("allocator/core/x.cpp", '#include "shim/door_table.h"'),
    ("allocator/core/x.cpp", '#include "types.hpp"'),
    ("allocator/core/x.cpp", "if (bad) std::abort ();"),
    ("allocator/core/x.cpp", 'const char* home = getenv("HOME");'),
    ("backends/cuda/x.cpp", '#include "backends/simulated/stream.hpp"'),
    ("backends/cuda/x.cpp", '#include "allocator/core/extent.hpp"'),
    ("backends/simulated/x.cpp", '#include "shim/door_table.h"'),
    ("backends/simulated/x.cpp", '#include "backends/hip/device.hpp"'),
    ("tools/x.cpp", '#include "backends/hip/hip_declarations.h"'),
    ("shim/x.cpp", "::_exit(1);"),
    ("tools/x.cpp", '#include "allocator/core/types.hpp"'),
    ("tools/x.cpp", '#include "allocator/include/lowtide/lowtide.h"'),
    ("tools/x.cpp", '#include "shim/process.hpp"'),
    ("tools/x.cpp", '#include "tests/catch.hpp"'),
    ("tools/x.cpp", "#include <hip/hip_runtime.h>"),
]
LAWFUL = [
    ("allocator/core/x.cpp", '// #include "shim/door_table.h"\n#include "allocator/base/log.hpp"\nlog("abort()");'),
    ("allocator/core/x.cpp", "std::atexit(leave); on_exit_began(); /* exit(1) */"),
    ("backends/cuda/x.cpp", '#include <cuda.h>\n#include "allocator/core/backend.hpp"'),
    ("shim/x.cpp", '#include <dlfcn.h>\n#include "allocator/runtime.hpp"'),
    ("tools/x.cpp", '#include "allocator/policy/keys.hpp"\n#include <cstdlib>\nvoid f() { std::exit(1); }'),
]


def self_test():
    exists = lambda path: "/" in path
    missed = [f"not found: {path}: {text}" for path, text in PLANTED if not breaches(path, text, exists)]
    return missed + [line for path, text in LAWFUL for line in breaches(path, text, exists)]


def main():
    if "--self-test" in sys.argv:
        return repository.report(self_test())
    exists = lambda path: (repository.ROOT / path).is_file()
    sources = [path for path in repository.files(*repository.SOURCE_FOLDERS) if path.endswith(repository.CODE[:5])]
    if len(sources) < 50:
        return repository.report([f"only {len(sources)} sources found below {repository.ROOT}"])
    return repository.report([line for path in sources for line in breaches(path, repository.read(path), exists)])


sys.exit(main())
