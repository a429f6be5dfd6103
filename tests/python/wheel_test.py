# SPDX-License-Identifier: Apache-2.0
"""wheel_test.py Own|Other: the wheel for this machine, installed into a fresh virtual environment and used there on the
simulated GPU; or that for the other machine, loaded under qemu. Exits 77 where it cannot be built."""
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "shim" / "python" / "lowtide"
PROJECT = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
VERSION = re.search(r"project\(lowtide VERSION ([0-9.]+)", PROJECT).group(1)
MACHINE = platform.machine()
OTHER = {"x86_64": "aarch64", "aarch64": "x86_64"}.get(MACHINE)
BINARIES = {"lowtide/bin/lowtide", "lowtide/bin/lowtide-demo-worker", "lowtide/bin/lowtide-probe",
            "lowtide/lib/liblowtide.so", "lowtide/lib/liblowtide_preload.so"}
ALLOWED_NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
                  "liblowtide.so"}
NEWEST_GLIBC = (2, 34)

PROGRAM = """
import ctypes, sys
import lowtide

def call(name, *arguments):
    assert getattr(cuda, name)(*arguments) == 0, name

assert "torch" not in sys.modules
size = 8 << 20
cuda = ctypes.CDLL("libcuda.so.1")
context, block, seen = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.create_string_buffer(5)
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
with lowtide.scope("weights"):
    call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
call("cuMemcpyHtoD_v2", block, b"bytes", ctypes.c_size_t(5))
report = lowtide.pause("weights")
before, after = report.free[0]
assert report.parked == size and after - before == size, report
assert lowtide.resume("weights").parked == size
call("cuMemcpyDtoH_v2", seen, block, ctypes.c_size_t(5))
assert seen.raw == b"bytes", seen.raw
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if "/liblowtide" in line}))
"""

LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** libraries) {
  for (int i = 1; i < count; ++i) {
    void* library = dlopen(libraries[i], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    const char* (*last_error)(void) = (const char* (*)(void))dlsym(library, "lowtide_last_error");
    printf("%s\\n", last_error ? last_error() : "no C API");
  }
}
"""


def output(*command, **options):
    result = subprocess.run([*map(str, command)], text=True, capture_output=True, timeout=600, check=False, **options)
    assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def build(machine):
    """The paths of the wheels: Lowtide's, and that of the module name torch_memory_saver."""
    made = subprocess.run([ROOT / "tools/dev/wheel", machine], text=True, stdout=subprocess.PIPE, timeout=1500,
                          check=True)
    return [pathlib.Path(line) for line in made.stdout.splitlines()]


class WheelTest(unittest.TestCase):
    machine = None

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="lowtide-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.wheel, cls.extra = build(cls.machine)
        cls.unpacked = cls.folder / "unpacked"
        output(sys.executable, "-m", "zipfile", "-e", cls.wheel, cls.unpacked)

    def check_files(self):
        sources = {f"lowtide/{path.relative_to(PACKAGE)}" for path in PACKAGE.rglob("*.py")}
        about = {f"lowtide-{VERSION}.dist-info/{name}" for name in
                 ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE",
                  "licenses/THIRD_PARTY_NOTICES")}
        with zipfile.ZipFile(self.wheel) as archive:
            names = {name for name in archive.namelist() if not name.endswith("/")}
            programs = {entry.filename for entry in archive.infolist() if entry.external_attr >> 16 & 0o111}
            metadata, tags = (archive.read(f"lowtide-{VERSION}.dist-info/{name}").decode()
                              for name in ("METADATA", "WHEEL"))
        self.assertEqual(names, sources | about | BINARIES | {"lowtide/py.typed", "lowtide/include/lowtide/lowtide.h"})
        self.assertLessEqual({name for name in BINARIES if "/bin/" in name}, programs)
        self.assertEqual(re.findall(r"^Tag: (.*)$", tags, re.M), [f"py3-none-manylinux_2_34_{self.machine}"])
        needed = re.findall(r"^Requires-Dist: .*$", metadata, re.M)
        self.assertEqual([line for line in needed if "extra ==" not in line], [])

    def check_binaries(self):
        for name in BINARIES:
            found = output("readelf", "-W", "--file-header", "--dynamic", "--version-info", self.unpacked / name)
            self.assertIn({"x86_64": "X86-64", "aarch64": "AArch64"}[self.machine], found)
            self.assertLessEqual(set(re.findall(r"\(NEEDED\).*\[(.*)\]", found)), ALLOWED_NEEDED, name)
            versions = re.findall(r"\bGLIBC_(\d+)\.(\d+)", found)
            self.assertLessEqual(max((int(major), int(minor)) for major, minor in versions), NEWEST_GLIBC, name)
            self.assertNotIn("GLIBCXX_", found, name)
            self.assertLessEqual(set(re.findall(r"\(RUNPATH\).*\[(.*)\]", found)), {"$ORIGIN", "$ORIGIN/../lib"}, name)


