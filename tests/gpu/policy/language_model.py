# SPDX-License-Identifier: Apache-2.0
"""The causal LM that the trainer trains and the engine serves: some 1 GiB, with random weights that a seed gives."""
import torch
import transformers
from transformers.initialization import no_init_weights

from support import DEVICE

transformers.Qwen2ForCausalLM  # pylint: disable=pointless-statement  # noqa: B018  its module loads at the first look


def configuration():
    config = transformers.Qwen2Config(
        vocab_size=16384, hidden_size=2048, intermediate_size=5632, num_hidden_layers=10, num_attention_heads=16,
        num_key_value_heads=4, max_position_embeddings=1024, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1)
    config._attn_implementation = "eager"  # pylint: disable=protected-access
    return config


def place():
    """On the device, never on the host."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(DEVICE), no_init_weights():
            model = transformers.Qwen2ForCausalLM(configuration())
    finally:
        torch.set_default_dtype(usual)
    fill(model.named_parameters(), 0)
    return model.eval()


@torch.no_grad()
def fill(named, seed):
    """Random values that keep the activations in bounds."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    for name, parameter in named:
        parameter.normal_(1 if "norm" in name else 0, 0.02, generator=generator)


def checksum(tensor):
    """Of every two bytes and their place, made on the device."""
    words = tensor.detach().flatten().view(torch.int16).to(torch.int64)
    return int((words * torch.arange(1, 2 * words.numel(), 2, device=words.device)).sum())


def slot_of(shared, slot, named):
    """(name, its place in the shared file) of each parameter."""
    offset = slot * sum(parameter.numel() * 2 for _, parameter in named)
    for name, parameter in named:
        place_of = torch.frombuffer(shared, dtype=torch.bfloat16, count=parameter.numel(), offset=offset)
        yield name, place_of.view(parameter.shape)
        offset += parameter.numel() * 2
