# SPDX-License-Identifier: Apache-2.0
"""lowtide pause that is interrupted: what was begun is called off or put back, and the signal is what ends it."""
import json
import signal
import subprocess
import unittest

from support import COMMAND, CommandTest, FAILED


class Interrupted(CommandTest):
    def interrupted(self, fake, *options, number=signal.SIGINT):
        """A pause that is interrupted once the process was asked."""
        command = subprocess.Popen([COMMAND, "pause", str(fake.pid), *options], env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(fake.process.stdout.readline(), "pause - hold=1 -\n")
        command.send_signal(number)
        output, message = command.communicate(timeout=60)
        self.assertEqual(command.returncode, -number, message)
        return output, message.splitlines()

    def test_an_interrupted_pause_of_a_process_that_does_not_come_to_rest_is_called_off(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            fake = self.fake("never-rests")
            output, messages = self.interrupted(fake, number=number)
            self.assertEqual((output, messages), ("", [
                f"lowtide: process {fake.pid} is not waited for any more: called off",
                f"lowtide: process {fake.pid} was put back as it was"]))
            status = self.status_of(fake)
            self.assertEqual((status["gate"], {tag["state"] for tag in status["tags"]}), ("open", {"resident"}))
            self.assertEqual(fake.end(), ["called-off - - -", "resume - - -"])

    def test_an_interrupted_pause_that_has_begun_is_taken_back(self):
        fake = self.fake("progress=3")
        output, messages = self.interrupted(fake, "--json")
        outcome = json.loads(output)
        self.assertEqual((outcome["ok"], outcome["exit_code"], outcome["processes"][0]["undone"]), (False, FAILED, True))
        self.assertEqual(len(messages), 2)
        self.assertEqual({tag["state"] for tag in self.status_of(fake)["tags"]}, {"resident"})
        self.assertEqual(fake.end(), ["resume - - -"])

    def test_a_second_interrupt_ends_the_command_at_once(self):
        fake = self.fake("progress=20")
        command = subprocess.Popen([COMMAND, "pause", str(fake.pid)], env=self.environment, stderr=subprocess.DEVNULL)
        self.assertEqual(fake.process.stdout.readline(), "pause - hold=1 -\n")
        command.send_signal(signal.SIGINT)
        while self.catches(command.pid, signal.SIGINT):
            pass
        command.send_signal(signal.SIGINT)
        self.assertEqual(command.wait(60), -signal.SIGINT)
        self.assertIn(fake.end(), ([], ["resume - - -"]))

    @staticmethod
    def catches(pid, number):
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
        return int(caught.split()[1], 16) >> (number - 1) & 1


if __name__ == "__main__":
    unittest.main()
