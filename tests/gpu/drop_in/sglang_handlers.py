# SPDX-License-Identifier: Apache-2.0
"""SGLang's scheduler-side handlers of a release and a resume, its adapter, its slots of LoRA adapters and its plug-in
system, taken from its package, over the package under test. The model, the KV cache and the step are ours."""
import inspect
import itertools
import types

import torch

from sglang_package import open_sglang
from support import (DEVICE, LEAST_FREED, Failure, NotOffered, captures_are_tagged, free_bytes, in_mib, main, open_package,
                     require, tags_seen_by_the_command)

LAYERS, WIDTH, TOKENS = 4, 2048, 64
SLOTS, RANK = 8, 64
SEGMENT = 2 << 20  # of PyTorch: SGLang leaves copies of the model's buffers on the device
FLAGS = ("weights", "draft", "graph")  # --enable-weights-cpu-backup, its draft twin, SGLANG_MEMORY_SAVER_CUDA_GRAPH


class Model(torch.nn.Module):
    def __init__(self, layers, buffers):
        super().__init__()
        empty = [torch.empty(WIDTH, WIDTH, device=DEVICE) for _ in range(layers)]  # a segment of PyTorch each
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(each, requires_grad=False) for each in empty)
        if buffers:  # what no weight update brings
            self.register_buffer("scale", torch.full((1,), 0.5, device=DEVICE))
            self.register_buffer("table", torch.arange(WIDTH, device=DEVICE) / WIDTH, persistent=False)
        self.config = types.SimpleNamespace(hidden_size=WIDTH, num_hidden_layers=layers, num_attention_heads=16,
                                            num_key_value_heads=16, intermediate_size=WIDTH)

    def load(self, version):
        generator = torch.Generator(device=DEVICE).manual_seed(version)
        for weight in self.weights:
            weight.copy_(torch.randn(WIDTH, WIDTH, device=DEVICE, generator=generator) / WIDTH**0.5)


def fitting(function, **offered):
    """Those of the arguments that this version of SGLang takes."""
    return {name: offered[name] for name in inspect.signature(function).parameters if name in offered}


def make_slots(model):
    from sglang.srt.lora.mem_pool import LoRAMemoryPool
    return LoRAMemoryPool(**fitting(
        LoRAMemoryPool, base_hf_config=model.config, max_loras_per_batch=SLOTS, dtype=torch.float32, max_lora_rank=RANK,
        target_modules={"o_proj"}, base_model=model, eviction_policy="lru", lora_added_tokens_size=0, tp_size=1, tp_rank=0,
        attn_tp_size=1))


def make_updater(adapter, model):
    from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
    from sglang.srt.runtime_context import get_parallel
    settings = types.SimpleNamespace(weight_cache_mode="off")
    worker = types.SimpleNamespace(model_runner=types.SimpleNamespace(model=model, server_args=settings))
    return SchedulerWeightUpdaterManager(**fitting(
        SchedulerWeightUpdaterManager, tp_worker=worker, draft_worker=None, tp_cpu_group=get_parallel().tp_group.cpu_group,
        memory_saver_adapter=adapter, flush_cache=lambda *_, **__: True, is_fully_idle=lambda *_, **__: True))


class Engine:
    """A scheduler's memory, made in the order and with the flags of SGLang's model runner."""

    def __init__(self, adapter_class, flags):
        self.flags = flags
        self.adapter = adapter_class.create(enable=True)
        with self.adapter.region("weights", enable_cpu_backup="weights" in flags):
            self.model = Model(LAYERS, buffers=True)
        with self.adapter.region("weights", enable_cpu_backup=bool({"weights", "draft"} & flags)):
            self.draft = Model(1, buffers=False)
        self.model.load(0)
        self.draft.load(0)
        self.slots = make_slots(self.model)
        for buffer in self.lora():
            buffer.normal_(generator=torch.Generator(device=DEVICE).manual_seed(17)).div_(WIDTH)
        with self.adapter.region("kv_cache"):
            self.kv_cache = torch.zeros(LAYERS, 128 * TOKENS, WIDTH, device=DEVICE)
        self.input = torch.randn(TOKENS, WIDTH, device=DEVICE)
        self.updater = make_updater(self.adapter, self.model)
        self.capture()

    def lora(self):
        return [each for buffers in (self.slots.A_buffer, self.slots.B_buffer) for each in buffers["o_proj"]]

    def step(self):
        hidden = self.input
        for layer, weight in enumerate(self.model.weights):
            down, up = self.slots.A_buffer["o_proj"][layer][0], self.slots.B_buffer["o_proj"][layer][0]
            hidden = torch.tanh(hidden @ weight + hidden @ down.T @ up.T) * self.model.scale + self.model.table
            self.kv_cache[layer, :TOKENS].copy_(hidden)
        return self.kv_cache[:, :TOKENS].sum(0) + torch.tanh(hidden @ self.draft.weights[0])

    def capture(self):
        stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        if "graph" in self.flags:
            context = self.adapter.cuda_graph(tag="cuda_graph", enable_cpu_backup=True, cuda_graph=self.graph, pool=pool,
                                              stream=stream)
        else:
            context = torch.cuda.graph(self.graph, pool=pool, stream=stream)
        with context:
            self.output = self.step()

    def answer(self):
        self.graph.replay()
        return self.output.cpu()

    def load_lost(self, version):
        """The weight update that a resume without copies needs."""
        if "weights" not in self.flags:
            self.model.load(version)
            if "draft" not in self.flags:
                self.draft.load(version)

    def release(self, *tags):
        """Returns what came back to the device by the time that the handler has answered."""
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqInput
        before = free_bytes()
        self.updater.release_memory_occupation(ReleaseMemoryOccupationReqInput(tags=list(tags) or None))
        return free_bytes() - before

    def resume(self, *tags):
        from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqInput
        self.updater.resume_memory_occupation(ResumeMemoryOccupationReqInput(tags=list(tags) or None))

    def size(self, *tags):
        weights = [*self.model.weights, *self.draft.weights]
        held = {"weights": weights, "kv_cache": [self.kv_cache], "lora": self.lora()}
        return sum(each.nbytes for tag in tags for each in held[tag])


