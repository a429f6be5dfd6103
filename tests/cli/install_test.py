# SPDX-License-Identifier: Apache-2.0
"""An installed tree works by itself, without a GPU and without the tree it was built in."""
import json
import os
import shutil
import subprocess
import unittest

from support import CommandTest, OK

CMAKE = os.environ["LOWTIDE_TEST_CMAKE"]
BUILD = os.environ["LOWTIDE_TEST_BUILD"]

# Holds 8 MiB on the device until its stdin ends.
PROGRAM = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
               cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(8 << 20))):
    if result != 0:
        sys.exit(f"the driver answers {result}")
print("ready", flush=True)
sys.stdin.read()
"""


class Installed(CommandTest):
    def setUp(self):
        super().setUp()
        first = os.path.join(self.folder, "first")
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", first], check=True, capture_output=True)
        # What was installed is carried elsewhere once more: nothing in it may remember where it was.
        self.prefix = shutil.move(first, os.path.join(self.folder, "installed"))
        self.command = os.path.join(self.prefix, "bin", "lowtide")

    def test_the_demo_plays_on_the_simulated_gpu_that_is_installed(self):
        result = self.lowtide("demo", "--simulated", "--json", command=self.command)
        self.assertEqual(result.returncode, OK, result.stderr)
        answer = json.loads(result.stdout)
        self.assertTrue(answer["ok"] and answer["simulated"])
        self.assertGreater(answer["bytes_checked"], 0)

    def test_a_program_that_is_run_from_there_is_paused_and_resumed(self):
        environment = {**self.environment, "LD_LIBRARY_PATH": os.path.join(self.prefix, "lib", "simulated")}
        with subprocess.Popen([self.command, "run", "--tag", "weights", "--", "python3", "-c", PROGRAM], env=environment,
                              text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            paused = self.lowtide("pause", program.pid, "--json", command=self.command)
            self.assertEqual(paused.returncode, OK, paused.stderr)
            self.assertEqual(json.loads(paused.stdout)["processes"][0]["report"]["bytes_parked"], 8 << 20)
            self.assertEqual(self.lowtide("resume", program.pid, command=self.command).returncode, OK)
            program.stdin.close()
            self.assertEqual(program.wait(), OK)


if __name__ == "__main__":
    unittest.main()
