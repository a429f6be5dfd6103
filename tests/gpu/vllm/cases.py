# SPDX-License-Identifier: Apache-2.0
"""cases.py NAME: one case with a real vLLM. Writes {"result": "ok", "numbers": ...} to $CASE_RESULT, or ends with a failure."""
import json
import os
import pathlib
import signal
import subprocess
import sys

from engine import FOLDER, answers, engine, free_bytes
from engine_case import GIB, LOWTIDE, MIB, ask, gib, lowtide, others, play, require, status, timed, wait_for


def cycle(llm, level=1, reload="reload_weights"):
    """(seconds to sleep, seconds to wake up, bytes freed meanwhile)"""
    before = free_bytes()
    asleep = timed(lambda: llm.sleep(level=level))
    freed = free_bytes() - before
    awake = timed(llm.wake_up)
    if level == 2:
        llm.collective_rpc(reload)
    return asleep, awake, freed


def levels():
    """Also the row of vLLM's own allocator."""
    llm = engine()
    expected = answers(llm)
    times = {"level 1, first": cycle(llm)}
    require(answers(llm) == expected, "other outputs after level 1")
    times["level 1, again"] = cycle(llm)
    require(answers(llm) == expected, "other outputs after the second sleep")
    times["level 2"] = cycle(llm, level=2)
    require(answers(llm) == expected, "other outputs after level 2 and reload_weights")
    return {name: {"sleep": asleep, "wake": awake, "freed": freed} for name, (asleep, awake, freed) in times.items()}


def tags_one_by_one():
    llm = engine()
    expected, tags = answers(llm), status()
    require(all(tags.get(tag, (0, 0))[0] > MIB for tag in ("weights", "kv_cache", "cuda_graph")), f"status says {tags}")
    llm.sleep(level=1)
    asleep = status()
    require(all(resident == 0 for resident, _ in asleep.values()), f"asleep, status says {asleep}")
    llm.wake_up(tags=["weights"])
    require(status()["weights"][0] > 0 and status()["kv_cache"][0] == 0, f"weights awake, status says {status()}")
    llm.wake_up(tags=["kv_cache"])
    require(answers(llm) == expected, "other outputs")
    llm.sleep(level=2)
    llm.wake_up(tags=["weights"])
    llm.collective_rpc("reload_weights")
    llm.wake_up(tags=["kv_cache"])
    require(answers(llm) == expected, "other outputs after level 2")
    llm.sleep(level=2)
    llm.wake_up(tags=["kv_cache"])  # the other way round
    llm.wake_up(tags=["weights"])
    llm.collective_rpc("reload_weights")
    require(answers(llm) == expected, "other outputs after the KV cache came first")
    return ", ".join(f"{tag} {gib(resident)}" for tag, (resident, _) in sorted(tags.items()))


def buffers_survive_level_2():
    """What lies beside the parameters comes back by itself: with the parameters' bytes put back, nothing else is missing."""
    llm = engine()
    expected = answers(llm)
    llm.collective_rpc(keep_parameters)
    llm.sleep(level=2)
    llm.wake_up()
    llm.collective_rpc(bring_back_parameters)
    require(answers(llm) == expected, "other outputs")
    return "outputs equal without a reload"


def keep_parameters(worker):
    worker.kept_for_test = {name: each.detach().cpu() for name, each in worker.model_runner.model.named_parameters()}


def bring_back_parameters(worker):
    for name, each in worker.model_runner.model.named_parameters():
        each.data.copy_(worker.kept_for_test[name])


def no_room():
    llm = engine()
    expected, other = answers(llm), others()
    llm.sleep(level=1)
    other.ask(f"fill {free_bytes() - 2 * GIB}")
    said = []
    for tags in (None, ["weights"]):
        try:
            llm.wake_up(tags=tags)
            raise AssertionError("it woke up without room")
        except Exception as error:  # pylint: disable=broad-exception-caught
            require("free" in str(error) or "emory" in str(error), f"wake_up raised {error!r}")
            said.append(str(error))
    require(all(resident == 0 for resident, _ in status().values()), f"after the failure, status says {status()}")
    other.ask("release")
    llm.wake_up()
    require(answers(llm) == expected, "other outputs")
    return said[0][:200]


def adapters():
    llm = engine(enable_lora=True, max_lora_rank=16, max_loras=1, max_cpu_loras=2)
    base, first, second = answers(llm), answers(llm, adapter=1), answers(llm, adapter=2)
    require(first != base and second != base and first != second, "the adapters change nothing")
    require(answers(llm, adapter=2) == second, "outputs with an adapter are not repeatable")
    tags = status()
    require(tags.get("lora", (0, 0))[0] > MIB, f"status says {tags}")
    llm.collective_rpc(keep_parameters)  # reload_weights of vLLM 0.26 does not know the layers' names under LoRA
    for level in (1, 2):
        cycle(llm, level, bring_back_parameters)
        # The second adapter is in the one slot: first without, then with an eviction and an activation.
        require(answers(llm, adapter=2) == second, f"adapter 2 says something else after level {level}")
        require(answers(llm, adapter=1) == first, f"adapter 1 says something else after level {level}")
        require(answers(llm) == base, f"the base says something else after level {level}")
        require(answers(llm, adapter=2) == second, f"adapter 2 says something else after level {level} and an eviction")
    return f"lora {gib(tags['lora'][0])}"


