# SPDX-License-Identifier: Apache-2.0
"""lowtide top: as lines, and on a terminal."""
import os
import pty
import select
import signal
import subprocess
import time
import unittest

from support import COMMAND, CommandTest, OK


class Lines(CommandTest):
    def test_a_bar_shows_what_the_memory_of_a_device_is_used_for(self):
        self.fake("parked=kv_cache")
        lines = self.lowtide("top", "--once").stdout.splitlines()
        self.assertEqual(lines[0], "device 0  Fake (simulated)  1.00 GiB of 2.00 GiB used")
        self.assertEqual(lines[1], "[" + "#" * 59 + "." * 59 + "]")
        self.assertEqual(lines[2], " # weights 1.00 GiB   ~ not tagged 0 B   . free 1.00 GiB")

    def test_processes_that_share_a_device_share_its_bar(self):
        fakes = [self.fake("tags=weights"), self.fake("tags=kv_cache")]
        text = self.lowtide("top", "--once").stdout
        self.assertEqual(text.count("device 0"), 1)
        self.assertRegex(text, r"weights .*kv_cache|kv_cache .*weights")
        for fake in fakes:
            self.assertRegex(text, rf"(?m)^ *{fake.pid}  runs ")

    def test_equal_devices_of_two_processes_are_told_apart(self):
        self.fake("key=GPU-1")
        self.fake("key=GPU-2")
        self.assertEqual(self.lowtide("top", "--once").stdout.count("device 0"), 2)

    def test_a_pause_under_way_is_shown_with_how_far_it_is(self):
        fake = self.fake(f"transition=pause,{1 << 30},{4 << 30}")
        self.assertRegex(self.lowtide("top", "--once").stdout, rf"(?m)^ *{fake.pid}  pausing 25 %  ")

    def test_one_that_answers_nonsense_is_shown_all_the_same(self):
        fake = self.fake("garbage")
        self.assertRegex(self.lowtide("top", "--once").stdout, rf"(?m)^ *{fake.pid}  no answer ")

    def test_without_a_process_it_says_so(self):
        result = self.lowtide("top", "--once")
        self.assertEqual((result.returncode, result.stdout), (OK, "no process under Lowtide uses a GPU here\n"))

    def test_a_pipe_gets_lines_without_control_characters(self):
        self.fake()
        environment = {**self.environment, "TERM": "xterm-256color"}
        with subprocess.Popen([COMMAND, "top", "--interval", "0.1"], env=environment, stdout=subprocess.PIPE, text=True) as top:
            text = "".join(top.stdout.readline() for _ in range(14))
            top.terminate()
        self.assertGreaterEqual(text.count("device 0  Fake"), 2)
        self.assertNotIn("\x1b", text)


class Terminal(CommandTest):
    def shown(self, end, **variables):
        """What a terminal gets until the command ends, which it is asked to by a key or a signal; its exit code."""
        main, other = pty.openpty()
        environment = {**self.environment, "TERM": "xterm-256color", "LINES": "30", "COLUMNS": "120", **variables}
        top = subprocess.Popen([COMMAND, "top", "--interval", "0.1"], env=environment, stdin=other, stdout=other,
                               stderr=subprocess.PIPE)
        os.close(other)
        self.addCleanup(top.kill)
        text, ends = b"", time.monotonic() + 60
        while time.monotonic() < ends:
            if b"COMMAND" in text and end:
                os.write(main, end) if isinstance(end, bytes) else top.send_signal(end)
                end = None
            if not select.select([main], [], [], 0.1)[0]:
                continue
            try:
                text += os.read(main, 65536)
            except OSError:
                break
        os.close(main)
        with top:
            self.assertEqual(top.communicate(timeout=60)[1], b"")
        return text.decode(errors="replace"), top.returncode

    def test_q_ends_it_and_the_terminal_is_as_before(self):
        fake = self.fake()
        text, code = self.shown(b"q")
        self.assertEqual(code, OK)
        self.assertIn(str(fake.pid), text)
        self.assertLess(text.index("\x1b[?1049h"), text.rindex("\x1b[?1049l"))

    def test_an_interrupt_does_so_too(self):
        self.fake()
        text, code = self.shown(signal.SIGINT)
        self.assertEqual(code, OK)
        self.assertIn("\x1b[?1049l", text)

    def test_a_terminal_that_is_gone_ends_it(self):
        self.fake()
        main, other = pty.openpty()
        environment = {**self.environment, "TERM": "xterm-256color"}
        top = subprocess.Popen([COMMAND, "top", "--interval", "0.1"], env=environment, stdin=other, stdout=other)
        self.addCleanup(top.kill)
        os.close(other)
        os.read(main, 1)
        os.close(main)
        top.wait(timeout=60)

    def test_no_color_means_none(self):
        self.fake()
        self.assertRegex(self.shown(b"q")[0], "\x1b\\[[0-9;]*3[0-9]m")
        self.assertNotRegex(self.shown(b"q", NO_COLOR="1")[0], "\x1b\\[[0-9;]*3[0-9]m")


if __name__ == "__main__":
    unittest.main()
