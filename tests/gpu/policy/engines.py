# SPDX-License-Identifier: Apache-2.0
"""An engine over a causal LM with a static KV cache, greedy."""
import contextlib
import gc
import hashlib

import torch
from peft import LoraConfig, inject_adapter_in_model

import lowtide
from adapter_copies import AdapterCopies
from causal_lm import Engine
from language_model import fill, place, slot_of
from support import require

FROZEN = "layers.0.mlp."  # what updates leave out, like the rotary buffers


class Regions:
    """What Engine asks of torch_memory_saver."""

    def region(self, tag, enable_cpu_backup=False):  # pylint: disable=unused-argument  the tag's action says it
        return lowtide.region(tag)


class SaverRegions:
    """torch_memory_saver's own, without copies: SGLang's without --enable-weights-cpu-backup."""

    def region(self, tag, enable_cpu_backup=False):  # pylint: disable=unused-argument
        from lowtide.compat.torch_memory_saver import torch_memory_saver
        return torch_memory_saver.region(tag)


class NoRegions:
    def region(self, tag, enable_cpu_backup=False):  # pylint: disable=unused-argument
        return contextlib.nullcontext()


def make(regions):
    torch.manual_seed(4711)  # its prompt
    engine = Engine(regions, place)
    engine.model.requires_grad_(False)
    return engine, list(engine.model.named_parameters())


@torch.no_grad()
def answer(engine):
    """A digest of the logits of the prompt and of the token that they say."""
    prompt = engine.prefill()
    engine.token.copy_(prompt[:, -1:].argmax(-1))
    logits = torch.cat([prompt, engine.decode()], dim=1)
    require(bool(torch.isfinite(logits).all()) and float(logits.float().std()) > 0, "the logits are not finite, or all the same")
    return hashlib.sha256(logits.contiguous().view(torch.uint8).cpu().numpy()).hexdigest()


@torch.no_grad()
def load(named, shared, slot, leaving_out=None):
    parameters = dict(named)
    for name, source in slot_of(shared, slot, named):
        if leaving_out is None or leaving_out not in name:
            parameters[name].copy_(source)
    torch.cuda.synchronize()


def add_adapter(model):
    inject_adapter_in_model(LoraConfig(r=64, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]), model)
    model.requires_grad_(False).eval()


def fill_adapter(model, seed):
    fill([(name, parameter) for name, parameter in model.named_parameters() if "lora_" in name], seed)


class ServingEngine(AdapterCopies):
    regions = Regions

    def build(self):
        self.engine, self.named = make(self.regions())
        self.buffers = [(buffer, buffer.cpu()) for buffer in self.engine.model.buffers()]
        self.rollout()  # what libraries allocate at their first use

    def rollout(self):
        digest = answer(self.engine)
        torch.cuda.empty_cache()
        return digest

    def load(self, slot):
        """All that the weights' memory holds, buffers too."""
        load(self.named, self.shared, slot)
        for buffer, on_host in self.buffers:
            buffer.copy_(on_host)
        torch.cuda.synchronize()

    def update(self, version, slot):
        with lowtide.begin_update("weights", version):
            self.load(slot)

    def update_partly(self, version, slot):
        """Neither the frozen submodule nor the buffers."""
        with lowtide.begin_update("weights", version):
            load(self.named, self.shared, slot, FROZEN)

    def left_out(self):
        """Bytes of what update_partly leaves out."""
        frozen = sum(parameter.nbytes for name, parameter in self.named if FROZEN in name)
        return frozen + sum(buffer.nbytes for buffer, _ in self.buffers)

    def expected(self, slot=None, partly=False, adapter=None):
        """What an engine that was never paused answers; its weights are those of a slot, or the first ones."""
        twin, named = make(NoRegions())
        if slot is not None:
            load(named, self.shared, slot, FROZEN if partly else None)
        if adapter is not None:
            add_adapter(twin.model)
            fill_adapter(twin.model, adapter)
        digest = answer(twin)
        del twin, named
        gc.collect()
        torch.cuda.empty_cache()
        return digest

    def add_adapter(self):
        with lowtide.region("lora"):
            add_adapter(self.engine.model)

    def load_adapter(self, seed):
        fill_adapter(self.engine.model, seed)
        torch.cuda.synchronize()

    def update_adapter(self, version, seed):
        with lowtide.begin_update("lora", version):
            self.load_adapter(seed)


class SaverEngine(ServingEngine):
    regions = SaverRegions


KINDS = {"engine": ServingEngine, "saver_engine": SaverEngine}