def adapters_on_the_device():
    """Registered from tensors on the device, as trainers hand them over. Also the row of vLLM's own allocator."""
    llm = engine(enable_lora=True, max_lora_rank=16, max_loras=1, max_cpu_loras=2)
    expected = {None: answers(llm), 1: answers(llm, adapter=1), 2: answers(llm, adapter=2)}

    def same(number, when):
        found = answers(llm, adapter=number)
        others_words = [name for name, tokens in expected.items() if tokens == found]
        require(found == expected[number], f"adapter {number} {when} says something else (what is said by: {others_words})")

    least_free = free_bytes()
    for number in (1, 2):
        llm.collective_rpc(register_from_tensors, args=(number, str(FOLDER / f"adapter{number}")))
    registered = least_free - free_bytes()
    same(1, "activated")
    held = least_free - free_bytes()
    for number in (2, 1, 2):
        same(number, "activated again after an eviction")
    require(abs(least_free - free_bytes() - held) < 64 * MIB, "an activation took device memory")
    llm.collective_rpc(keep_parameters)
    for level in (1, 2) if LOWTIDE else (1,):  # vLLM's own allocator drops the adapter slots at level 2
        cycle(llm, level, bring_back_parameters)
        for number in (2, 1):
            same(number, f"after level {level}")
    if LOWTIDE:
        resident, parked = status()["lora_adapters"]
        require(resident == 0 and parked > MIB, f"at the end, status says {status()}")
        require(registered - held >= 0.9 * parked, f"{registered} bytes taken by the adapters, {held} once activated")
    return f"two adapters take {registered / MIB:.0f} MiB of the device, {held / MIB:.0f} once one was activated"


def register_from_tensors(worker, number, folder):
    """In the place of the adapter that was registered from its file."""
    import torch
    from safetensors.torch import load_file
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper
    manager = worker.model_runner.lora_manager._adapter_manager
    manager.remove_adapter(number)
    tensors = load_file(folder + "/adapter_model.safetensors")
    config = json.loads(pathlib.Path(folder, "adapter_config.json").read_text())
    helper = PEFTHelper.from_dict(config)
    with torch.inference_mode():
        adapter = LoRAModel.from_lora_tensors(number, tensors, helper, device="cuda", dtype=torch.bfloat16)
        adapter.is_3d_lora_weight = False
        manager.add_adapter(adapter)


def without_sleep_mode():
    """`lowtide pause` from outside, of an engine that knows nothing of sleeping."""
    llm = engine(enable_sleep_mode=False)
    expected, before = answers(llm), free_bytes()
    tags = status()
    require(tags["weights"][0] > GIB and tags["kv_cache"][0] > GIB, f"status says {tags}")
    for tag in ("kv_cache", "weights", "cuda_graph"):
        lowtide("pause", "--tag", tag, "--no-hold")
    freed = free_bytes() - before
    lowtide("resume")
    require(answers(llm) == expected, "other outputs")
    return f"{gib(freed)} freed"


def two_ranks():
    llm = engine(tensor_parallel_size=2, distributed_executor_backend="mp")
    expected, tags = answers(llm), status()
    for level in (1, 2):
        llm.sleep(level=level)
        require(all(resident == 0 for resident, _ in status().values()), f"asleep, status says {status()}")
        llm.wake_up()
        if level == 2:
            llm.collective_rpc("reload_weights")
        require(answers(llm) == expected, f"other outputs after level {level}")
    llm.sleep(level=1)
    other = others()  # on the first device
    other.ask(f"fill {other.ask('free')['free'] - 2 * GIB}")
    try:
        llm.wake_up()
        raise AssertionError("it woke up without room")
    except Exception as error:  # pylint: disable=broad-exception-caught
        said = str(error)
    require("rank 0" in said, f"wake_up raised {said}")
    require(all(resident == 0 for resident, _ in status().values()), f"after the failure, status says {status()}")
    other.ask("release")
    for _ in range(2):
        llm.wake_up()
        require(answers(llm) == expected, "other outputs")
        llm.sleep(level=1)
    llm.wake_up()
    require(answers(llm) == expected, "other outputs")
    return f"two ranks, {gib(tags['weights'][0])} of weights in sum; the failure said: {said[:160]}"


def server():
    """vllm serve: its PID stands for all its processes, and its end points sleep and wake up."""
    port = 18765
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(FOLDER / "model"), "--skip-tokenizer-init",
         "--enable-sleep-mode", "--port", str(port), "--gpu-memory-utilization", "0.3", "--max-model-len", "512", "--enforce-eager",
         "--no-enable-prefix-caching", "--served-model-name", "m", "--dtype", "bfloat16"],
        env={**os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"})
    try:
        wait_for(lambda: ask(port, "/health") is not None, process, 150)
        expected, awake = complete(port), status(process.pid)
        require(awake["weights"][0] > GIB and awake["kv_cache"][0] > GIB, f"status says {awake}")
        ask(port, "/sleep?level=1", b"")
        require(all(resident == 0 for resident, _ in status(process.pid).values()), "status does not say asleep")
        ask(port, "/wake_up", b"")
        require(complete(port) == expected, "other outputs after /wake_up")
        lowtide("pause", pid=process.pid)
        require(all(resident == 0 for resident, _ in status(process.pid).values()), "status does not say paused")
        lowtide("resume", pid=process.pid)
        require(complete(port) == expected, "other outputs after lowtide resume")
        return "/sleep and /wake_up, `lowtide pause PID` and `resume` of the server's PID"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def complete(port):
    body = {"model": "m", "prompt": list(range(3, 40)), "max_tokens": 16, "temperature": 0, "return_token_ids": True, "ignore_eos": True,
            "detokenize": False}
    answer = json.loads(ask(port, "/v1/completions", json.dumps(body).encode()))
    return answer["choices"][0].get("token_ids") or answer["choices"][0]["text"]


if __name__ == "__main__":
    play(globals())
