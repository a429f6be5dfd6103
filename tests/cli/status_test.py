# SPDX-License-Identifier: Apache-2.0
"""lowtide status while a pause or a resume is under way."""
import unittest

from support import CommandTest, OK


class Transition(CommandTest):
    def shown(self, transition):
        fake = self.fake(f"transition={transition}")
        result = self.lowtide("status", fake.pid)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        self.assertEqual(self.status_of(fake)["transition"]["step"], transition.split(",")[0])
        return result.stdout

    def test_how_far_it_is_can_be_seen(self):
        self.assertIn("\n  pausing: 1.20 GiB of 20.0 GiB copied\n", self.shown(f"pause,{(6 << 30) // 5},{20 << 30}"))
        self.assertIn("\n  resuming: 3.00 MiB of 1.00 GiB copied\n", self.shown(f"resume,{3 << 20},{1 << 30}"))

    def test_one_that_has_copied_nothing_yet_is_under_way_too(self):
        self.assertIn("\n  pausing: nothing copied yet\n", self.shown("pause,0,0"))

    def test_a_step_of_a_later_version_is_shown_without_its_control_characters(self):
        self.assertIn("\n  sort?[31ming: 1 B of 2 B copied\n", self.shown("sort\x1b[31ming,1,2"))

    def test_a_device_is_shown_with_its_backend_and_why(self):
        shown = self.lowtide("status", self.fake().pid).stdout
        self.assertRegex(shown, r"BACKEND +FREE +TOTAL +REASON\n")
        self.assertRegex(shown, r"Fake +vmm +1.00 GiB +2.00 GiB +none\n")

    def test_without_one_nothing_is_said(self):
        shown = self.lowtide("status", self.fake().pid).stdout
        self.assertNotIn("copied", shown)
        self.assertNotIn("pausing", shown)


if __name__ == "__main__":
    unittest.main()
