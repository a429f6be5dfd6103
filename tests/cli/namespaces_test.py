# SPDX-License-Identifier: Apache-2.0
"""The command where /proc is not what it is elsewhere: not mounted, or that of another PID namespace."""
import json
import os
import subprocess
import unittest

from support import COMMAND, CommandTest, FAILED, FakeProcess, NOT_FOUND, OK


def may(*unshare):
    return subprocess.run(["unshare", *unshare], capture_output=True, check=False).returncode == 0


WITHOUT_PROC = ("-Urm", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
WITH_PROC_OF_THE_HOST = ("-Ur", "-p", "-f")


@unittest.skipUnless(may(*WITHOUT_PROC, "true"), "this machine lets nobody mount over /proc in a namespace of his own")
class WithoutProc(CommandTest):
    def test_every_verb_says_so_in_one_line(self):
        for words in (("run", "--", "env"), ("ps",), ("status", "1"), ("pause", "1"), ("resume", "1"), ("doctor",),
                      ("demo",)):
            result = subprocess.run(["unshare", *WITHOUT_PROC, COMMAND, *words], env=self.environment, text=True,
                                    capture_output=True, check=False)
            self.check_refused(result, FAILED, "/proc/self/stat cannot be read", "needs /proc mounted")
        self.assertFalse(os.path.exists(self.runtime))

    def test_help_needs_none(self):
        result = subprocess.run(["unshare", *WITHOUT_PROC, COMMAND, "pause", "--help"], text=True, capture_output=True,
                                check=False)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))


@unittest.skipUnless(may(*WITH_PROC_OF_THE_HOST, "true"), "this machine lets nobody make a PID namespace")
class WithProcOfTheHost(CommandTest):
    """In there getpid() is 1, and /proc/1 is the machine's first process."""

    def setUp(self):
        super().setUp()
        self.fake_process = FakeProcess((), self.environment, ("unshare", *WITH_PROC_OF_THE_HOST))
        self.addCleanup(self.fake_process.end)
        self.assertTrue(self.fake_process.first_line.startswith("ready "), self.fake_process.first_line)
        pid, start_time = os.path.basename(self.fake_process.socket).removesuffix(".sock").split("-")
        self.pid, self.start_time = int(pid), start_time

    def test_the_socket_bears_the_pid_that_proc_shows(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        self.assertEqual((int(fields[1]), fields[19]), (self.fake_process.pid, self.start_time))

    def test_the_command_finds_it_under_that_pid_and_under_its_parents(self):
        self.assertEqual(self.status_of(self)["pid"], self.pid)
        self.assertEqual(self.lowtide("pause", self.pid).returncode, OK)
        resumed = self.lowtide("resume", self.fake_process.pid, "--json")
        self.assertEqual([process["pid"] for process in json.loads(resumed.stdout)["processes"]], [self.pid])
        self.assertEqual(self.fake_process.end(), ["pause - hold=1 -", "resume - - -"])
        self.check_refused(self.lowtide("pause", self.pid), NOT_FOUND, f"there is no process {self.pid}")


if __name__ == "__main__":
    unittest.main(verbosity=2)  # which says why a test was skipped
