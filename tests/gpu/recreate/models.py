# SPDX-License-Identifier: Apache-2.0
"""Programs on PyTorch whose tagged memory is freed and allocated again: outputs are the same, bit for bit."""
import copy
import math

from ground import (DEVICE, bytes_of_tags, expect_unstable, in_mib, lowtide, main, other_process, pause_for, replayed,
                    require, resume, torch)

CYCLES = 3


def check_equal(ours, theirs, what):
    require(torch.equal(ours, theirs), f"{what} differ")


def torch_script():
    """Training beside an undisturbed twin."""
    width, layers = 4096, 8
    other = other_process()
    with lowtide.region("weights"):
        model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(layers)]).to(DEVICE)
    with lowtide.region("kv_cache"):
        scratch = torch.empty(256, 1 << 20, device=DEVICE)
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(each.parameters(), fused=True) for each in (model, twin)]
    lowtide.set("tag.kv_cache.pause", "discard")

    def step(each, optimizer, batch):
        optimizer.zero_grad()
        loss = each(batch).square().mean()
        loss.backward()
        with lowtide.region("weights" if each is model else "untouched"):  # its states, at the first step
            optimizer.step()
        return loss.detach()

    def same(number):
        batch = torch.rand(64, width, device=DEVICE)
        check_equal(step(model, optimizers[0], batch), step(twin, optimizers[1], batch), f"losses of step {number}")
        for ours, theirs in zip(model.parameters(), twin.parameters()):
            check_equal(ours, theirs, f"parameters after step {number}")
        with torch.no_grad():
            check_equal(replayed(lambda: model(batch)), replayed(lambda: twin(batch)), f"answers of graphs {number}")
        scratch.fill_(number)
        require(bool(scratch.eq(number).all()), "the scratch memory does not keep what is written")

    same(0)
    expect_unstable("weights", "kv_cache")
    shares = []
    for number in range(1, CYCLES + 1):
        shares.append(pause_for(other, "weights", "kv_cache", lend=number == CYCLES))
        resume("weights", "kv_cache")
        same(number)
    other.close()
    return f"{in_mib(bytes_of_tags('weights', 'kv_cache'))} tagged, {min(shares):.1%} handed over, {CYCLES} cycles"


class Regions:
    """What Engine asks of torch_memory_saver."""

    def region(self, tag, enable_cpu_backup=False):  # pylint: disable=unused-argument  the tag's action says it
        return lowtide.region(tag)


def causal_lm():
    from causal_lm import Engine

    other = other_process()
    engine = Engine(Regions())
    lowtide.set("tag.kv_cache.pause", "discard")
    expect_unstable("weights", "kv_cache")
    engine.capture()
    expected = engine.logits()
    require(all(bool(torch.isfinite(each).all()) and float(each.float().std()) > 0 for each in expected.values()),
            "the logits are not finite, or all the same")
    shares = []
    for number in range(CYCLES):
        engine.graph = engine.graph_logits = None
        shares.append(pause_for(other, "kv_cache", "weights"))
        resume("weights", "kv_cache")
        engine.capture()
        for name, values in engine.logits().items():
            check_equal(values, expected[name], f"cycle {number}: the logits of the {name}")
    other.close()
    return f"{in_mib(bytes_of_tags('weights', 'kv_cache'))} tagged, {min(shares):.1%} handed over, {CYCLES} cycles"


class PagedEngine:
    """Attention over pages that a block table finds, as serving engines do it."""

    BATCH, HEADS, WIDTH, PAGE, LAYERS = 16, 16, 128, 16, 4

    def __init__(self, pages=8192, prompt=960, device=DEVICE):
        hidden = self.HEADS * self.WIDTH
        with lowtide.region("weights"):
            shape = (self.LAYERS, 4, hidden, hidden)
            self.weights = torch.randn(shape, dtype=torch.bfloat16, device=device) / math.sqrt(hidden)
        with lowtide.region("kv_cache"):
            shape = (self.LAYERS, 2, pages, self.PAGE, self.HEADS, self.WIDTH)
            self.cache = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        per_sequence = prompt // self.PAGE + 1
        self.table = torch.randperm(pages, device=device)[:self.BATCH * per_sequence].view(self.BATCH, per_sequence)
        self.prompt = torch.randn(self.BATCH, prompt, hidden, dtype=torch.bfloat16, device=device)
        self.token = torch.randn(self.BATCH, 1, hidden, dtype=torch.bfloat16, device=device)

    def run_(self, state, first):
        """State of some positions, whose keys and values go to their pages."""
        count = state.shape[1]
        positions = torch.arange(first, first + count, device=state.device)
        pages, slots = self.table[:, positions // self.PAGE], (positions % self.PAGE).expand(self.BATCH, -1)
        for layer, cache in zip(self.weights, self.cache):
            query, key, value = [(state @ each).view(self.BATCH, count, self.HEADS, self.WIDTH) for each in layer[:3]]
            cache[0][pages, slots], cache[1][pages, slots] = key, value
            keys, values = [each[self.table].flatten(1, 2)[:, :first + count].transpose(1, 2) for each in cache]
            scores = query.transpose(1, 2) @ keys.transpose(2, 3) / math.sqrt(self.WIDTH)
            sees = torch.arange(first + count, device=state.device)[None, :] <= positions[:, None]
            mixed = scores.masked_fill(~sees, float("-inf")).softmax(-1) @ values
            state = state + mixed.transpose(1, 2).reshape(state.shape) @ layer[3]
        return state

    def prefill(self):
        return self.run_(self.prompt, 0)

    def decode(self):
        return self.run_(self.token, self.prompt.shape[1])


def paged_kv():
    other = other_process()
    with torch.inference_mode():
        engine = PagedEngine()
        expect_unstable("weights", "kv_cache")
        prefilled, decoded = engine.prefill().cpu(), engine.decode().cpu()
        require(bool(torch.isfinite(decoded.float()).all()) and float(decoded.float().std()) > 0, "no sensible output")
        graph = replayed(engine.decode)
        shares = []
        for action in ("discard", "offload", "discard", "offload"):
            lowtide.set("tag.kv_cache.pause", action)
            shares.append(pause_for(other, "kv_cache", "weights", lend=len(shares) > 1))
            resume("weights", "kv_cache")
            if action == "discard":
                engine.cache.fill_(float("nan"))
                engine.cache[:, :, engine.table.flatten()] = 0
                check_equal(engine.prefill().cpu(), prefilled, f"{action}: the outputs of the prefill")
            check_equal(engine.decode().cpu(), decoded, f"{action}: the eager outputs of the decoding step")
            check_equal(replayed(engine.decode), graph, f"{action}: the outputs of the captured step")
    other.close()
    tagged = in_mib(bytes_of_tags("weights", "kv_cache"))
    return f"{tagged} tagged, {min(shares):.1%} handed over, 2 cycles with the cache dropped, 2 with it kept"


if __name__ == "__main__":
    main(globals())
