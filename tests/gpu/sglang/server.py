# SPDX-License-Identifier: Apache-2.0
"""The case of SGLang's server, of which only the launcher's PID and the end points are known."""
import json
import subprocess
import sys

from engine import SAMPLING, SETTINGS
from engine_case import GIB, PROMPTS, Failure, ask, lowtide, of_sense, others, require, status, wait_for

PORT = 18771


def outside():
    """The launcher's PID and the end points, in turns. What is started here ends with the row."""
    process = subprocess.Popen([sys.executable, "-m", "sglang.launch_server", *arguments()])
    wait_for(is_up, process, 120)
    other, expected, awake = others(), answers(), resident(process)
    require(awake["weights"] > GIB and awake["kv_cache"] > GIB, f"status says {awake}")

    def gone(when, before):
        require(not any(resident(process).values()), f"{when}, status says {resident(process)}")
        freed, held = other.free() - before, sum(awake.values())
        require(freed > 0.98 * held, f"{when}: {freed} of {held} bytes freed")

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
        require(resident(process) == awake, f"resumed, status says {resident(process)} and not {awake}")
        require(answers() == expected, f"other outputs after lowtide resume {number}")
    return "/release_memory_occupation and /resume_memory_occupation, `lowtide pause PID` and `resume` of the server's PID, twice"


def resident(process):
    """Bytes on the device, of each tag."""
    return {tag: there for tag, (there, _) in status(process.pid).items()}


def arguments():
    """The settings of the other cases, as the command line has them."""
    words = ["--port", str(PORT), "--enable-weights-cpu-backup", "--skip-server-warmup"]
    for name, value in SETTINGS.items():
        words.append("--" + name.replace("_", "-"))
        words += [] if value is True else [str(each) for each in (value if isinstance(value, list) else [value])]
    return words


def post(path, **body):
    return ask(PORT, path, json.dumps(body).encode())


def answers():
    found = [json.loads(post("/generate", input_ids=tokens, sampling_params=SAMPLING))["output_ids"] for tokens in PROMPTS]
    ask(PORT, "/flush_cache?timeout=20", b"")  # which answers once the scheduler is idle
    return of_sense(found)


def is_up():
    """It answers with an error while it starts."""
    try:
        return ask(PORT, "/health") is not None
    except Failure:
        return False
