# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command share: a runtime folder of their own, fake processes, and the command itself.

Only processes that a test started are ever named to the command: whoever runs the tests may have others under Lowtide.
"""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

COMMAND = os.environ["LOWTIDE_TEST_COMMAND"]
PROCESS = os.environ["LOWTIDE_TEST_PROCESS"]
PRELOAD = os.environ["LOWTIDE_TEST_PRELOAD"]
BUILD = os.environ["LOWTIDE_TEST_BUILD"]
DOCS = os.environ["LOWTIDE_TEST_DOCS"]

OK, FAILED, USAGE, NOT_FOUND, PERMISSION, DEVICE_MEMORY, REFUSED = range(7)
NOBODY = 65534
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class FakeProcess:
    """A running lowtide_fake_process; `arguments` is its plan."""

    def __init__(self, arguments, environment, wrapper=()):
        self.process = subprocess.Popen([*wrapper, PROCESS, *arguments], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.first_line = self.process.stdout.readline().strip()
        self.pid = self.process.pid

    @property
    def socket(self):
        return self.first_line.removeprefix("ready ")

    def end(self):
        """Ends it and gives the transitions it was asked for."""
        if self.process.stdin.closed:
            return []
        self.process.stdin.close()
        lines = self.process.stdout.read().split("\n")[:-1]
        self.process.stdout.close()
        self.process.wait()
        return lines


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="lowtide-test-")
        os.chmod(self.folder, 0o755)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.runtime = os.path.join(self.folder, "run")
        self.environment = {"PATH": os.environ["PATH"], "LOWTIDE_RUNTIME_DIR": self.runtime}

    def fake(self, *arguments):
        fake = FakeProcess(arguments, self.environment)
        self.addCleanup(fake.end)
        self.assertTrue(fake.first_line.startswith("ready "), fake.first_line)
        return fake

    def lowtide(self, *arguments, command=None, **variables):
        return subprocess.run([command or COMMAND, *map(str, arguments)], env={**self.environment, **variables}, text=True,
                              capture_output=True, timeout=120, stdin=subprocess.DEVNULL, check=False)

    def check_refused(self, result, code, *parts):
        """One clear line on stderr, nothing on stdout, the documented code."""
        self.assertEqual((result.returncode, result.stdout), (code, ""), result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("lowtide: "), result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def status_of(self, fake):
        return json.loads(self.lowtide("status", fake.pid, "--json").stdout)["processes"][0]


class FamilyTest(CommandTest):
    """A parent that uses no GPU, with children that do."""

    def setUp(self):
        super().setUp()
        self.output = os.path.join(self.folder, "output")
        os.mkdir(self.output)

    def family(self, *plans):
        script = "".join(f'"{PROCESS}" {plan} <&0 >"{self.output}/{i}" &\n' for i, plan in enumerate(plans))
        parent = subprocess.Popen(["sh", "-c", f"exec 3<&0\n{script.replace('<&0', '<&3')}wait"], env=self.environment,
                                  stdin=subprocess.PIPE, text=True)
        self.addCleanup(self.end, parent)
        for i in range(len(plans)):
            while not self.lines(i, all_of_them=True):
                self.assertIsNone(parent.poll())
        return parent

    @staticmethod
    def end(parent):
        if not parent.stdin.closed:
            parent.stdin.close()
        parent.wait()

    def lines(self, child, all_of_them=False):
        try:
            with open(os.path.join(self.output, str(child)), encoding="utf-8") as file:
                lines = file.read().split("\n")[:-1]
        except FileNotFoundError:
            lines = []
        return lines if all_of_them else lines[1:]

    def states(self, parent):
        status = json.loads(self.lowtide("status", parent.pid, "--json").stdout)
        return sorted((tag["tag"], tag["state"]) for process in status["processes"] for tag in process["tags"])

    def gates(self, parent):
        status = json.loads(self.lowtide("status", parent.pid, "--json").stdout)
        return [process["gate"] for process in status["processes"]]


if os.geteuid() == 0:
    AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
else:
    AS_NOBODY = None
