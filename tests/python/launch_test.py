# SPDX-License-Identifier: Apache-2.0
"""Families of processes as engines start them, under `lowtide run` and on the simulated GPU: who is seen, for whom a PID
stands, and what the programs that they start besides have of Lowtide."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from support import MIB, Played, main

HERE = pathlib.Path(__file__).parent
# Programs that wait for their input, and whether they start others.
HELPERS = (["sh"], ["cat"], ["git", "hash-object", "--stdin"], ["g++", "-x", "c++", "-c", "-", "-o", "/dev/null"],
           ["nvcc", "-x", "cu", "-E", "-"], [sys.executable, "-"])


def children(pid):
    try:
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [int(each) for each in text.split()]


def state(pid):
    """The letter that ps shows; nothing of a process that has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def below(pid):
    return [pid] + [each for child in children(pid) for each in below(child)]


class FamilyTest(Played):
    """A server and its workers; each test has a device and a runtime folder of its own."""

    def setUp(self):
        self.folder, self.package = self.make_folder(), self.install()
        self.command = f"{self.package}/lowtide/bin/lowtide"
        self.environment = {**os.environ, "LOWTIDE_SIM_DIR": self.folder, "LOWTIDE_SIM_MEMORY": "1G",
                            "LOWTIDE_RUNTIME_DIR": f"{self.folder}/run", "LOWTIDE_TEST_PACKAGE": self.package,
                            "PYTHONPATH": self.package}

    def start(self, method):
        command = [self.command, "run", "--", sys.executable, "-B", str(HERE / "family.py"), method]
        server = subprocess.Popen(command, env=self.environment, text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, server)
        line = server.stdout.readline()
        self.assertTrue(line, None if line else server.stderr.read())
        return server, sorted(json.loads(line))

    @staticmethod
    def end(server):
        server.kill()
        server.communicate()

    def finish(self, server):
        _, said = server.communicate(timeout=120)
        self.assertEqual((server.returncode, said), (0, ""))

    def lowtide(self, *arguments):
        return subprocess.run([self.command, *map(str, arguments)], env=self.environment, text=True, capture_output=True,
                              timeout=120, check=False)

    def answer(self, *arguments):
        done = self.lowtide(*arguments, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)["processes"]

    def listed(self):
        return sorted(process["pid"] for process in self.answer("ps"))

    def tags(self, pid):
        return sorted((process["pid"], tag["tag"], tag["state"])
                      for process in self.answer("status", pid) for tag in process["tags"])

    def check_that_it_stands_for(self, pid, workers):
        """That `pid` means all of `workers` and nobody else to status, pause and resume."""
        self.assertEqual(self.tags(pid), [(each, "weights", "resident") for each in workers])
        reports = self.answer("pause", pid)
        self.assertEqual([report["report"]["bytes_parked"] for report in reports], [8 * MIB] * len(workers))
        self.assertEqual(self.tags(pid), [(each, "weights", "parked") for each in workers])
        self.answer("resume", pid)
        self.assertEqual(self.tags(pid), [(each, "weights", "resident") for each in workers])


class Family(FamilyTest):
    def check_family(self, method):
        server, workers = self.start(method)
        self.assertEqual(self.listed(), workers)
        self.check_that_it_stands_for(server.pid, workers)
        self.finish(server)

    def test_a_server_that_uses_no_gpu_stands_for_the_workers_it_spawned(self):
        self.check_family("spawn")

    def test_a_server_stands_for_the_workers_it_forked_before_it_used_the_gpu(self):
        self.check_family("fork")

    def test_a_server_stands_for_what_its_fork_server_forked(self):
        self.check_family("forkserver")

    def test_workers_in_sessions_of_their_own_are_still_below_the_server(self):
        self.check_family("session")

    def test_daemons_are_seen_and_stand_for_themselves(self):
        server, workers = self.start("daemon")
        self.assertEqual(self.listed(), workers)
        for each in workers:
            self.check_that_it_stands_for(each, [each])
        refused = self.lowtide("pause", server.pid)
        self.assertEqual((refused.returncode, refused.stdout), (3, ""))
        self.assertIn(f"process {server.pid} is not under Lowtide", refused.stderr)
        self.finish(server)

    def test_workers_that_outlive_their_server_can_be_resumed_one_by_one(self):
        server, workers = self.start("session")
        self.answer("pause", server.pid)
        server.kill()  # its workers' input ends then, and they wait at the gate to look at their bytes
        server.wait(60)
        self.assertEqual(self.lowtide("resume", server.pid).returncode, 3)
        for each in workers:
            self.assertEqual(self.answer("resume", each)[0]["report"]["bytes_parked"], 8 * MIB)


class Helpers(FamilyTest):
    def test_what_a_running_process_starts_has_no_thread_socket_or_file_of_lowtide(self):
        server, workers = self.start("helpers")
        for command in HELPERS:
            if shutil.which(command[0]) is None:
                continue
            server.stdin.write(json.dumps(command) + "\n")
            server.stdin.flush()
            (helper,) = json.loads(server.stdout.readline())
            for process in self.when_it_waits(helper):
                self.check_that_nothing_was_started(process, command)
        self.assertEqual(self.listed(), workers)
        self.assertEqual(len(os.listdir(f"{self.folder}/run")), 1)
        self.finish(server)

    def when_it_waits(self, helper):
        """The processes of a helper, once none of them runs or starts another any more."""
        seen, quiet = [], 0
        while quiet < 5:
            time.sleep(0.05)
            found = [(pid, state(pid)) for pid in below(helper)]
            quiet = quiet + 1 if found == seen and all(each == "S" for _, each in found) else 0
            seen = found
        return [pid for pid, _ in seen]

    def check_that_nothing_was_started(self, pid, command):
        process = pathlib.Path(f"/proc/{pid}")
        what = f"{command}: {process.joinpath('comm').read_text(encoding='utf-8').strip()}"
        self.assertIn("liblowtide_preload.so", process.joinpath("maps").read_text(encoding="utf-8"), what)
        self.assertEqual(os.listdir(process / "task"), [str(pid)], what)
        files = [os.readlink(entry) for entry in process.joinpath("fd").iterdir()]
        self.assertEqual([name for name in files if name.startswith(("socket:", "/memfd:")) or self.folder in name], [], what)


if __name__ == "__main__":
    main(globals())
