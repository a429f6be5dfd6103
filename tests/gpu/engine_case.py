# SPDX-License-Identifier: Apache-2.0
"""What the cases of vllm/ and sglang/ say with: what the device and Lowtide answer meanwhile, and a server's end points."""
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

from run_real_programs import OtherProcess

FOLDER = pathlib.Path(os.environ["CASE_FOLDER"])
LOWTIDE = os.environ.get("CASE_LOWTIDE")  # the command; none in the rows without Lowtide
GIB = 1 << 30
MIB = 1 << 20
# Prompts of several lengths, as tokens.
PROMPTS = [[3 + 7919 * (i + 1) * (j + 1) % 31000 for j in range(24 + 8 * i)] for i in range(4)]


class Failure(Exception):
    """The case fails, with the reason."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def of_sense(tokens):
    """The tokens of each prompt, once it is clear that the model says something."""
    require(all(len(set(row)) > 4 for row in tokens), f"the model says nothing: {tokens}")
    return tokens


def gib(size):
    return f"{size / GIB:.2f} GiB"


def timed(work):
    """Seconds."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def lowtide(verb, *options, pid=None):
    """What `lowtide VERB PID` prints, of this process unless another is named."""
    done = run_lowtide(verb, pid, options)
    require(done.returncode == 0, f"lowtide {verb}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def refusal(verb, *options, pid=None):
    """What it says when it does not do so."""
    done = run_lowtide(verb, pid, options)
    require(done.returncode != 0, f"lowtide {verb} is not refused: {done.stdout}")
    return done.stderr.strip()


def run_lowtide(verb, pid, options):
    return subprocess.run([LOWTIDE, verb, str(pid or os.getpid()), *options], capture_output=True, text=True, check=False)


def status(pid=None):
    """What `lowtide status` says of the tags: {tag: (resident bytes, parked bytes)} over a process and those it started."""
    tags = {}
    for process in json.loads(lowtide("status", "--json", pid=pid))["processes"]:
        for each in process["tags"]:
            resident, parked = tags.get(each["tag"], (0, 0))
            tags[each["tag"]] = (resident + each["bytes_resident"], parked + each["bytes_parked"])
    return tags


def others():
    """A process without Lowtide that takes device memory."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and not key.startswith("LOWTIDE_")}
    other = OtherProcess(sys.executable, environment)
    other.ask("fill 1")
    other.ask("release")
    return other


def wait_for(condition, process, seconds):
    end = time.monotonic() + seconds
    while not condition():
        require(process.poll() is None, f"the server ended with {process.returncode}")
        require(time.monotonic() < end, f"the server is not up after {seconds} s")
        time.sleep(0.5)


def ask(port, path, data=None):
    """What a server on this machine answers, as bytes; None if there is none."""
    headers = {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers), timeout=60) as answer:
            return answer.read()
    except OSError as error:
        if isinstance(error, urllib.error.HTTPError):
            raise Failure(f"{path}: {error} {error.read()[:300]}") from error
        return None


def play(cases):
    """The case named by the first argument, out of a module's names."""
    numbers = cases[sys.argv[1]]()
    pathlib.Path(os.environ["CASE_RESULT"]).write_text(json.dumps(numbers), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # an engine's own end takes seconds and is none of the case's
