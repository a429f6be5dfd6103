# SPDX-License-Identifier: Apache-2.0
"""The sync policy between real processes that share a simulated GPU of 1 GiB: an engine and a trainer."""
import array
import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import termios
import time
import unittest

from support import Played

HERE = pathlib.Path(__file__).parent
REFUSED, USAGE = 6, 2

POLICY = """
mode = "{mode}"
[device]
wait = "{wait}"
headroom = "16MiB"
[tag.weights]
role = "engine"
pause = "discard"
refill = "sync"
coverage = "off"
[tag.optim]
role = "trainer"
pause = "offload"
[[rule]]
on = "resume weights"
kind = "memory"
needs_paused = ["optim"]
[[rule]]
on = "resume kv_cache"
needs_active = ["weights"]
{more}
[[phase]]
name = "to_rollout"
pause = ["optim"]
resume = ["kv_cache", "weights"]
[[phase]]
name = "to_train"
pause = ["kv_cache", "weights"]
resume = ["optim"]
"""


class Process:
    """One of policy_process.py. What is asked is answered in order."""

    def __init__(self, test, role):
        environment = {**test.environment, "LD_PRELOAD": test.preload, "LOWTIDE_ROLE": role}
        self.process = subprocess.Popen([sys.executable, "-B", HERE / "policy_process.py"], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        test.addCleanup(self.kill)
        self.pid = int(self.process.stdout.readline())

    def ask(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    def answer(self):
        return json.loads(self.process.stdout.readline())

    def do(self, *words):
        self.ask(*words)
        return self.answer()

    def kill(self):
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            pipe.close()


class Policy(Played):
    def set_up(self, mode="enforce", wait="30s", more=""):
        folder, package = self.make_folder(), self.install()
        self.file = pathlib.Path(folder) / "lowtide.toml"
        self.file.write_text(POLICY.format(mode=mode, wait=wait, more=more))
        self.preload = f"{package}/lowtide/lib/liblowtide_preload.so"
        self.command = f"{package}/lowtide/bin/lowtide"
        self.environment = {**os.environ, "LOWTIDE_SIM_DIR": folder, "LOWTIDE_SIM_MEMORY": "1G", "PYTHONPATH": package,
                            "LOWTIDE_RUNTIME_DIR": f"{folder}/run", "LOWTIDE_CONFIG": str(self.file)}
        self.engine, self.trainer = Process(self, "engine"), Process(self, "trainer")
        for tag in ("weights", "kv_cache"):
            self.works(self.engine, "allocate", tag, 300)
        self.works(self.engine, "pause", "kv_cache")
        self.works(self.engine, "pause", "weights")
        self.works(self.trainer, "allocate", "optim", 600)

    def works(self, process, *words):
        self.assertEqual(process.do(*words), ["ok", ""], words)

    def lowtide(self, *words):
        return subprocess.run([self.command, *map(str, words)], env=self.environment, text=True, capture_output=True, check=False)

    def policy_of(self, process):
        said = self.lowtide("status", process.pid, "--json")
        return json.loads(said.stdout)["processes"][0]["policy"]

    def until_it_waits(self, process):
        for _ in range(1000):
            if self.policy_of(process)["waits"] > 0:
                return
            time.sleep(0.01)
        self.fail("it does not wait")

    @staticmethod
    def until_it_has_heard(process):
        """And sleeps in what it was told to do."""
        unread = array.array("i", [1])
        while unread[0] > 0 or "(sleeping)" not in pathlib.Path(f"/proc/{process.pid}/status").read_text():
            time.sleep(0.01)
            fcntl.ioctl(process.process.stdin, termios.FIONREAD, unread)

    def test_the_engine_waits_until_the_trainer_has_paused(self):
        self.set_up()
        self.engine.ask("resume", "weights")
        self.until_it_waits(self.engine)
        self.works(self.trainer, "pause", "optim")
        self.assertEqual(self.engine.answer(), ["ok", ""])
        self.assertEqual(self.policy_of(self.engine)["refusals"], 0)

    def test_a_trainer_that_is_killed_is_waited_for_no_more(self):
        self.set_up()
        self.engine.ask("resume", "weights")
        self.until_it_waits(self.engine)
        self.trainer.kill()
        self.assertEqual(self.engine.answer(), ["ok", ""])

    def test_who_is_in_the_way_is_named_with_what_it_has(self):
        self.set_up(wait="0")
        error, message = self.engine.do("resume", "weights")
        self.assertEqual(error, "DeviceMemoryError", message)
        self.assertIn(f"rule 1 (resume engine.weights) needs trainer.optim paused: process {self.trainer.pid} (trainer) has it ACTIVE",
                      message)
        self.assertIn("600 MiB", message)
        self.assertIn("Nothing changed", message)
        why = self.lowtide("policy", "why", self.engine.pid, "weights")
        self.assertIn(f"process {self.trainer.pid} (trainer)", why.stdout)

    def test_room_that_others_hold_is_waited_for_beyond_the_rules(self):
        self.set_up(wait="0")
        self.works(self.trainer, "pause", "optim")
        self.works(self.trainer, "allocate", "grads", 800)
        error, message = self.engine.do("resume", "weights")
        self.assertEqual(error, "DeviceMemoryError", message)
        self.assertRegex(message, rf"needs 300 MiB and 16.0 MiB of headroom .* process {self.trainer.pid} \(trainer\) has grads there")
        self.works(self.trainer, "free", "grads")
        self.works(self.engine, "resume", "weights")

    def test_the_cache_on_stale_weights_is_refused_at_once(self):
        self.set_up()
        self.works(self.trainer, "pause", "optim")
        self.works(self.engine, "resume", "weights")
        error, message = self.engine.do("resume", "kv_cache")
        self.assertEqual(error, "RefusedError", message)
        self.assertIn("this process (engine) has it STALE", message)
        self.works(self.engine, "update", "weights", 7)
        self.works(self.engine, "resume", "kv_cache")
        self.assertEqual(self.policy_of(self.engine)["refusals"], 1)

    def test_a_resume_of_everything_names_the_stages_in_which_it_goes(self):
        self.set_up()
        self.works(self.trainer, "pause", "optim")
        error, message = self.engine.do("resume")
        self.assertEqual(error, "RefusedError", message)
        stages = re.search(r"resume (\w+) alone \(--tag \1\), update it, then resume (\w+)$", message)
        self.assertTrue(stages, message)
        first, then = stages.groups()
        self.works(self.engine, "resume", first)
        self.works(self.engine, "update", first, 1)
        self.works(self.engine, "resume", then)
        self.assertEqual(self.policy_of(self.engine)["inferred_phase"], "all resident")

    def hold_engine_with_everything_parked(self):
        self.set_up()
        self.works(self.trainer, "pause", "optim")
        self.works(self.engine, "resume", "weights")
        self.works(self.engine, "update", "weights", 1)
        self.works(self.engine, "resume", "kv_cache")
        self.assertEqual(self.lowtide("pause", self.engine.pid).returncode, 0)

    def test_a_held_process_whose_weights_came_back_stale_can_write_them(self):
        self.hold_engine_with_everything_parked()
        refused = self.lowtide("resume", self.engine.pid)
        self.assertEqual(refused.returncode, REFUSED, refused.stderr)
        self.assertIn("resume weights alone (--tag weights), update it, then resume kv_cache (", refused.stderr)
        first = self.lowtide("resume", "--tag", "weights", self.engine.pid)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.works(self.engine, "write", "weights")
        self.works(self.engine, "update", "weights", 2)
        then = self.lowtide("resume", "--tag", "kv_cache", self.engine.pid)
        self.assertEqual(then.returncode, 0, then.stderr)

    def test_work_that_was_held_half_done_stays_held_where_weights_came_back_stale(self):
        self.hold_engine_with_everything_parked()
        self.engine.ask("write", "kv_cache")
        self.until_it_has_heard(self.engine)
        self.assertEqual(self.lowtide("resume", "--tag", "weights", self.engine.pid).returncode, 0)
        refused = self.lowtide("resume", "--tag", "kv_cache", self.engine.pid)
        self.assertEqual(refused.returncode, REFUSED, refused.stderr)
        self.assertIn("commit an update of weights first; held in the middle of its work, it cannot", refused.stderr)

    def test_two_that_wait_for_each_other_are_told_so(self):
        self.set_up(more='[[rule]]\non = "resume optim"\nkind = "memory"\nneeds_paused = ["lora"]\n[tag.lora]\nrole = "engine"')
        self.works(self.trainer, "pause", "optim")
        self.works(self.trainer, "allocate", "optim", 100)
        self.works(self.engine, "allocate", "lora", 100)
        self.engine.ask("resume", "weights")
        self.until_it_waits(self.engine)
        error, message = self.trainer.do("resume", "optim")
        self.assertEqual(error, "RefusedError", message)
        self.assertIn(f"process {self.trainer.pid} waits to resume optim until process {self.engine.pid} pauses lora", message)
        self.assertIn("waits to resume weights until", message)
        self.works(self.trainer, "pause", "optim")
        self.assertEqual(self.engine.answer(), ["ok", ""])

    def test_observe_changes_nothing_and_tells(self):
        self.set_up(mode="observe", wait="0")
        self.works(self.engine, "resume", "weights")
        self.works(self.trainer, "pause", "optim")
        self.works(self.engine, "resume", "kv_cache")
        policy = self.policy_of(self.engine)
        self.assertEqual((policy["breaches"], policy["refusals"], policy["waits"]), (3, 0, 0))
        self.assertIn(f"process {self.trainer.pid} (trainer)", str(policy["rules"]))
        self.assertIn("broken 1 time: rule 1 (resume engine.weights)", self.lowtide("status", self.engine.pid).stdout)

    def test_off_looks_at_nothing(self):
        self.set_up(mode="off", wait="0")
        self.works(self.engine, "resume", "weights")
        policy = self.policy_of(self.engine)
        self.assertEqual((policy["breaches"], policy["ledger"]), (0, []))

    def test_a_phase_stops_for_the_update_and_goes_on_after_it(self):
        self.set_up()
        both = (self.trainer.pid, self.engine.pid)
        first = self.lowtide("phase", "to_rollout", *both)
        self.assertEqual(first.returncode, REFUSED, first.stderr)
        self.assertIn("weights is STALE (version 0): the phase goes on when its update is committed", first.stderr)
        self.works(self.engine, "update", "weights", 1)
        self.works(self.engine, "phase", "to_rollout")
        self.assertEqual(self.policy_of(self.engine)["phase"], "to_rollout")
        self.assertEqual(self.policy_of(self.engine)["inferred_phase"], "all resident")
        again = self.lowtide("phase", "to_train", *both, "--json")
        self.assertEqual((again.returncode, json.loads(again.stdout)["ok"]), (0, True), again.stderr)
        self.assertEqual(self.policy_of(self.engine)["inferred_phase"], "all parked")
        self.assertEqual(self.policy_of(self.trainer)["inferred_phase"], "all resident")

    def test_a_misspelt_phase_is_refused_before_anything_is_paused(self):
        self.set_up()
        result = self.lowtide("phase", "to_rolout", self.engine.pid, self.trainer.pid)
        self.assertEqual(result.returncode, USAGE, result.stderr)
        self.assertIn("there are to_rollout, to_train", result.stderr)
        self.assertEqual(self.policy_of(self.trainer)["inferred_phase"], "all resident")
        self.assertIsNone(self.policy_of(self.trainer)["phase"])

    def test_a_phase_that_waits_for_an_update_lets_the_process_write_it(self):
        self.set_up()
        self.works(self.trainer, "pause", "optim")
        both = (self.engine.pid, self.trainer.pid)
        for _ in range(2):
            for tag in ("weights", "kv_cache"):
                self.works(self.engine, "resume", tag)
                self.works(self.engine, "update", "weights", 1)
            parked = self.lowtide("phase", "to_train", *both)
            self.assertEqual(parked.returncode, 0, parked.stderr)
            first = self.lowtide("phase", "to_rollout", *both)
            self.assertEqual(first.returncode, REFUSED, first.stderr)
            self.works(self.engine, "write", "weights")
            self.works(self.engine, "update", "weights", 2)
            again = self.lowtide("phase", "to_rollout", *both)
            self.assertEqual(again.returncode, 0, again.stderr)

    def test_work_that_was_held_half_done_is_not_let_loose_on_parked_memory_by_an_update(self):
        self.set_up()
        self.works(self.trainer, "pause", "optim")
        self.works(self.engine, "resume", "weights")
        self.works(self.engine, "update", "weights", 1)
        self.works(self.engine, "resume", "kv_cache")
        self.assertEqual(self.lowtide("phase", "to_train", self.engine.pid).returncode, 0)
        self.engine.ask("write", "kv_cache")
        self.until_it_has_heard(self.engine)
        held = self.lowtide("phase", "to_rollout", self.engine.pid)
        self.assertEqual(held.returncode, REFUSED, held.stderr)
        self.assertIn("1 thread(s) of the process are held in the middle of work", held.stderr)

    def test_the_file_is_checked_by_the_command(self):
        self.set_up()
        good = self.lowtide("policy", "check", self.file)
        self.assertEqual((good.returncode, good.stdout), (0, f"{self.file}: mode enforce, 2 rules, 2 phases: nothing to complain of\n"))
        self.file.write_text('\n[tag.weights]\npause = "discard"\n')
        bad = self.lowtide("policy", "check", self.file, "--json")
        self.assertEqual((bad.returncode, json.loads(bad.stdout)["findings"][0]["line"]), (USAGE, 3))

    def test_the_last_one_out_leaves_no_table(self):
        self.set_up()
        key = self.policy_of(self.engine)["ledger"][0]["device"]
        table = pathlib.Path(f"/dev/shm/lowtide-{os.geteuid()}/ledger-1-{key}")
        self.assertEqual(self.policy_of(self.engine)["ledger"][0]["processes"], 2)
        self.assertTrue(table.exists())
        for process in (self.engine, self.trainer):
            process.process.stdin.close()
            process.process.wait(60)
        self.assertFalse(table.exists())


if __name__ == "__main__":
    unittest.main()
