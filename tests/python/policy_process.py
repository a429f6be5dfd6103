# SPDX-License-Identifier: Apache-2.0
"""policy_process.py: a process with tagged memory that does what it is told, a JSON line each: [METHOD, ARGUMENT...]. It
answers "ok", or the name of the error and its message; and prints its PID first."""
import json
import os
import sys

import lowtide
from support import MIB, Device


class Holder:
    def __init__(self):
        self.device, self.blocks = Device(), {}

    def allocate(self, tag, mib):
        with lowtide.scope(tag):
            self.blocks[tag] = self.device.allocate(mib * MIB)

    def free(self, tag):
        self.device.free_block(self.blocks.pop(tag))

    def update(self, tag, version):
        with lowtide.begin_update(tag, version):
            pass

    def write(self, tag):
        assert self.device.write(self.blocks[tag], b"new") == 0

    def __getattr__(self, name):
        return getattr(lowtide, name)


def main():
    holder = Holder()
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        try:
            getattr(holder, method)(*arguments)
            answer = ["ok", ""]
        except (lowtide.Error, AssertionError) as error:
            answer = [type(error).__name__, str(error)]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
