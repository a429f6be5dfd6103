# SPDX-License-Identifier: Apache-2.0
"""lowtide trace: what it writes to, and reads from, need not be a file on a disk."""
import os
import stat
import subprocess
import unittest

from support import COMMAND, OK
from trace_test import TraceTest, training

LINES = 2000
LINE = "Before rollout{}, memory allocated (GB): 1.00, memory reserved (GB): 2.00, device memory used/total (GB): 3.00/4.00\n"


class Output(TraceTest):
    def export(self, to, **more):
        command = [COMMAND, "trace", "export", "--to", "csv", "-o", to, self.file("a", training())]
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=120, check=False, **more)

    def whole(self):
        result = self.export("-")
        self.assertEqual(result.returncode, OK, result.stderr)
        return result.stdout

    def test_a_device_or_pipe_is_written_to_and_not_replaced(self):
        pipe = os.path.join(self.folder, "pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        result = self.export(pipe)
        self.assertEqual((result.returncode, result.stderr), (OK, b""))
        self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
        self.assertEqual(os.read(reader, 1 << 16), self.whole())

    def test_a_link_stays_and_its_file_is_written(self):
        file, link = os.path.join(self.folder, "file"), os.path.join(self.folder, "link")
        with open(file, "wb") as old:
            old.write(b"old" * 100000)
        os.symlink(file, link)
        self.assertEqual(self.export(link).returncode, OK)
        self.assertTrue(os.path.islink(link))
        with open(file, "rb") as written:
            self.assertEqual(written.read(), self.whole())

    def test_the_shell_names_open_files_by_paths(self):
        result = self.export("/dev/fd/1")
        self.assertEqual((result.returncode, result.stderr), (OK, b""))
        self.assertEqual(result.stdout, self.whole())


class Input(TraceTest):
    def test_no_line_of_a_log_from_a_pipe_is_lost(self):
        log = "".join(LINE.format(i) for i in range(LINES))
        for verb in ("log", "report"):
            result = subprocess.run([COMMAND, "trace", verb, "/dev/stdin"], input=log, env=self.environment, text=True,
                                    capture_output=True, timeout=120, check=False)
            self.assertEqual((result.returncode, result.stderr), (OK, ""))
            self.assertEqual(result.stdout.count("rollout"), LINES)


if __name__ == "__main__":
    unittest.main()
