# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share."""
import ctypes
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

MIB = 1 << 20
SOURCES = pathlib.Path(__file__).parents[2] / "shim" / "python"
# Where `import lowtide` finds the package; with its libraries beside it in a case that is played.
PACKAGE = pathlib.Path(os.environ.get("LOWTIDE_TEST_PACKAGE", SOURCES))

# As in a test: `with raises(Error) as caught:`; fails if nothing is raised.
raises = unittest.TestCase().assertRaises


class Device:
    """The simulated GPU, by the driver's own functions."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 0)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *arguments):
        result = getattr(self.cuda, name)(*arguments)
        assert result == 0, f"{name} answered {result}"

    def allocate(self, size):
        block = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(size))
        return block.value

    def free_block(self, block):
        self.call("cuMemFree_v2", ctypes.c_uint64(block))

    def write(self, block, data):
        return self.cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(block), data, ctypes.c_size_t(len(data)))

    def read(self, block, size):
        data = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(block), ctypes.c_size_t(size))
        return data.raw

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value


class Played(unittest.TestCase):
    """Cases that are played in processes of their own: functions of the test's file that take the device."""

    def make_folder(self):
        folder = tempfile.mkdtemp(prefix="lowtide-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def install(self):
        """A folder with the package as a wheel lays it out."""
        folder = self.make_folder()
        package = pathlib.Path(folder) / "lowtide"
        shutil.copytree(SOURCES / "lowtide", package, ignore=shutil.ignore_patterns("__pycache__"))
        for place, name in (("lib", "STATE"), ("lib", "PRELOAD"), ("bin", "COMMAND")):
            (package / place).mkdir(exist_ok=True)
            shutil.copy(os.environ[f"LOWTIDE_TEST_{name}"], package / place)
        return folder

    def play(self, case, preload="", python=sys.executable, **variables):
        """`preload` is LD_PRELOAD, in which PRELOAD stands for the package's library; `python` the interpreter. Returns what the
        case wrote to stderr."""
        folder, package = self.make_folder(), self.install()
        preload = preload.replace("PRELOAD", f"{package}/lowtide/lib/liblowtide_preload.so")
        environment = {**os.environ, "LOWTIDE_SIM_DIR": folder, "LOWTIDE_SIM_MEMORY": "1G", "LOWTIDE_RUNTIME_DIR": f"{folder}/run",
                       "LOWTIDE_TEST_PACKAGE": package, **({"LD_PRELOAD": preload} if preload else {}), **variables}
        command = [python, "-B", sys.modules[case.__module__].__file__, case.__name__]
        result = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=120, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, "right\n"), result.stderr)
        return result.stderr


def main(cases):
    """Plays the case that the command line names, else runs all tests. `cases` are the globals of the test's file."""
    if len(sys.argv) > 1 and callable(cases.get(sys.argv[1])):
        cases[sys.argv[1]](Device())
        print("right")
    else:
        unittest.main()
