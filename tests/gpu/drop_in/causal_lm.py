# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face causal LM with random weights: eager prefill and a captured decoding step give the same logits, bit
for bit, after its weights were offloaded and its KV cache dropped."""
import torch
import torch._dynamo  # noqa: F401  StaticCache would import it while the device is ours
import transformers

from support import DEVICE, MIB, free_bytes, in_mib, main, other_process, require

BATCH, PROMPT, LONGEST = 8, 48, 1024


def configuration():
    config = transformers.Qwen2Config(
        vocab_size=16384, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=4, max_position_embeddings=LONGEST, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=1)
    config._attn_implementation = "eager"  # pylint: disable=protected-access
    return config


def mask(queries, first):
    """A query sees what is before it. Additive and ready-made, so that the model looks at no data on the device."""
    sees = torch.arange(LONGEST, device=DEVICE)[None, :] <= torch.arange(first, first + queries, device=DEVICE)[:, None]
    lowest = torch.finfo(torch.bfloat16).min
    return torch.zeros(queries, LONGEST, dtype=torch.bfloat16, device=DEVICE).masked_fill(~sees, lowest)[None, None]


def made_on_host():
    on_host = transformers.Qwen2ForCausalLM(configuration()).to(torch.bfloat16).eval()
    return lambda: on_host.to(DEVICE)


class Engine:
    def __init__(self, saver, place=None):
        """`place` puts the model on the device and returns it; a small one with random weights unless it is given."""
        place = place or made_on_host()
        with saver.region("weights", enable_cpu_backup=True):
            self.model = place()
        config = self.model.config
        heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        self.cache = transformers.StaticCache(config=config, max_cache_len=LONGEST)
        with saver.region("kv_cache"):
            self.cache.early_initialization(BATCH, heads, width, torch.bfloat16, torch.device(DEVICE))
        self.prompt = torch.randint(0, config.vocab_size, (BATCH, PROMPT), device=DEVICE)
        self.token = torch.randint(0, config.vocab_size, (BATCH, 1), device=DEVICE)
        self.positions = torch.arange(LONGEST, device=DEVICE)[None, :]
        self.masks = mask(PROMPT, 0), mask(1, PROMPT)
        self.graph = None
        self.graph_logits = None

    def bytes(self):
        weights = sum(tensor.nbytes for tensor in [*self.model.parameters(), *self.model.buffers()])
        return weights, sum(layer.keys.nbytes + layer.values.nbytes for layer in self.cache.layers)

    @torch.no_grad()
    def prefill(self):
        self.cache.reset()
        return self.model(input_ids=self.prompt, attention_mask=self.masks[0], position_ids=self.positions[:, :PROMPT],
                          past_key_values=self.cache).logits

    @torch.no_grad()
    def decode(self):
        return self.model(input_ids=self.token, attention_mask=self.masks[1],
                          position_ids=self.positions[:, PROMPT:PROMPT + 1], past_key_values=self.cache).logits

    def capture(self):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.prefill()
                self.decode()
        torch.cuda.current_stream().wait_stream(stream)
        self.prefill()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.graph_logits = self.decode()

    def logits(self):
        """Of the prompt and of the next token, both eager, and of the next token from the graph."""
        prompt = self.prefill().cpu()
        eager = self.decode().cpu()
        self.prefill()
        self.graph_logits.zero_()
        self.graph.replay()
        return {"prompt": prompt, "next token, eager": eager, "next token, from the graph": self.graph_logits.cpu()}


def logits_bit_equal(saver):
    engine = Engine(saver)
    engine.capture()
    expected = engine.logits()
    for name, values in expected.items():
        makes_sense = bool(torch.isfinite(values).all()) and float(values.float().std()) > 0
        require(makes_sense, f"the logits of the {name} are not finite, or all the same")
    weights, kv_cache = engine.bytes()
    other = other_process()
    seen = []
    for number in range(3):
        before, outside = free_bytes(), other.free()
        saver.pause("kv_cache")
        saver.pause("weights")
        freed = free_bytes() - before
        seen.append(other.free() - outside)
        wanted = weights + kv_cache
        require(freed >= 0.99 * wanted and seen[-1] >= 0.99 * wanted,
                f"{freed} bytes of {wanted} were freed, another process sees {seen[-1]}")
        other.ask(f"fill {seen[-1] * 9 // 10}")
        other.ask("release")
        saver.resume("weights")
        saver.resume("kv_cache")
        for name, values in engine.logits().items():
            require(torch.equal(values, expected[name]), f"cycle {number}: the logits of the {name} differ")
    other.close()
    require(min(seen) > 200 * MIB, f"too little to prove anything: {seen}")
    return f"weights {in_mib(weights)}, KV {in_mib(kv_cache)}, another process sees {in_mib(min(seen))} freed, 3 cycles"


if __name__ == "__main__":
    main(globals())
