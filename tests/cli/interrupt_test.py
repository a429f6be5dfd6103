# SPDX-License-Identifier: Apache-2.0
"""lowtide pause that is interrupted: what was begun is called off or put back, and the signal is what ends it."""
import json
import signal
import subprocess
import unittest

from support import COMMAND, CommandTest, FAILED

AT_ONCE = "lowtide: putting everything back; Ctrl-C again leaves it paused"


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
                AT_ONCE, f"lowtide: process {fake.pid}: the pause was interrupted",
                f"lowtide: process {fake.pid} was put back as it was"]))
            status = self.status_of(fake)
            self.assertEqual((status["gate"], {tag["state"] for tag in status["tags"]}), ("open", {"resident"}))
            self.assertEqual(fake.end(), ["called-off - - -", "resume - - -"])

    def test_an_interrupted_pause_that_has_begun_is_taken_back(self):
        fake = self.fake("progress=3")
        output, messages = self.interrupted(fake, "--json")
        outcome = json.loads(output)
        self.assertEqual((outcome["ok"], outcome["exit_code"], outcome["processes"][0]["undone"]), (False, FAILED, True))
        self.assertEqual((len(messages), messages[0]), (3, AT_ONCE))
        self.assertEqual({tag["state"] for tag in self.status_of(fake)["tags"]}, {"resident"})
        self.assertEqual(fake.end(), ["resume - - -"])

    def test_a_second_interrupt_ends_the_command_at_once(self):
        for options, resume in (((), ""), (("--tag", "weights"), " --tag weights")):
            fake = self.fake("progress=20")
            command = subprocess.Popen([COMMAND, "pause", str(fake.pid), *options], env=self.environment, text=True,
                                       stderr=subprocess.PIPE)
            self.assertTrue(fake.process.stdout.readline().startswith("pause "))
            command.send_signal(signal.SIGINT)
            self.assertEqual(command.stderr.readline(), AT_ONCE + "\n")  # while the pause goes on
            command.send_signal(signal.SIGINT)
            self.assertEqual(command.wait(60), -signal.SIGINT)
            told = command.stderr.read()
            command.stderr.close()
            self.assertIn(f"what is parked stays paused (asked: {fake.pid}); `lowtide resume {fake.pid}{resume}` brings it", told)
            self.assertEqual(told.count("\n"), 1, told)
            self.assertEqual([line for line in fake.end() if line.startswith("called-off")], [])

    def test_the_help_tells_what_an_interruption_does(self):
        self.assertIn("Ctrl-C once more ends it at once", self.lowtide("pause", "--help").stdout)
        self.assertIn("goes on in the process, and nothing is put back", self.lowtide("resume", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
