# SPDX-License-Identifier: Apache-2.0
"""A trainer or an engine that does what it is told, a line of JSON each: [METHOD, ARGUMENT...]. It answers {"answer": ...}, or
{"error": the name of the exception, "message": ...}, with the moments of its monotonic clock at which it began and ended.

What loads here must not touch the device: that is for `build`, when the row has its turn."""
import dataclasses
import importlib
import json
import mmap
import os
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "drop_in")]

import lowtide  # noqa: E402

BLOCKS = "lib/simulated" in os.environ.get("LD_LIBRARY_PATH", "")  # the simulated GPU plays no kernels of PyTorch's
KINDS = {"adamw": "trainers", "fsdp2": "trainers", "flat": "trainers", "engine": "engines", "saver_engine": "engines"}


class Player:
    """What trainers and engines can be told alike."""

    def __init__(self):
        self.shared = mmap.mmap(int(os.environ["POLICY_SHARED"]), 0)  # weights on their way, one slot after another

    def close(self):
        """Nothing more will be told."""

    def pause(self, tag=None):
        return dataclasses.asdict(lowtide.pause(tag))

    def resume(self, tag=None):
        return dataclasses.asdict(lowtide.resume(tag))

    def pause_again(self, tag, times):
        """Of a tag that is parked: seconds of one call."""
        start = time.monotonic()
        for _ in range(times):
            lowtide.pause(tag)
        return (time.monotonic() - start) / times

    def info(self, tag):
        return dataclasses.asdict(lowtide.info(tag))

    def set(self, key, value):
        lowtide.set(key, value)

    def begin_update(self, tag, version):
        lowtide.begin_update(tag, version)

    def commit_update(self, tag, version):
        lowtide.commit_update(tag, version)

    def abort_update(self, tag):
        lowtide.abort_update(tag)


def make(kind):
    if kind in KINDS:
        module = importlib.import_module("blocks" if BLOCKS else KINDS[kind])
    else:
        module = importlib.import_module("holders")
    return module.KINDS[kind]()


def carry_out(player, line):
    method, *arguments = json.loads(line)
    said = {"began": time.monotonic()}
    try:
        said["answer"] = getattr(player, method)(*arguments)
    except Exception as error:  # pylint: disable=broad-except  the director knows which are expected
        traceback.print_exc()
        said.update(error=type(error).__name__, message=str(error))
    return {**said, "ended": time.monotonic()}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    player = make(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(carry_out(player, line)), file=answers, flush=True)
    player.close()


if __name__ == "__main__":
    sys.modules["player"] = sys.modules["__main__"]  # the modules of the kinds import it by its name
    main()
