# SPDX-License-Identifier: Apache-2.0
"""How a victim program talks to the test that watches it: files in one folder, nothing of Lowtide.

ready        written when the loop starts; holds the victim's PID
progress     eight bytes, the number of finished steps, updated in place
stop         made by the test: finish after the current step
result.json  what the program computed, as a function of the number of steps only (`info` excepted)
"""

import argparse
import json
import mmap
import os
import struct
import time


def arguments(gib, blocks):
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True, help="the folder of the files named above")
    parser.add_argument("--steps", type=int, default=0, help="end after so many steps; 0: when `stop` appears")
    parser.add_argument("--seconds", type=float, default=900, help="end at the latest after this time, as a failure")
    parser.add_argument("--gib", type=float, default=gib, help="random bytes to hold")
    parser.add_argument("--blocks", type=int, default=blocks, help="least number of blocks they lie in")
    return parser.parse_args()


class RunFolder:
    def __init__(self, options):
        self.options_ = options
        self.steps = 0
        path = os.path.join(options.dir, "progress")
        with open(path, "wb") as file:
            file.write(bytes(8))
        with open(path, "r+b") as file:
            self.progress_ = mmap.mmap(file.fileno(), 8)
        self.stop_ = os.path.join(options.dir, "stop")
        self.deadline_ = time.monotonic() + options.seconds

    def write(self, name, text):
        """Appears under its name only when it is whole."""
        path = os.path.join(self.options_.dir, name)
        with open(path + ".part", "w") as file:
            file.write(text)
        os.replace(path + ".part", path)

    def loop(self):
        """Yields the number of each step, counting it once the caller comes back for the next."""
        self.write("ready", str(os.getpid()))
        while self.steps < self.options_.steps if self.options_.steps else not os.path.exists(self.stop_):
            if time.monotonic() > self.deadline_:
                raise TimeoutError(f"no stop after {self.options_.seconds} s and {self.steps} steps")
            yield self.steps
            self.steps += 1
            struct.pack_into("=q", self.progress_, 0, self.steps)

    def finish(self, digests, results, info):
        result = {"steps": self.steps, "digests": digests, "results": results, "info": info}
        self.write("result.json", json.dumps(result))
        print(json.dumps({"steps": self.steps, "info": info}), flush=True)
