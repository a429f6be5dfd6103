# SPDX-License-Identifier: Apache-2.0
"""Trainer and engine of plain blocks, for the simulated GPU, which plays no kernels: their answers are digests of bytes."""
import hashlib
import random

import lowtide
from adapter_copies import AdapterCopies
from other_process import Driver
from row_process import MIB

LAYERS, LAYER = 8, 4 * MIB
ROTARY, FROZEN = MIB, 3  # bytes behind each layer's weights, and the layer that updates leave out
KV_CACHE, ADAPTER = 16 * MIB, 2 * MIB


def random_bytes(seed, size):
    return random.Random(seed).randbytes(4096) * (size // 4096)


class Blocks(AdapterCopies):
    def build(self):
        self.driver = Driver()
        self.blocks = {}
        self.fill()

    def allocate(self, tag, name, content):
        with lowtide.scope(tag):
            self.blocks[name] = self.driver.allocate(len(content))
        self.driver.write(self.blocks[name], content)

    def read(self, name, size):
        return self.driver.read(self.blocks[name], size)


class Trainer(Blocks):
    def fill(self):
        self.allocate("params", "params", random_bytes(0, LAYERS * LAYER))
        self.allocate("optim", "optim", random_bytes("optim", 2 * LAYERS * LAYER))
        self.steps = 0
        self.step()

    def step(self):
        self.steps += 1
        self.driver.write(self.blocks["params"], random_bytes(self.steps, LAYERS * LAYER))

    def publish(self, slot):
        parked = lowtide.info("params").resident == 0
        size = LAYERS * LAYER
        content = lowtide.read_paused(self.blocks["params"], size) if parked else self.read("params", size)
        self.shared[slot * size:(slot + 1) * size] = content

    def probe(self):
        return [hashlib.sha256(self.read("params", LAYERS * LAYER) + self.read("optim", 2 * LAYERS * LAYER)).hexdigest()]

    def tags(self):
        return ["params", "optim"]


class Flat(Trainer):
    def fill(self):
        self.allocate("grads", "grads", random_bytes("grads", LAYERS * LAYER))
        super().fill()

    def tags(self):
        return ["params", "grads", "optim"]


class Engine(Blocks):
    def fill(self):
        for layer in range(LAYERS):
            self.allocate("weights", f"weights{layer}", random_bytes(0, LAYER) + random_bytes("rotary", ROTARY))
        self.allocate("kv_cache", "kv_cache", bytes(KV_CACHE))
        self.has_adapter = False

    def rollout(self):
        self.driver.write(self.blocks["kv_cache"], random_bytes("kv", KV_CACHE))
        content = b"".join(self.read(f"weights{layer}", LAYER + ROTARY) for layer in range(LAYERS))
        return hashlib.sha256(content + (self.read("lora", ADAPTER) if self.has_adapter else b"")).hexdigest()

    def layer_of(self, slot, layer):
        start = (slot * LAYERS + layer) * LAYER
        return self.shared[start:start + LAYER]

    def load(self, slot):
        for layer in range(LAYERS):
            self.driver.write(self.blocks[f"weights{layer}"], self.layer_of(slot, layer) + random_bytes("rotary", ROTARY))

    def update(self, version, slot):
        with lowtide.begin_update("weights", version):
            self.load(slot)

    def update_partly(self, version, slot):
        with lowtide.begin_update("weights", version):
            for layer in range(LAYERS):
                if layer != FROZEN:
                    self.driver.write(self.blocks[f"weights{layer}"], self.layer_of(slot, layer))

    def left_out(self):
        return LAYER + LAYERS * ROTARY

    def expected(self, slot=None, partly=False, adapter=None):
        content = b""
        for layer in range(LAYERS):
            first = slot is None or partly and layer == FROZEN
            content += (random_bytes(0, LAYER) if first else self.layer_of(slot, layer)) + random_bytes("rotary", ROTARY)
        return hashlib.sha256(content + (random_bytes(adapter, ADAPTER) if adapter is not None else b"")).hexdigest()

    def add_adapter(self):
        self.allocate("lora", "lora", bytes(ADAPTER))
        self.has_adapter = True

    def load_adapter(self, seed):
        self.driver.write(self.blocks["lora"], random_bytes(seed, ADAPTER))

    def update_adapter(self, version, seed):
        with lowtide.begin_update("lora", version):
            self.load_adapter(seed)


class SaverEngine(Engine):
    """Its tags are what comes through torch_memory_saver's interface: made by their owner as it goes."""

    def fill(self):
        lowtide.set("tag.weights.content", "scratch")
        super().fill()


KINDS = {"adamw": Trainer, "fsdp2": Trainer, "flat": Flat, "engine": Engine, "saver_engine": SaverEngine}
