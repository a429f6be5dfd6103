# SPDX-License-Identifier: Apache-2.0
"""SGLang's adapter module, taken from its package, over the package under test, with its own tags and defaults."""
import os
import subprocess
import sys

import torch

from sglang_package import open_sglang
from support import (DEVICE, MIB, Held, captures_are_tagged, expect_gone, free_bytes, in_mib, main, may_disable, open_package,
                     require)

WEIGHTS, KV_CACHE, CUDA_GRAPH = "weights", "kv_cache", "cuda_graph"
WIDTH = 2048


def load_adapter():
    return open_sglang(open_package()).create(enable=True)


def regions(_saver):
    """region, pause, resume, disable, double calls."""
    adapter = load_adapter()
    require(adapter.enabled, "the adapter is not enabled")
    adapter.check_validity("release_memory_occupation")
    with adapter.region(WEIGHTS, enable_cpu_backup=True):
        weights = Held(128)
        if may_disable():
            with adapter.disable():
                stays = Held(32)
                before = free_bytes()
                adapter.pause(WEIGHTS)
                expect_gone(before, weights)
                stays.check("allocated under disable(), while the weights are paused")
                adapter.resume(WEIGHTS)
                del stays
    with adapter.region(KV_CACHE):
        kv_cache = Held(256)
    for _ in range(2):
        before = free_bytes()
        adapter.pause(KV_CACHE)
        adapter.pause(KV_CACHE)
        adapter.pause(WEIGHTS)
        freed = expect_gone(before, weights, kv_cache)
        adapter.resume(WEIGHTS)
        adapter.resume(WEIGHTS)
        weights.check("weights, while the KV cache is paused")
        adapter.resume(KV_CACHE)
        kv_cache.check_usable("the KV cache after its resume")
    return f"{in_mib(freed)} of {128 + 256} freed{'' if may_disable() else '; without disable()'}"


def subprocess_of_engine(_saver):
    """configure_subprocess: a process started meanwhile has the library in it; then the environment is as before."""
    adapter = load_adapter()
    child = "import os; print(os.environ.get('LD_PRELOAD', '')); print(open('/proc/self/maps').read())"
    started_with = os.environ.get("LD_PRELOAD")
    if started_with:  # this process may itself have been started so; an engine's launcher is not
        entries = [entry for entry in started_with.split(":") if "torch_memory_saver" not in entry]
        os.environ["LD_PRELOAD"] = ":".join(entries)
    before = os.environ.get("LD_PRELOAD")
    with adapter.configure_subprocess():
        done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=60, check=False)
    require(done.returncode == 0, f"the child ended with {done.returncode}: {done.stderr[-500:]}")
    require(os.environ.get("LD_PRELOAD") == before, "LD_PRELOAD is not what it was")
    preload, maps = done.stdout.split("\n", 1)
    entries = [entry for entry in preload.split(":") if "torch_memory_saver" in entry or "liblowtide" in entry]
    require(entries, f"the child has LD_PRELOAD={preload!r}")
    for entry in entries:
        require(os.path.realpath(entry) in maps, f"{entry} is not mapped in the child")
    if started_with:
        os.environ["LD_PRELOAD"] = started_with
    with adapter.region(WEIGHTS):
        Held(16)
    return f"LD_PRELOAD={':'.join(os.path.basename(entry) for entry in entries)}"


class Engine:
    """A model of eight layers with SGLang's three tags, and a decoding step that is replayed."""

    def __init__(self, adapter):
        with adapter.region(WEIGHTS):
            self.weights = [torch.empty(WIDTH, WIDTH, device=DEVICE) for _ in range(8)]
            self.scale = torch.full((1,), 0.5, device=DEVICE)  # a buffer that no weight update brings
        with adapter.region(KV_CACHE):
            self.kv_cache = torch.zeros(8, 64, WIDTH, device=DEVICE)
        self.input = torch.randn(64, WIDTH, device=DEVICE)

    def load(self, version):
        generator = torch.Generator(device=DEVICE).manual_seed(version)
        for weight in self.weights:
            weight.copy_(torch.randn(WIDTH, WIDTH, device=DEVICE, generator=generator) / WIDTH**0.5)

    def step(self):
        hidden = self.input
        for layer, weight in enumerate(self.weights):
            hidden = torch.tanh(hidden @ weight) * self.scale
            self.kv_cache[layer].copy_(hidden)
        return hidden + self.kv_cache.sum(0)


def capture(adapter, engine):
    stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            engine.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    if captures_are_tagged(pool_of_pytorch=True):
        context = adapter.cuda_graph(cuda_graph=graph, pool=pool, stream=stream, tag=CUDA_GRAPH)
    else:
        context = torch.cuda.graph(graph, pool=pool, stream=stream)
    with context:
        output = engine.step()
    return graph, output


def weight_update(_saver):
    """Release everything, resume graph and weights, write new weights, resume the KV cache; nothing is backed up."""
    adapter = load_adapter()
    engine = Engine(adapter)
    engine.load(0)
    graph, output = capture(adapter, engine)
    expected = {}
    for version in range(4):  # what each version answers when nobody pauses
        engine.load(version)
        graph.replay()
        expected[version] = output.cpu()
    wanted = 8 * WIDTH * WIDTH * 4 + engine.kv_cache.nbytes
    for version in range(4):
        buffers = engine.scale.clone()
        before = free_bytes()
        for tag in (KV_CACHE, WEIGHTS, CUDA_GRAPH):
            adapter.pause(tag)
        torch.cuda.synchronize()
        freed = free_bytes() - before
        require(freed >= 0.99 * wanted, f"{freed} of {wanted} bytes were freed")
        training = torch.zeros(512 * MIB, dtype=torch.uint8, device=DEVICE)
        adapter.resume(CUDA_GRAPH)
        adapter.resume(WEIGHTS)
        engine.scale.copy_(buffers)
        engine.load(version)
        del training
        adapter.resume(KV_CACHE)
        engine.kv_cache.zero_()
        graph.replay()
        require(torch.equal(output.cpu(), expected[version]), f"version {version}: the answer differs")
    by_whom = "SGLang's call" if captures_are_tagged(pool_of_pytorch=True) else "PyTorch alone"
    return f"4 versions, {in_mib(freed)} freed, the graph captured by {by_whom}"


if __name__ == "__main__":
    main(globals())
