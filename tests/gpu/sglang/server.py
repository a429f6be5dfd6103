# SPDX-License-Identifier: Apache-2.0
"""The case of SGLang's server, of which only the launcher's PID and the end points are known."""
import json
import os
import signal
import subprocess
import sys
import time

from engine import SAMPLING, SETTINGS
from engine_case import GIB, PROMPTS, Failure, ask, lowtide, of_sense, others, require, status, wait_for

PORT = 18771


def outside():
    process = subprocess.Popen([sys.executable, "-m", "sglang.launch_server", *arguments()], env=dict(os.environ))
    try:
        return play_outside(process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def arguments():
    """The settings of the other cases, as the command line has them."""
    words = ["--port", str(PORT), "--enable-weights-cpu-backup", "--skip-server-warmup"]
    for name, value in SETTINGS.items():
        words.append("--" + name.replace("_", "-"))
        words += [] if value is True else [str(each) for each in (value if isinstance(value, list) else [value])]
    return words


def play_outside(process):
    wait_for(lambda: ask(PORT, "/health") is not None, process, 120)
    other, expected, awake = others(), answers(), status(process.pid)
    require(awake["weights"][0] > GIB and awake["kv_cache"][0] > GIB, f"status says {awake}")
    sizes = sum(resident for resident, _ in awake.values())

    def gone(when, before):
        require(all(resident == 0 for resident, _ in status(process.pid).values()), f"{when}, status says {status(process.pid)}")
        require(other.free() - before > 0.98 * sizes, f"{when}: {other.free() - before} of {sizes} bytes freed")

    for number in range(2):
        before = other.free()
        post("/release_memory_occupation")
        gone("released", before)
        post("/release_memory_occupation")  # again: nothing
        post("/resume_memory_occupation", tags=["weights"])
        post("/resume_memory_occupation", tags=["kv_cache", "cuda_graph"])
        require(answers() == expected, f"other outputs after /resume_memory_occupation {number}")
        before = other.free()
        lowtide("pause", pid=process.pid)
        gone("paused", before)
        lowtide("resume", pid=process.pid)
        require(status(process.pid) == awake, f"resumed, status says {status(process.pid)} and not {awake}")
        require(answers() == expected, f"other outputs after lowtide resume {number}")
    return "/release_memory_occupation and /resume_memory_occupation, `lowtide pause PID` and `resume` of the server's PID, twice"


def post(path, **body):
    return ask(PORT, path, json.dumps(body).encode())


def answers():
    found = [json.loads(post("/generate", input_ids=tokens, sampling_params=SAMPLING))["output_ids"] for tokens in PROMPTS]
    end = time.monotonic() + 20
    while not is_idle():
        require(time.monotonic() < end, "the scheduler is not idle after 20 s")
    return of_sense(found)


def is_idle():
    """As far as /flush_cache says, with an error if it is not."""
    try:
        return ask(PORT, "/flush_cache", b"") is not None
    except Failure:
        time.sleep(0.02)
        return False
