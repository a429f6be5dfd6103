# SPDX-License-Identifier: Apache-2.0
"""An engine of vLLM's over the random model, and what it answers."""
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from engine_case import FOLDER, PROMPTS, of_sense  # noqa: E402  it lies one folder above


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
    prompts = [{"prompt_token_ids": tokens} for tokens in PROMPTS]
    options = {} if adapter is None else {"lora_request": LoRARequest(f"a{adapter}", adapter, str(FOLDER / f"adapter{adapter}"))}
    settings = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True, detokenize=False)
    return of_sense([list(each.outputs[0].token_ids) for each in llm.generate(prompts, settings, use_tqdm=False, **options)])


def free_bytes():
    import torch
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]