class Own(WheelTest):
    machine = MACHINE

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.installed("environment")
        cls.python = cls.prefix / "bin" / "python"
        cls.environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": os.environ["LOWTIDE_TEST_SIMULATED"],
                           "LOWTIDE_SIM_DIR": str(cls.folder / "sim"), "LOWTIDE_SIM_MEMORY": "1G",
                           "LOWTIDE_RUNTIME_DIR": str(cls.folder / "run")}

    @classmethod
    def installed(cls, name):
        prefix = cls.folder / name
        venv.create(prefix, with_pip=True, symlinks=True)
        cls.pip(prefix, "list")  # leaves what Python compiles at its start
        cls.files_before = cls.files(prefix)
        cls.pip(prefix, "install", "--no-index", "--find-links", cls.wheel.parent,
                f"lowtide[torch-memory-saver]=={VERSION}")
        return prefix

    @staticmethod
    def pip(prefix, *arguments):
        return output(prefix / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *arguments)

    @staticmethod
    def files(prefix):
        return {path for path in prefix.rglob("*") if "pip" not in path.parts}

    def test_the_wheel_holds_what_it_should_and_nothing_else(self):
        self.check_files()

    def test_nothing_in_it_asks_for_a_newer_libc_a_vendor_library_or_a_libstdcxx(self):
        self.check_binaries()

    def test_both_ways_to_the_command_are_the_command_of_this_version(self):
        for command in ([self.prefix / "bin" / "lowtide"], [self.python, "-m", "lowtide"]):
            self.assertIn(VERSION, output(*command, "--version", env=self.environment))
        told = output(self.prefix / "bin" / "lowtide", "doctor", "--json", env=self.environment)
        self.assertIn("the simulated one", told)  # by the probe that is installed with it

    def test_a_program_pauses_and_resumes_with_the_installed_libraries_and_without_torch(self):
        libraries = list(self.prefix.glob("lib/python3*/site-packages/lowtide/lib/*"))
        self.assertEqual(len(libraries), 2)
        expected = " ".join(sorted(map(str, libraries))) + "\n"
        for command in ([self.prefix / "bin" / "lowtide"], [self.python, "-m", "lowtide"]):
            found = output(*command, "run", "--", self.python, "-c", PROGRAM, env=self.environment)
            self.assertEqual(found, expected)

    def test_the_extra_gives_the_module_name_torch_memory_saver(self):
        program = ("import torch_memory_saver as name, torch_memory_saver.utils as utils\n"
                   "import lowtide.compat.torch_memory_saver as ours\n"
                   "assert all(getattr(name, each) is getattr(ours, each) for each in name.__all__)\n"
                   "assert utils.get_binary_path_from_package('torch_memory_saver_hook_mode_preload')\n")
        output(self.python, "-c", program, env=self.environment)

    def test_the_extra_refuses_to_work_beside_the_original(self):
        original = self.folder / "original" / "torch_memory_saver-0.0.9.dist-info"
        original.mkdir(parents=True)
        (original / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_memory_saver\nVersion: 0.0.9\n",
                                           encoding="utf-8")
        result = subprocess.run([self.python, "-c", "import torch_memory_saver"], text=True, capture_output=True,
                                env={**self.environment, "PYTHONPATH": str(original.parent)}, check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("torch_memory_saver 0.0.9 and lowtide-torch-memory-saver are both installed", result.stderr)

    def test_an_uninstall_leaves_nothing(self):
        prefix = self.installed("uninstalled")
        output(prefix / "bin" / "python", "-c", "import lowtide.compat.torch_memory_saver", env=self.environment)
        self.assertNotEqual(self.files(prefix), self.files_before)
        self.pip(prefix, "uninstall", "--yes", "lowtide", "lowtide-torch-memory-saver")
        self.assertEqual(self.files(prefix), self.files_before)


class Other(WheelTest):
    machine = OTHER

    def emulated(self, *command, **variables):
        settings = [part for item in variables.items() for part in ("-E", "=".join(item))]
        return output(f"qemu-{OTHER}", "-L", f"/usr/{OTHER}-linux-gnu", *settings, *command)

    def test_the_wheel_holds_what_it_should_and_nothing_else(self):
        self.check_files()

    def test_nothing_in_it_asks_for_a_newer_libc_a_vendor_library_or_a_libstdcxx(self):
        self.check_binaries()

    def test_the_command_and_both_libraries_load(self):
        lib = self.unpacked / "lowtide" / "lib"
        command = self.unpacked / "lowtide" / "bin" / "lowtide"
        command.chmod(0o755)  # zipfile forgot what pip does not
        self.assertIn(VERSION, self.emulated(command, "--version"))
        loader = self.folder / "loader"
        output(f"{OTHER}-linux-gnu-gcc", "-x", "c", "-", "-o", loader, input=LOADER)
        libraries = [lib / "liblowtide.so", lib / "liblowtide_preload.so"]
        for preload in ({}, {"LD_PRELOAD": str(libraries[1])}):
            self.assertEqual(self.emulated(loader, *libraries, **preload), "\nno C API\n")


def left_out(kind):
    """Why the wheel cannot be built here, if so."""
    if kind == "Other":
        for tool in (f"{OTHER}-linux-gnu-g++", f"qemu-{OTHER}"):
            if shutil.which(tool) is None:
                return f"{tool} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        asked = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder,
                                "scikit-build-core"], capture_output=True, check=False)
    return None if asked.returncode == 0 else "pip cannot fetch scikit-build-core"


if __name__ == "__main__":
    reason = left_out(sys.argv[1])
    if reason:
        print(f"left out: {reason}")
        sys.exit(77)
    unittest.main(defaultTest=sys.argv[1], argv=sys.argv[:1])
