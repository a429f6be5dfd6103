# SPDX-License-Identifier: Apache-2.0
"""An engine of vLLM's over the random model, what it answers, and what the device and Lowtide say meanwhile."""
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from run_real_programs import OtherProcess  # noqa: E402  it lies one folder above

FOLDER = pathlib.Path(os.environ["CASE_FOLDER"])
LOWTIDE = os.environ.get("CASE_LOWTIDE")  # the command; none in the rows of vLLM's own allocator
GIB = 1 << 30
MIB = 1 << 20


class Failure(Exception):
    """The case fails, with the reason."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def engine(**options):
    """Graphs on, sleep mode on, in this process unless several ranks are asked for."""
    from vllm import LLM
    settings = {"model": str(FOLDER / "model"), "skip_tokenizer_init": True, "dtype": "bfloat16", "enable_sleep_mode": True,
                "gpu_memory_utilization": 0.3, "max_model_len": 512, "max_num_seqs": 8, "seed": 0, "enable_prefix_caching": False,
                "compilation_config": {"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2, 4, 8]}}
    made = LLM(**{**settings, **options})
    if "CASE_BACKEND" in os.environ:  # vLLM 0.26 has no argument for it
        made.collective_rpc(choose_backend, args=(os.environ["CASE_BACKEND"],))
    return made


def choose_backend(worker, name):
    """Before the first sleep, at which it is looked at."""
    worker.vllm_config.model_config.sleep_mode_backend = name


def answers(llm, adapter=None):
    """The tokens of four prompts, decoded greedily."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    prompts = [{"prompt_token_ids": [3 + 7919 * (i + 1) * (j + 1) % 31000 for j in range(24 + 8 * i)]} for i in range(4)]
    options = {} if adapter is None else {"lora_request": LoRARequest(f"a{adapter}", adapter, str(FOLDER / f"adapter{adapter}"))}
    settings = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, detokenize=False)
    found = [list(each.outputs[0].token_ids) for each in llm.generate(prompts, settings, use_tqdm=False, **options)]
    require(all(len(set(row)) > 4 for row in found), f"the model says nothing: {found}")
    return found


def free_bytes():
    import torch
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def timed(work):
    """Seconds."""
    start = time.monotonic()
    work()
    return time.monotonic() - start


def status(pid=None):
    """What `lowtide status` says of the tags: {tag: (resident bytes, parked bytes)} over a process and those it started."""
    done = subprocess.run([LOWTIDE, "status", str(pid or os.getpid()), "--json"], capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"lowtide status: {done.returncode} {done.stderr}")
    tags = {}
    for process in json.loads(done.stdout)["processes"]:
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
