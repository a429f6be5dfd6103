# SPDX-License-Identifier: Apache-2.0
"""Trainers of the causal LM: AdamW with plain parameters, FSDP2 of one rank, and one flat buffer as Megatron keeps it."""
import torch
import torch.distributed
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import lowtide
from causal_lm import mask
from language_model import checksum, place, slot_of
from player import Player
from support import DEVICE

BATCH, LENGTH = 8, 64


def local(tensor):
    tensor = tensor.detach()
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class AdamW(Player):
    def build(self):
        torch.manual_seed(4711)
        self.place()
        self.named = [(name, local(parameter)) for name, parameter in self.model.named_parameters()]
        vocabulary = self.model.config.vocab_size
        self.batch = torch.randint(0, vocabulary, (BATCH, LENGTH), device=DEVICE)
        self.mask = mask(LENGTH, 0)[..., :LENGTH].contiguous()
        self.positions = torch.arange(LENGTH, device=DEVICE)[None, :]
        self.step()

    def place(self):
        """The model and its optimizer, whose states come with the first step."""
        with lowtide.region("params"):
            self.model = place()
            self.shard()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def shard(self):
        """Plain parameters are whole."""

    def loss(self):
        logits = self.model(input_ids=self.batch, attention_mask=self.mask, position_ids=self.positions, use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].float().flatten(0, 1), self.batch[:, 1:].flatten())

    def gradients(self):
        loss = self.loss()
        loss.backward()
        return loss.detach()

    def forget_gradients(self):
        self.optimizer.zero_grad(set_to_none=True)

    def step(self):
        loss = float(self.gradients())
        with lowtide.region("optim"):
            self.optimizer.step()
        self.forget_gradients()
        torch.cuda.empty_cache()
        return loss

    def publish(self, slot):
        """Weights for the engine, from the device or from where they are parked."""
        parked = lowtide.info("params").resident == 0
        named = dict(self.named)
        for name, target in slot_of(self.shared, slot, self.named):
            target.copy_(lowtide.read_paused(named[name]) if parked else named[name])

    def probe(self):
        """The loss, and what the parameters and the optimizer hold."""
        with torch.no_grad():
            loss = float(self.loss())
        states = [local(value) for state in self.optimizer.state.values() for value in state.values() if value.is_cuda]
        sums = [checksum(tensor) for tensor in [*(tensor for _, tensor in self.named), *states]]
        torch.cuda.empty_cache()
        return [loss, *sums]

    def tags(self):
        return ["params", "optim"]


class Fsdp2(AdamW):
    def shard(self):
        torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
        mesh = torch.distributed.init_device_mesh("cuda", (1,))
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh, reshard_after_forward=True)

    def close(self):
        torch.distributed.destroy_process_group()


class Flat(AdamW):
    """All parameters are views of one buffer, all gradients of another; a graph makes the gradients."""

    def place(self):
        self.model = place()
        parameters = list(self.model.parameters())
        count = sum(parameter.numel() for parameter in parameters)
        with lowtide.region("params"):
            self.flat = torch.nn.Parameter(torch.empty(count, dtype=torch.bfloat16, device=DEVICE))
        with lowtide.region("grads"):
            self.flat.grad = torch.zeros(count, dtype=torch.bfloat16, device=DEVICE)
        offset = 0
        for parameter in parameters:
            part = slice(offset, offset + parameter.numel())
            offset += parameter.numel()
            view = self.flat.detach()[part].view(parameter.shape)
            parameter.data = view.copy_(parameter.detach())
            parameter.grad = self.flat.grad[part].view(parameter.shape)
        self.optimizer = torch.optim.AdamW([self.flat], lr=1e-3, fused=True)
        self.graph = None
        torch.cuda.empty_cache()  # where the parameters were before

    def loss_and_gradients(self):
        self.flat.grad.zero_()
        loss = self.loss()
        loss.backward()
        return loss.detach()

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.loss_and_gradients()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.graph_loss = self.loss_and_gradients()

    def gradients(self):
        if self.graph is None:
            self.capture()
        self.graph_loss.zero_()
        self.graph.replay()
        return self.graph_loss

    def forget_gradients(self):
        """The next replay begins with that."""

    def probe(self):
        """The loss that the graph makes too, over the parameters that are there now."""
        return [*super().probe(), float(self.gradients())]

    def tags(self):
        return ["params", "grads", "optim"]


KINDS = {"adamw": AdamW, "fsdp2": Fsdp2, "flat": Flat}
