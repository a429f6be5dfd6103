# SPDX-License-Identifier: Apache-2.0
"""lowtide ps, status, pause, resume: against processes that have a socket, and against everything that has none."""
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import unittest

from support import (AS_NOBODY, COMMAND, CommandTest, DEVICE_MEMORY, FAILED, FamilyTest, NOBODY, NOT_FOUND, OK,
                     PERMISSION, PROCESS, REFUSED, USAGE)


class OneProcess(CommandTest):
    def test_pause_and_resume_report_what_they_moved(self):
        fake = self.fake()
        paused = self.lowtide("pause", fake.pid)
        self.assertEqual((paused.returncode, paused.stderr), (OK, ""))
        self.assertIn(f"process {fake.pid}: parked 2.00 GiB, 2 blocks", paused.stdout)
        self.assertIn("device 0: free 1.00 GiB -> 2.00 GiB", paused.stdout)
        self.assertEqual({tag["state"] for tag in self.status_of(fake)["tags"]}, {"parked"})
        resumed = json.loads(self.lowtide("resume", fake.pid, "--tag", "weights", "--json").stdout)
        self.assertTrue(resumed["ok"])
        self.assertEqual(resumed["processes"][0]["report"]["blocks"], 1)
        self.assertEqual(fake.end(), ["pause - hold=1 -", "resume weights - -"])

    def test_the_options_of_pause_reach_the_process(self):
        fake = self.fake()
        self.assertEqual(self.lowtide("pause", fake.pid, "--tag", "kv_cache", "--no-hold", "--timeout", "1.5").returncode, OK)
        self.assertEqual(fake.end(), ["pause kv_cache hold=0 1500"])

    def test_what_the_process_answers_decides_the_exit_code(self):
        for number, code, name in ((-1, USAGE, "INVALID"), (-2, USAGE, "CONFIG"), (-3, DEVICE_MEMORY, "DEVICE_MEMORY"),
                                   (-4, FAILED, "HOST_BUDGET"), (-5, REFUSED, "REFUSED"), (-6, FAILED, "MOVED"),
                                   (-7, FAILED, "DRIVER"), (-8, FAILED, "UNSUPPORTED"), (-9, FAILED, "CORRUPT"),
                                   (-10, REFUSED, "BUSY")):
            fake = self.fake(f"refuse={number}")
            self.check_refused(self.lowtide("pause", fake.pid), code, f"process {fake.pid}: not now: 3 GiB needed, 1 GiB free",
                               f"({name})")
            answer = self.lowtide("pause", fake.pid, "--json")
            self.assertEqual(answer.returncode, code)
            self.assertFalse(json.loads(answer.stdout)["ok"])
            fake.end()

    def test_an_unknown_tag_is_refused_with_those_there_are_and_nobody_is_asked(self):
        fake = self.fake()
        for verb in ("pause", "resume"):
            self.check_refused(self.lowtide(verb, fake.pid, "--tag", "wieghts"), USAGE, '"wieghts"', "kv_cache, weights")
        self.check_refused(self.lowtide("pause", fake.pid, "--tag", "a b"), USAGE, '"a b" is not a tag name')
        self.assertEqual(fake.end(), [])

    def test_trim_says_what_went_back_and_what_is_still_held(self):
        fake = self.fake()
        trimmed = self.lowtide("trim", fake.pid)
        self.assertEqual((trimmed.returncode, trimmed.stderr), (OK, ""))
        self.assertEqual(trimmed.stdout, f"process {fake.pid}: gave 3.00 MiB of host memory back, 1.00 GiB still held\n")
        answer = json.loads(self.lowtide("trim", "--json", "--", fake.pid).stdout)
        self.assertEqual(answer, {"ok": True, "exit_code": OK, "processes": [
            {"pid": fake.pid, "trim": {"bytes_given_back": 3 << 20, "bytes_held": 1 << 30}}]})
        self.check_refused(self.lowtide("trim", fake.pid, "--tag", "weights"), USAGE, "--tag")
        self.check_refused(self.lowtide("trim", "12x"), USAGE, '"12x" is not a process id')
        self.assertEqual(fake.end(), ["trim", "trim"])

    def test_a_trim_that_is_refused_or_not_understood(self):
        fake = self.fake("refuse-trim=-5")
        self.check_refused(self.lowtide("trim", fake.pid), REFUSED, f"process {fake.pid}: a stream capture", "(REFUSED)")
        answer = self.lowtide("trim", fake.pid, "--json")
        self.assertEqual(answer.returncode, REFUSED)
        self.assertFalse(json.loads(answer.stdout)["ok"])
        self.check_refused(self.lowtide("trim", self.fake("garbage").pid), FAILED, "gave an answer")

    def test_an_empty_or_odd_value_is_refused_and_never_taken_for_an_absent_option(self):
        fake = self.fake()
        for text in ("", " ", "-1", "-0", "+1", "0x10", "1e3", "nan", "inf", "-inf", "infinity", "1s", "1 ", "1,5", "1000001",
                     "1" * 400):
            for words in (("--timeout", text), (f"--timeout={text}",)):
                self.check_refused(self.lowtide("pause", fake.pid, *words), USAGE, "--timeout")
        for verb in ("pause", "resume"):
            self.check_refused(self.lowtide(verb, fake.pid, "--tag", ""), USAGE, '"" is not a tag name')
            self.check_refused(self.lowtide(verb, fake.pid, "--tag="), USAGE, "--tag")
        self.assertEqual(fake.end(), [])

    def test_two_hyphens_end_the_options(self):
        fake = self.fake()
        self.assertEqual(self.lowtide("pause", "--tag", "weights", "--", fake.pid).returncode, OK)
        self.assertTrue(json.loads(self.lowtide("status", "--json", "--", fake.pid).stdout)["ok"])
        self.assertEqual(self.lowtide("resume", "--", fake.pid).returncode, OK)
        for verb in ("pause", "resume", "status"):
            self.check_refused(self.lowtide(verb, "--", "--json"), USAGE, '"--json" is not a process id')
            self.check_refused(self.lowtide(verb, "--", fake.pid, "--json"), USAGE, "--json")
            self.check_refused(self.lowtide(verb, "--"), USAGE, "PID is required")
        self.assertEqual(fake.end(), ["pause weights hold=1 -", "resume - - -"])

    def test_ps_and_status_show_the_process_and_no_control_characters(self):
        fake = self.fake("parked=kv_cache")
        listed = self.lowtide("ps")
        row = next(line for line in listed.stdout.splitlines() if line.split()[0] == str(fake.pid))
        self.assertIn("(simulated)", row)
        self.assertIn("1.00 GiB", row)
        self.assertIn("fake ?[31m", row)
        shown = self.lowtide("status", fake.pid)
        self.assertIn("gate open", shown.stdout)
        self.assertRegex(shown.stdout, r"kv_cache\s+0\s+offload\s+parked\s+1\s+0 B\s+1.00 GiB\s+1.00 GiB\s+3.00 MiB")
        self.assertNotIn("\x1b", listed.stdout + shown.stdout)
        self.assertIn(fake.pid, [entry["pid"] for entry in json.loads(self.lowtide("ps", "--json").stdout)["processes"]])

    def test_colour_only_on_a_terminal_and_not_with_no_color(self):
        fake = self.fake()
        self.assertIn("\x1b[32mopen", self.on_terminal("status", fake.pid))
        self.assertNotIn("\x1b", self.on_terminal("status", fake.pid, NO_COLOR="1"))
        self.assertNotIn("\x1b", self.on_terminal("status", fake.pid, TERM="dumb"))

    def test_a_progress_bar_on_a_terminal_for_what_takes_long(self):
        slow = self.fake("progress=14")
        self.assertRegex(self.on_terminal("pause", slow.pid), r"pausing \[#+ +\] +\d+ %")
        quick = self.fake()
        self.assertNotIn("pausing", self.on_terminal("pause", quick.pid))
        self.assertEqual(self.lowtide("pause", self.fake("progress=14").pid).stderr, "")

    def test_a_process_that_answers_nonsense(self):
        fake = self.fake("garbage")
        self.check_refused(self.lowtide("status", fake.pid), FAILED, f"process {fake.pid} gave an answer that is not of this")
        self.check_refused(self.lowtide("pause", fake.pid), FAILED, "gave an answer")
        listed = self.lowtide("ps")
        self.assertIn("(no answer)", listed.stdout)
        self.assertEqual(fake.end(), [])

    def test_a_stopped_process_is_not_waited_for_without_end(self):
        fake = self.fake()
        os.kill(fake.pid, signal.SIGSTOP)
        self.addCleanup(lambda: fake.process.poll() is None and os.kill(fake.pid, signal.SIGCONT))
        self.check_refused(self.lowtide("pause", fake.pid), FAILED, f"process {fake.pid} does not answer")
        os.kill(fake.pid, signal.SIGCONT)
        self.assertEqual(fake.end(), [])

    def test_a_process_that_is_killed_in_the_middle(self):
        fake = self.fake("progress=1000")
        command = subprocess.Popen([COMMAND, "pause", str(fake.pid)], env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(fake.process.stdout.readline(), "pause - hold=1 -\n")
        os.kill(fake.pid, signal.SIGKILL)
        output, message = command.communicate(timeout=60)
        self.assertEqual((command.returncode, output), (NOT_FOUND, ""))
        self.assertIn(f"process {fake.pid} ended before it had answered", message)

    def on_terminal(self, *arguments, **variables):
        master, slave = pty.openpty()
        environment = {**self.environment, "TERM": "xterm", **variables}
        with subprocess.Popen([COMMAND, *map(str, arguments)], env=environment, stdout=slave, stderr=slave) as process:
            os.close(slave)
            text = b""
            while True:
                try:
                    chunk = os.read(master, 4096)
                except OSError:
                    break
                if not chunk:
                    break
                text += chunk
            process.wait()
        os.close(master)
        return text.decode()


class NoProcess(CommandTest):
    def test_what_is_no_process_id(self):
        for text in ("abc", "0", "12x", "99999999999999", ""):
            self.check_refused(self.lowtide("pause", text), USAGE, f'"{text}" is not a process id')

    def test_a_dead_pid(self):
        ended = subprocess.Popen(["true"])
        ended.wait()
        for verb in ("status", "pause", "resume", "trim"):
            self.check_refused(self.lowtide(verb, ended.pid), NOT_FOUND, f"there is no process {ended.pid}")
        answer = self.lowtide("status", ended.pid, "--json")
        self.assertEqual(json.loads(answer.stdout)["error"]["exit_code"], NOT_FOUND)

    def test_a_killed_process_leaves_a_socket_that_is_removed(self):
        fake = self.fake()
        os.kill(fake.pid, signal.SIGKILL)
        fake.process.wait()
        self.assertTrue(os.path.exists(fake.socket))
        self.check_refused(self.lowtide("pause", fake.pid), NOT_FOUND, "leftover socket was removed")
        self.assertFalse(os.path.exists(fake.socket))

    def test_a_recycled_pid_is_not_taken_for_its_predecessor(self):
        sleeper = subprocess.Popen(["sleep", "60"])
        self.addCleanup(lambda: (sleeper.kill(), sleeper.wait()))
        os.mkdir(self.runtime, 0o700)
        path = os.path.join(self.runtime, f"{sleeper.pid}-1.sock")
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(path)
        self.check_refused(self.lowtide("pause", sleeper.pid), NOT_FOUND, "an earlier process with that PID")
        self.assertFalse(os.path.exists(path))
        self.check_refused(self.lowtide("pause", sleeper.pid), NOT_FOUND, "is not under Lowtide", self.runtime)
        self.assertIsNone(sleeper.poll())

    def test_a_runtime_folder_that_is_not_to_be_trusted(self):
        fake = self.fake()
        os.chmod(self.runtime, 0o777)
        self.check_refused(self.lowtide("pause", fake.pid), PERMISSION, self.runtime, "can be written by others (mode 0777)")
        os.chmod(self.runtime, 0o700)
        link = os.path.join(self.folder, "link")
        os.symlink(self.runtime, link)
        self.check_refused(self.lowtide("pause", fake.pid, LOWTIDE_RUNTIME_DIR=link), PERMISSION, link, "symbolic link")
        listed = self.lowtide("ps", LOWTIDE_RUNTIME_DIR=link)
        self.assertEqual(listed.returncode, PERMISSION)
        self.assertIn("symbolic link", listed.stderr)
        self.assertEqual(fake.end(), [])


class Family(FamilyTest):
    def test_a_parent_means_all_below_it(self):
        parent = self.family("tags=a", "tags=b")
        self.assertEqual(self.lowtide("pause", parent.pid).returncode, OK)
        self.assertEqual(self.states(parent), [("a", "parked"), ("b", "parked")])
        self.assertEqual(self.lowtide("resume", parent.pid).returncode, OK)
        self.assertEqual(self.states(parent), [("a", "resident"), ("b", "resident")])

    def test_a_tag_is_asked_only_of_those_that_have_it(self):
        parent = self.family("tags=a", "tags=b")
        self.assertEqual(self.lowtide("pause", parent.pid, "--tag", "b").returncode, OK)
        self.assertEqual((self.lines(0), self.lines(1)), ([], ["pause b hold=1 -"]))

    def test_a_trim_that_one_refuses_reaches_the_others(self):
        parent = self.family("tags=a refuse-trim=-5", "tags=b")
        answer = self.lowtide("trim", parent.pid, "--json")
        self.assertEqual(answer.returncode, REFUSED)
        self.assertEqual(sorted("trim" in process for process in json.loads(answer.stdout)["processes"]), [False, True])
        self.assertEqual((self.lines(0), self.lines(1)), (["trim"], ["trim"]))

    def test_if_one_refuses_to_pause_the_other_is_put_back(self):
        parent = self.family("tags=a", "tags=b refuse=-5")
        result = self.lowtide("pause", parent.pid)
        self.assertEqual((result.returncode, result.stdout), (REFUSED, ""))
        first, second = result.stderr.splitlines()
        self.assertIn("not now: 3 GiB needed, 1 GiB free (REFUSED)", first)
        self.assertRegex(second, r"^lowtide: process \d+ was put back as it was$")
        self.assertEqual(self.lines(0), ["pause - hold=1 -", "resume - - -"])
        self.assertEqual(self.states(parent), [("a", "resident"), ("b", "resident")])
        self.assertEqual(self.gates(parent), ["open", "open"])

    def test_if_one_does_not_come_to_rest_and_the_command_is_interrupted_the_other_is_put_back(self):
        parent = self.family("tags=a", "tags=b never-rests")
        command = subprocess.Popen([COMMAND, "pause", str(parent.pid)], env=self.environment, stderr=subprocess.DEVNULL)
        while ("a", "parked") not in self.states(parent) or not self.lines(1):
            self.assertIsNone(command.poll())
        command.send_signal(signal.SIGINT)
        self.assertEqual(command.wait(60), -signal.SIGINT)
        self.assertEqual(self.states(parent), [("a", "resident"), ("b", "resident")])
        self.assertEqual(self.gates(parent), ["open", "open"])
        self.assertEqual(self.lines(1), ["pause - hold=1 -", "called-off - - -", "resume - - -"])

    def test_what_was_parked_before_stays_parked_when_the_rest_is_put_back(self):
        parent = self.family("tags=a,b,c parked=b", "tags=d refuse=-3")
        self.assertEqual(self.lowtide("pause", parent.pid).returncode, DEVICE_MEMORY)
        self.assertEqual(self.lines(0), ["pause - hold=1 -", "resume a - -", "resume c - -"])
        self.assertEqual(self.states(parent), [("a", "resident"), ("b", "parked"), ("c", "resident"), ("d", "resident")])

    def test_if_one_refuses_to_resume_the_other_is_paused_again(self):
        parent = self.family("tags=a parked=a", "tags=b parked=b refuse-resume=-3")
        result = self.lowtide("resume", parent.pid)
        self.assertEqual(result.returncode, DEVICE_MEMORY)
        self.assertEqual(self.lines(0), ["resume - - -", "pause - hold=0 -"])
        self.assertEqual(self.states(parent), [("a", "parked"), ("b", "parked")])

    def test_if_putting_back_fails_that_is_said(self):
        parent = self.family("tags=a refuse-resume=-7", "tags=b refuse=-5")
        result = self.lowtide("pause", parent.pid)
        self.assertEqual(result.returncode, REFUSED)
        self.assertRegex(result.stderr, r"process \d+ could not be put back: process \d+: not now.*\(DRIVER\)")
        outcome = json.loads(self.lowtide("pause", parent.pid, "--json").stdout)
        self.assertFalse(outcome["ok"])

    def test_if_one_does_not_answer_nobody_is_paused(self):
        parent = self.family("tags=a", "garbage")
        self.check_refused(self.lowtide("pause", parent.pid), FAILED, "gave an answer")
        self.assertEqual(self.lines(0), [])


@unittest.skipUnless(AS_NOBODY, "needs root, to be two users")
class TwoUsers(CommandTest):
    def setUp(self):
        super().setUp()
        # The build tree may lie where another user cannot go.
        self.command = shutil.copy(COMMAND, os.path.join(self.folder, "lowtide"))
        self.fake_binary = shutil.copy(PROCESS, os.path.join(self.folder, "fake"))

    def as_nobody(self, *arguments, **variables):
        return subprocess.run([*AS_NOBODY, self.command, *map(str, arguments)], env={**self.environment, **variables}, text=True,
                              capture_output=True, timeout=120, check=False)

    def test_another_users_process_is_not_ones_to_pause(self):
        fake = self.fake()
        theirs = os.path.join(self.folder, "theirs")
        self.check_refused(self.as_nobody("pause", fake.pid, LOWTIDE_RUNTIME_DIR=theirs), PERMISSION,
                           f"process {fake.pid} belongs to user root (0)")
        self.check_refused(self.as_nobody("pause", fake.pid), PERMISSION, f"process {fake.pid} belongs to user root (0)")
        self.assertEqual(fake.end(), [])

    def test_a_socket_of_another_user_is_not_asked_and_does_not_answer(self):
        fake = self.fake()
        # A folder of nobody's in which root's socket lies, open to all: as wrong as it gets.
        os.chmod(fake.socket, 0o666)
        os.chmod(self.runtime, 0o711)
        os.chown(self.runtime, NOBODY, NOBODY)
        self.check_refused(self.as_nobody("pause", fake.pid), PERMISSION, f"process {fake.pid} belongs to user 0")
        with open(os.path.join(self.folder, "ask.py"), "w", encoding="utf-8") as script:
            script.write(f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({fake.socket!r})\n"
                         "s.sendall(b'pause\\n')\nprint(s.makefile().read())\n")
        os.chown(self.runtime, 0, 0)
        answer = subprocess.run([*AS_NOBODY, "/usr/bin/python3", script.name], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            self.assertIn("this process belongs to user 0, and you are user 65534", answer.stdout)
        self.assertEqual(fake.end(), [])

    def test_a_folder_of_another_user_is_not_used(self):
        fake = self.fake()
        result = self.as_nobody("ps")
        self.assertEqual(result.returncode, PERMISSION)
        self.assertIn(f"{self.runtime} belongs to user 0, not to user {NOBODY}", result.stderr)
        refused = self.as_nobody("run", "--", "true")
        self.assertEqual(refused.returncode, PERMISSION, refused.stderr)
        self.assertEqual(fake.end(), [])

    def test_a_folder_without_permission_to_make_it(self):
        self.check_refused(self.as_nobody("run", "--", "true"), PERMISSION, self.runtime, "cannot be made: Permission denied")
        self.assertFalse(os.path.exists(self.runtime))

    def test_root_may_pause_another_users_process(self):
        os.mkdir(self.runtime, 0o700)
        os.chown(self.runtime, NOBODY, NOBODY)
        process = subprocess.Popen([*AS_NOBODY, self.fake_binary], env=self.environment, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        self.addCleanup(lambda: (process.stdin.close(), process.wait(), process.stdout.close()))
        self.assertTrue(process.stdout.readline().startswith("ready"))
        self.assertEqual(self.lowtide("pause", process.pid).returncode, OK)


if __name__ == "__main__":
    unittest.main()
