# SPDX-License-Identifier: Apache-2.0
"""lowtide policy why."""
import unittest

from support import CommandTest, OK, USAGE


class Why(CommandTest):
    def test_a_tag_that_no_process_has_is_wrong_and_told_those_that_there_are(self):
        self.check_refused(self.lowtide("policy", "why", self.fake().pid, "nope"), USAGE,
                           'no process asked has the tag "nope"', "there are kv_cache, weights")

    def test_a_tag_that_there_is_has_nothing_in_its_way(self):
        result = self.lowtide("policy", "why", self.fake().pid, "weights")
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        self.assertIn("no rule stands in the way of a resume of weights", result.stdout)


if __name__ == "__main__":
    unittest.main()
