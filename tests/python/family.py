# SPDX-License-Identifier: Apache-2.0
"""family.py METHOD: a server that uses no GPU itself and starts two workers that do, as engines start their ranks. METHOD is
a start method of multiprocessing, or session (a new session each) or daemon (each forked twice, so that init or a subreaper
becomes its parent), or helpers: a worker alone, which starts a program for each line of its input. Prints the PIDs of the
workers when both hold 8 MiB of weights, and ends when its input does."""
import json
import multiprocessing
import os
import subprocess
import sys

import lowtide
from support import MIB, Device

CONTENT = b"of a worker"


def hold():
    """Uses the GPU. Returns what tells whether the bytes are still right."""
    device = Device()
    with lowtide.scope("weights"):
        block = device.allocate(8 * MIB)
    assert device.write(block, CONTENT) == 0
    return lambda: device.read(block, len(CONTENT)) == CONTENT


def worker(ready, leave):
    is_right = hold()
    ready.put(os.getpid())
    leave.wait()
    assert is_right()


def by_multiprocessing(method):
    context = multiprocessing.get_context(method)
    ready, leave = context.Queue(), context.Event()
    workers = [context.Process(target=worker, args=(ready, leave)) for _ in range(2)]
    for each in workers:
        each.start()
    say([ready.get(timeout=60) for _ in workers])
    leave.set()
    for each in workers:
        each.join(60)
    assert [each.exitcode for each in workers] == [0, 0]


def by_programs(way):
    # Each worker has a pipe of the server's as its input: it ends with the server, whoever its parent is by then.
    command = [sys.executable, "-B", __file__, f"one-{way}"]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                start_new_session=way == "session") for _ in range(2)]
    say([json.loads(each.stdout.readline())[0] for each in workers])
    for each in workers:
        each.stdin.close()
        assert each.stdout.read() == "right\n" and each.wait(60) == 0


def one(way):
    if way == "daemon" and os.fork() != 0:
        os._exit(0)
    is_right = hold()
    say([os.getpid()])
    print("right" if is_right() else "wrong", flush=True)


def helpers():
    is_right, started = hold(), []
    print(json.dumps([os.getpid()]), flush=True)
    for line in sys.stdin:
        started.append(subprocess.Popen(json.loads(line), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL))
        print(json.dumps([started[-1].pid]), flush=True)
    for each in started:
        each.stdin.close()
        each.wait(60)
    assert is_right()


def say(pids):
    print(json.dumps(pids), flush=True)
    sys.stdin.read()


def main(method):
    if method in multiprocessing.get_all_start_methods():
        by_multiprocessing(method)
    elif method.startswith("one-"):
        one(method[len("one-"):])
    elif method == "helpers":
        helpers()
    else:
        by_programs(method)


if __name__ == "__main__":
    main(sys.argv[1])
