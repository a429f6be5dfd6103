# SPDX-License-Identifier: Apache-2.0
"""lowtide phase and lowtide policy why: names that nobody gave must not look like work that was done."""
import json
import unittest

from support import CommandTest, OK, USAGE

DECLARED = "phases=to_train,to_rollout"


class Phase(CommandTest):
    def test_a_name_that_is_not_among_those_declared_is_wrong_and_nobody_is_asked_to_enter_it(self):
        engine, trainer = self.fake(DECLARED), self.fake("phases=to_train,sync")
        result = self.lowtide("phase", "to_rolout", engine.pid, trainer.pid)
        self.check_refused(result, USAGE, 'no process asked declares a phase "to_rolout"', "to_rollout, to_train, sync")
        self.assertEqual(engine.end() + trainer.end(), [])

    def test_a_name_like_none_of_those_declared_is_told_them_all(self):
        result = self.lowtide("phase", "evaluation", self.fake(DECLARED).pid)
        self.check_refused(result, USAGE, "there are to_train, to_rollout")

    def test_where_none_is_declared_a_name_is_a_mark_and_said_to_be_no_more(self):
        fake = self.fake("phases=")
        for options in ((), ("--json",)):
            result = self.lowtide("phase", "warm_up", fake.pid, *options)
            self.assertEqual(result.returncode, OK, result.stderr)
            self.assertIn(f"no [[phase]] warm_up is declared in the configuration of process {fake.pid}", result.stderr)
            self.assertIn("paused and resumed nothing", result.stderr)
        self.assertEqual(json.loads(result.stdout)["processes"], [{"pid": fake.pid, "phase": "warm_up", "declared": False}])
        self.assertEqual(fake.end(), ["phase warm_up first -", "phase warm_up all -"] * 2)

    def test_a_process_that_does_not_declare_what_another_does_is_named(self):
        engine, trainer = self.fake(DECLARED), self.fake("phases=sync")
        result = self.lowtide("phase", "to_rollout", engine.pid, trainer.pid)
        self.assertEqual(result.returncode, OK, result.stderr)
        self.assertIn(f"in the configuration of process {trainer.pid}:", result.stderr)
        self.assertEqual(result.stdout, f"process {engine.pid}: to_rollout\nprocess {trainer.pid}: to_rollout, as a mark only\n")

    def test_a_declared_one_needs_no_comment(self):
        engine = self.fake(DECLARED)
        result = self.lowtide("phase", "to_rollout", engine.pid)
        self.assertEqual((result.returncode, result.stderr, result.stdout), (OK, "", f"process {engine.pid}: to_rollout\n"))

    def test_a_process_that_does_not_say_what_it_declares_is_asked(self):
        fake = self.fake()
        result = self.lowtide("phase", "to_rollout", fake.pid)
        self.assertEqual((result.returncode, result.stderr), (OK, ""))
        self.assertEqual(len(fake.end()), 2)


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
