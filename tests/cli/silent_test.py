# SPDX-License-Identifier: Apache-2.0
"""A tree of processes of which one does not answer: what the verbs do about the others."""
import json
import os
import signal
import unittest

from support import FAILED, FamilyTest, OK


class OneOfThreeIsStopped(FamilyTest):
    def setUp(self):
        super().setUp()
        self.parent = self.family("tags=a", "tags=b", "tags=c")
        listed = json.loads(self.lowtide("status", self.parent.pid, "--json").stdout)["processes"]
        pids = {process["tags"][0]["tag"]: process["pid"] for process in listed}
        self.stopped = pids.pop("b")
        self.others = sorted(pids.values())
        os.kill(self.stopped, signal.SIGSTOP)
        self.addCleanup(os.kill, self.stopped, signal.SIGCONT)

    def check_only_the_stopped_one_failed(self, result):
        self.assertEqual(result.returncode, FAILED)
        self.assertRegex(result.stderr, rf"^lowtide: process {self.stopped} does not answer[^\n]*\n$")

    def check_entries(self, result, key):
        self.check_only_the_stopped_one_failed(result)
        answer = json.loads(result.stdout)
        self.assertFalse(answer["ok"])
        entries = {process["pid"]: process for process in answer["processes"]}
        self.assertEqual(sorted(entries), sorted([*self.others, self.stopped]))
        self.assertIn("does not answer", entries[self.stopped]["error"])
        for pid in self.others:
            self.assertIn(key, entries[pid])

    def test_the_others_are_trimmed(self):
        trimmed = self.lowtide("trim", self.parent.pid)
        self.check_only_the_stopped_one_failed(trimmed)
        self.assertEqual(sorted(trimmed.stdout.splitlines()),
                         [f"process {pid}: gave 3.00 MiB of host memory back, 1.00 GiB still held" for pid in self.others])
        self.check_entries(self.lowtide("trim", self.parent.pid, "--json"), "trim")
        self.assertEqual([self.lines(child) for child in range(3)], [["trim"] * 2, [], ["trim"] * 2])

    def test_the_status_of_the_others_is_shown(self):
        shown = self.lowtide("status", self.parent.pid)
        self.check_only_the_stopped_one_failed(shown)
        self.assertEqual([f"process {pid} " in shown.stdout for pid in [*self.others, self.stopped]], [True, True, False])
        self.check_entries(self.lowtide("status", self.parent.pid, "--json"), "gate")

    def test_ps_lists_all_and_names_it(self):
        listed = self.lowtide("ps")
        self.assertEqual(listed.returncode, OK)
        self.assertIn(f"lowtide: process {self.stopped} does not answer", listed.stderr)
        rows = {line.split()[0]: line for line in listed.stdout.splitlines()}
        self.assertIn("(no answer)", rows[str(self.stopped)])
        for pid in self.others:
            self.assertNotIn("(no answer)", rows[str(pid)])

    def test_nobody_is_paused_or_resumed(self):
        for verb in ("pause", "resume"):
            self.check_refused(self.lowtide(verb, self.parent.pid), FAILED, f"process {self.stopped} does not answer")
        self.assertEqual([self.lines(child) for child in range(3)], [[], [], []])


if __name__ == "__main__":
    unittest.main()