def expect(freed, wanted, what):
    require(freed >= LEAST_FREED * wanted - SEGMENT, f"{what} freed {freed} of {wanted} bytes")
    return freed


class Checked:
    """An engine, and what each version of its weights answers while nobody releases."""

    def __init__(self, adapter_class, flags):
        self.engine = Engine(adapter_class, flags)
        self.expected = {}
        for version in range(6):
            self.engine.load_lost(version)
            self.expected[version] = self.engine.answer()
        self.version = version

    def is_right(self, what):
        require(torch.equal(self.engine.answer(), self.expected[self.version]), f"{what}: the answer differs")

    def update(self):
        self.version = (self.version + 1) % len(self.expected)
        self.engine.load_lost(self.version)


def cycle(checked):
    """All at once, in the stages of a training step, and each tag alone."""
    engine = checked.engine
    freed = expect(engine.release(), engine.size("weights", "kv_cache"), "a release of all")
    engine.resume()
    checked.update()
    checked.is_right("after a release of all")
    expect(engine.release("kv_cache"), engine.size("kv_cache"), "a release of the KV cache")
    expect(engine.release("weights", "cuda_graph"), engine.size("weights"), "a release of the weights")
    trainer = torch.zeros(engine.size("weights", "kv_cache") // 8, dtype=torch.int64, device=DEVICE)
    del trainer
    engine.resume("weights", "cuda_graph")
    checked.update()
    engine.resume("kv_cache")
    checked.is_right("after the stages of a step")
    for tag in ("cuda_graph", "kv_cache", "weights"):
        engine.release(tag)
        engine.resume(tag)
        if tag == "weights":
            checked.update()
        checked.is_right(f"after a release of {tag} alone")
    return freed


def with_flags(flags):
    def case(_saver):
        if "graph" in flags and not captures_are_tagged(pool_of_pytorch=True):
            raise NotOffered("SGLang captures into a pool of PyTorch's, which wants the preload.")
        checked = Checked(open_sglang(open_package()), flags)
        freed = [cycle(checked) for _ in range(3)]
        return f"{in_mib(freed[-1])} freed of {in_mib(checked.engine.size('weights', 'kv_cache'))} and the graph's, 3 rounds"

    return case


def repeated(_saver):
    """Without the plug-in: what SGLang itself allows to be repeated."""
    checked = Checked(open_sglang(open_package()), {"weights"})
    engine = checked.engine
    for _ in range(2):
        engine.release("kv_cache")
        require(engine.release("kv_cache") == 0, "a second release freed something")
        engine.resume("kv_cache")
        try:
            engine.resume("kv_cache")
        except KeyError:
            checked.is_right("after a resume that SGLang refuses")
        else:
            raise Failure("SGLang now takes a second resume: say so in docs/integration-sglang.md")
    return "a second resume is SGLang's own KeyError, and harmless"


def plug_in(_saver):
    """With the plug-in, loaded by SGLang through its entry point: `lora` follows the weights, all may be repeated."""
    adapter_class = open_sglang(open_package())
    from sglang.srt.plugins import load_plugins
    load_plugins()
    checked = Checked(adapter_class, set())
    engine = checked.engine
    slots = [(buffer.data_ptr(), buffer.stride(), buffer.cpu()) for buffer in engine.lora()]
    tagged = tags_seen_by_the_command()["lora"]["bytes_resident"]  # by whole segments of PyTorch
    require(tagged >= engine.size("lora"), f"{tagged} of {engine.size('lora')} bytes of the slots are tagged")
    for _ in range(3):
        engine.release("kv_cache")
        engine.release("kv_cache")
        freed = expect(engine.release(), engine.size("weights", "lora"), "a release of the rest")
        require(engine.release() == 0 and engine.release("weights") == 0, "a second release freed something")
        parked_slots_are_read(slots)
        engine.resume("weights")
        engine.resume("weights")
        checked.update()
        engine.resume()
        engine.resume()
        for buffer, (address, stride, values) in zip(engine.lora(), slots):
            require((buffer.data_ptr(), buffer.stride()) == (address, stride), "a slot has moved")
            require(torch.equal(buffer.cpu(), values), "a slot's bytes differ")
        checked.is_right("after repeated calls")
    return f"{in_mib(freed)} freed, of them {in_mib(engine.size('lora'))} of lora; 3 rounds"


def parked_slots_are_read(slots):
    import lowtide
    for address, _, values in slots:
        wanted = bytes(values.flatten()[:1024].view(torch.uint8).tolist())
        require(lowtide.read_paused(address, len(wanted)) == wanted, "a parked slot reads as something else")


CASES = {"+".join(flags) or "no_flag": with_flags(set(flags))
         for count in range(4) for flags in itertools.combinations(FLAGS, count)}

if __name__ == "__main__":
    main({**CASES, "repeated": repeated, "plug_in": plug_in})
