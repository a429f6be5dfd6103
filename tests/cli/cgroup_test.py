# SPDX-License-Identifier: Apache-2.0
"""Processes on the simulated GPU under a real control group whose limit does not hold the backups of all of them."""
import json
import os
import subprocess
import sys
import unittest

from support import BUILD, COMMAND, CommandTest, FAILED, OK

MIB = 1 << 20
SIZE = 128 * MIB
PROCESSES = 8
FIT = 5

# Writes bytes of its own to a block, says that it is ready, and at every line that it is told whether they are there.
MEMBER = f"""
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result: sys.exit(f"{{name}} answered {{result}}")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t({SIZE}))
content = os.urandom({MIB})
for offset in range(0, {SIZE}, {MIB}):
    call("cuMemcpyHtoD_v2", ctypes.c_uint64(block.value + offset), content, ctypes.c_size_t({MIB}))
print("ready", flush=True)
for line in sys.stdin:
    found = ctypes.create_string_buffer({MIB})
    for offset in range(0, {SIZE}, {MIB}):
        call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(block.value + offset), ctypes.c_size_t({MIB}))
        if found.raw != content: sys.exit("other bytes")
    print("right", flush=True)
"""


def memory_group():
    """The folder of this process's memory control group, the file of its limit, and the word for none."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        lines = file.read().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return "/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes", "-1"
        if controllers == "":
            unified = "/sys/fs/cgroup" + path, "memory.max", "max"
    return unified


class Group:
    """A child of that group. OSError where this machine does not let us have one."""

    def __init__(self):
        parent, limit, self.none = memory_group()
        self.folder = f"{parent}/lowtide-test-{os.getpid()}"
        os.mkdir(self.folder)
        self.limit_file = f"{self.folder}/{limit}"
        try:
            self.limit(None)
        except OSError:
            self.remove()
            raise

    def limit(self, size):
        with open(self.limit_file, "w", encoding="utf-8") as file:
            file.write(self.none if size is None else str(size))

    def take(self, pid):
        with open(f"{self.folder}/cgroup.procs", "w", encoding="utf-8") as file:
            file.write(str(pid))

    def remove(self):
        os.rmdir(self.folder)


try:
    Group().remove()
    GROUPS = True
except OSError:
    GROUPS = False


@unittest.skipUnless(GROUPS, "this machine lets us have no memory control group")
class Limited(CommandTest):
    def setUp(self):
        super().setUp()
        self.group = Group()
        self.addCleanup(self.group.remove)
        environment = {**self.environment, "LD_LIBRARY_PATH": f"{BUILD}/lib/simulated",
                       "LOWTIDE_SIM_DIR": self.folder, "PYTHONDONTWRITEBYTECODE": "1"}
        self.members = []
        for _ in range(PROCESSES):
            member = subprocess.Popen([COMMAND, "run", "--tag", "weights", "--", sys.executable, "-c", MEMBER],
                                      env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(self.end, member)
            self.members.append(member)
        for member in self.members:
            self.assertEqual(member.stdout.readline(), "ready\n")
            self.group.take(member.pid)  # what it has touched stays in the parent's account

    @staticmethod
    def end(member):
        member.stdin.close()
        member.stdout.close()
        if member.poll() is None:
            member.kill()
        member.wait()

    def at_once(self, verb):
        commands = [subprocess.Popen([COMMAND, verb, str(member.pid), "--json"], env=self.environment, text=True,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE) for member in self.members]
        results = []
        for command in commands:
            output, _ = command.communicate(timeout=120)
            results.append((command.returncode, json.loads(output)))
        return results

    def test_of_eight_that_pause_at_once_under_a_limit_for_five_three_are_refused_and_none_is_killed(self):
        self.group.limit(FIT * SIZE + SIZE * 3 // 4)
        results = self.at_once("pause")
        codes = [code for code, _ in results]
        self.assertEqual(sorted(codes), [OK] * FIT + [FAILED] * (PROCESSES - FIT), results)
        for code, outcome in results:
            if code == OK:
                continue
            error = outcome["processes"][0]["error"]
            for part in ("(HOST_BUDGET)", "needs 128 MiB more", os.path.basename(self.group.folder), "(736 MiB)",
                         "other processes (5) hold 640 MiB"):
                self.assertIn(part, error)
        # Those that were refused go on with their blocks as they were.
        refused = [member for member, code in zip(self.members, codes) if code != OK]
        for member in refused:
            self.check_bytes(member)
        self.group.limit(None)  # the simulated device's own memory counts too when it comes back
        self.assertEqual({code for code, _ in self.at_once("resume")}, {OK})
        for member in self.members:
            self.check_bytes(member)

    def check_bytes(self, member):
        member.stdin.write("\n")
        member.stdin.flush()
        self.assertEqual(member.stdout.readline(), "right\n")
        self.assertIsNone(member.poll())


if __name__ == "__main__":
    unittest.main()
