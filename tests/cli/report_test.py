# SPDX-License-Identifier: Apache-2.0
"""What lowtide pause and resume say of memory that did not move, or moved without its bytes."""
import json
import unittest

from support import CommandTest, OK


class Report(CommandTest):
    def test_a_pause_that_parks_nothing_says_why_and_that_the_process_is_not_held(self):
        untagged = self.fake("tags=")
        kept = self.fake("keep")
        for fake, reason in ((untagged, "none of its memory is tagged: start it with `lowtide run --tag TAG`"),
                             (kept, "all its tagged memory, 2.00 GiB, stays on the device")):
            paused = self.lowtide("pause", fake.pid)
            self.assertEqual((paused.returncode, paused.stdout), (OK, f"process {fake.pid}: nothing was parked\n"))
            self.assertIn(f"lowtide: process {fake.pid} is NOT held and goes on: {reason}", paused.stderr)
            self.assertEqual(self.status_of(fake)["gate"], "open")
            told = self.lowtide("pause", fake.pid, "--json")
            self.assertTrue(json.loads(told.stdout)["ok"])
            self.assertIn("is NOT held", told.stderr)
            cooperating = self.lowtide("pause", fake.pid, "--no-hold")
            self.assertEqual((cooperating.returncode, cooperating.stderr), (OK, ""))
            self.assertIn(f"process {fake.pid}: {reason}", cooperating.stdout)

    def test_dropped_memory_is_told_apart_from_what_comes_back_with_its_bytes(self):
        dropped = self.fake("tags=a", "discard=a")
        self.assertIn(f"process {dropped.pid}: dropped 1.00 GiB, 1 block", self.lowtide("pause", dropped.pid).stdout)
        self.assertIn(f"process {dropped.pid}: 1.00 GiB came back without their bytes, 1 block",
                      self.lowtide("resume", dropped.pid).stdout)
        both = self.fake("tags=a,b", "discard=a")
        self.assertIn("parked 1.00 GiB, dropped 1.00 GiB, 2 blocks", self.lowtide("pause", both.pid).stdout)
        self.assertIn("brought back 1.00 GiB, 1.00 GiB came back without their bytes, 2 blocks",
                      self.lowtide("resume", both.pid).stdout)

    def test_what_is_repeated_says_that_it_was_done_already(self):
        fake = self.fake()
        resumed = self.lowtide("resume", fake.pid)
        self.assertEqual((resumed.returncode, resumed.stdout, resumed.stderr), (OK, f"process {fake.pid}: nothing was parked\n", ""))
        self.lowtide("pause", fake.pid)
        again = self.lowtide("pause", fake.pid)
        self.assertEqual((again.returncode, again.stdout, again.stderr),
                         (OK, f"process {fake.pid}: everything was parked already\n", ""))

    def test_the_help_warns_of_what_no_hold_risks(self):
        text = " ".join(self.lowtide("pause", "--help").stdout.split())
        self.assertIn("One that uses parked memory meanwhile dies of an illegal address", text)


if __name__ == "__main__":
    unittest.main()
