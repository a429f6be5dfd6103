# SPDX-License-Identifier: Apache-2.0
"""An RL loop with CUDA graphs: rollouts by replay, a pause, something else on the device, a resume, rollouts again."""
import torch

from support import DEVICE, MIB, NotOffered, captures_are_tagged, free_bytes, in_mib, main, require

WIDTH = 2048
ROUNDS = 5


class Engine:
    """Weights with a backup, a KV cache without, and a decoding step that writes the cache before it reads it."""

    def __init__(self, saver):
        self.input = torch.randn(64, WIDTH, device=DEVICE)
        with saver.region("weights", enable_cpu_backup=True):
            self.weights = [torch.randn(WIDTH, WIDTH, device=DEVICE).div_(WIDTH**0.5) for _ in range(8)]
        with saver.region("kv_cache"):
            self.cache = torch.zeros(8, 64, WIDTH, device=DEVICE)
        self.stream = torch.cuda.Stream()

    def step(self):
        hidden = self.input
        for layer, weight in enumerate(self.weights):
            hidden = torch.tanh(hidden @ weight)
            self.cache[layer].copy_(hidden)
        return hidden + self.cache.sum(0)

    def warm_up(self):
        """Libraries take their workspaces here, outside of all regions."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(self.stream)

    def bytes(self):
        return sum(weight.numel() * 4 for weight in self.weights) + self.cache.numel() * 4


def plain_graph(engine):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=engine.stream):
        output = engine.step()
    return graph, output


def replayed(graph, output):
    output.zero_()
    graph.replay()
    return output.cpu()


def train_meanwhile(engine, number):
    """Uses the room that the engine left, and says what its next weights are."""
    room = torch.empty(512 * MIB, dtype=torch.uint8, device=DEVICE).fill_(number)
    generator = torch.Generator(device=DEVICE).manual_seed(number)
    news = [torch.randn(WIDTH, WIDTH, device=DEVICE, generator=generator) / WIDTH**0.5 for _ in engine.weights]
    require(bool((room == number).all()), "the trainer's own memory differs")
    return news


def plain(saver):
    """A graph captured by PyTorch alone, before the first pause, replays over regions that were away."""
    engine = Engine(saver)
    engine.warm_up()
    graph, output = plain_graph(engine)
    freed = []
    for number in range(ROUNDS):
        expected = replayed(graph, output)
        before = free_bytes()
        saver.pause("kv_cache")
        saver.pause("weights")
        freed.append(free_bytes() - before)
        require(freed[-1] >= 0.99 * engine.bytes(), f"{freed[-1]} of {engine.bytes()} bytes were freed")
        news = train_meanwhile(engine, number)
        saver.resume("weights")
        saver.resume("kv_cache")
        require(torch.equal(replayed(graph, output), expected), f"round {number}: a replay differs after the resume")
        for weight, new in zip(engine.weights, news):
            weight.copy_(new)
        require(not torch.equal(replayed(graph, output), expected), "new weights changed nothing")
    return f"{ROUNDS} rounds, {in_mib(min(freed))} freed in each"


def pauseable(saver):
    """A graph whose own memory is a tag with a backup, beside a plain one, in one loop."""
    if not captures_are_tagged():
        raise NotOffered("saver.cuda_graph wants the preload")
    engine = Engine(saver)
    engine.warm_up()
    earlier = plain_graph(engine)
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, stream=engine.stream, tag="cuda_graph", enable_cpu_backup=True):
        output = engine.step()
        once = torch.empty(96 * MIB, dtype=torch.uint8, device=DEVICE)
    once.random_(0, 256)
    kept = once.cpu()
    for number in range(ROUNDS):
        expected = replayed(graph, output)
        expected_earlier = replayed(*earlier)
        expected = replayed(graph, output)
        output_kept = output.cpu()
        before = free_bytes()
        for tag in ("kv_cache", "weights", "cuda_graph"):
            saver.pause(tag)
        freed = free_bytes() - before
        wanted = engine.bytes() + once.numel()
        require(freed >= 0.99 * wanted, f"{freed} of {wanted} bytes were freed")
        news = train_meanwhile(engine, number)
        for tag in ("cuda_graph", "weights", "kv_cache"):
            saver.resume(tag)
        require(torch.equal(output.cpu(), output_kept), "the graph's own memory lost its content")
        require(torch.equal(once.cpu(), kept), "what was written once to the graph's own memory is lost")
        require(torch.equal(replayed(graph, output), expected), f"round {number}: a replay differs after the resume")
        require(torch.equal(replayed(*earlier), expected_earlier), f"round {number}: the plain graph differs")
        for weight, new in zip(engine.weights, news):
            weight.copy_(new)
    return f"{ROUNDS} rounds, {in_mib(freed)} freed"


if __name__ == "__main__":
    main(globals())
