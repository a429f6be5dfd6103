# SPDX-License-Identifier: Apache-2.0
"""What a process that plays a row of run_drop_in.py's table says to it: that it waits for its turn, and how it ended."""
import json
import os
import sys

MIB = 1 << 20


class Failure(Exception):
    """The case fails, with the reason."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def in_mib(size):
    return f"{size / MIB:.0f} MiB"


def wait_for_turn():
    """Everything up to here may run beside another case; from here on the device is ours."""
    if sys.stdin.readline() == "":
        sys.exit("the runner has gone")


def finish(result, numbers):
    with open(os.environ["DROP_IN_RESULT"], "w", encoding="utf-8") as file:
        json.dump({"result": result, "numbers": numbers or ""}, file)
