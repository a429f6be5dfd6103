# SPDX-License-Identifier: Apache-2.0
"""A Llama with random weights and adapters for it, in folders as engines read them; the seed makes the bytes."""
import json
import math
import pathlib

HIDDEN, INNER, HEADS, KV_HEADS, VOCABULARY, RANK = 4096, 11008, 32, 8, 32000, 16
GIB = 1 << 30


def layers_for(gib):
    per_layer = 2 * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * HIDDEN * KV_HEADS // HEADS + 3 * HIDDEN * INNER)
    return max(2, math.ceil((gib * GIB - 4 * VOCABULARY * HIDDEN) / per_layer))


def shapes():
    """Output and input of each linear layer of a block."""
    kv = HIDDEN * KV_HEADS // HEADS
    return {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (kv, HIDDEN), "self_attn.v_proj": (kv, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN),
            "mlp.down_proj": (HIDDEN, INNER)}


class Maker:
    """Random numbers of the device, scaled so that activations stay of order one and outputs differ."""

    def __init__(self, seed):
        import torch
        self.torch = torch
        self.generator_ = torch.Generator("cuda").manual_seed(seed)

    def normal(self, *shape, scale):
        numbers = self.torch.randn(*shape, generator=self.generator_, device="cuda")
        return (numbers * scale).to(self.torch.bfloat16).cpu()

    def ones(self):
        return self.torch.ones(HIDDEN, dtype=self.torch.bfloat16)


def make_model(folder, gib, seed):
    from safetensors.torch import save_file
    maker, layers = Maker(seed), layers_for(gib)
    weights = {"model.embed_tokens.weight": maker.normal(VOCABULARY, HIDDEN, scale=1.0), "model.norm.weight": maker.ones(),
               "lm_head.weight": maker.normal(VOCABULARY, HIDDEN, scale=2 * HIDDEN**-0.5)}
    for layer in range(layers):
        place = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{place}{norm}.weight"] = maker.ones()
        for name, (outputs, inputs) in shapes().items():
            weights[f"{place}{name}.weight"] = maker.normal(outputs, inputs, scale=inputs**-0.5)
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2}))
    return layers


def adapter_tensors(layers, seed):
    maker, tensors = Maker(seed), {}
    for layer in range(layers):
        for name, (outputs, inputs) in shapes().items():
            place = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{place}.lora_A.weight"] = maker.normal(RANK, inputs, scale=inputs**-0.5)
            tensors[f"{place}.lora_B.weight"] = maker.normal(outputs, RANK, scale=0.2)
    return tensors


def make_adapter(folder, layers, seed):
    from safetensors.torch import save_file
    folder.mkdir(parents=True)
    save_file(adapter_tensors(layers, seed), folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "lora_dropout": 0.0, "bias": "none",
        "target_modules": [name.partition(".")[2] for name in shapes()], "inference_mode": True}))


def make_all(folder, gib):
    folder = pathlib.Path(folder)
    layers = make_model(folder / "model", gib, seed=1)
    for number in (1, 2):
        make_adapter(folder / f"adapter{number}", layers, seed=10 + number)
