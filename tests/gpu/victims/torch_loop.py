# SPDX-License-Identifier: Apache-2.0
"""A PyTorch training loop that knows nothing of Lowtide: random ballast in many driver blocks, an MLP under AdamW, a
cuDNN convolution, a CUDA graph that was captured before the first step, and an NCCL all-reduce of one rank. Every
result is a function of the number of steps alone, bit for bit, so that a disturbed run can be compared with an
undisturbed one."""

import os
import random

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402  the settings above are read while it loads
import torch.distributed as dist  # noqa: E402

import rundir  # noqa: E402

MIB = 1 << 20
WIDTH = 2048
SYNCHRONISE_EVERY = 8  # steps that may be queued ahead of the device
CHECKED_PER_STEP = 8  # ballast tensors looked at in each step
DEVICE = torch.device("cuda:0")


def deterministic():
    torch.manual_seed(1234)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


class Digester:
    """128 bits of a tensor of 64-bit words, in wrapping integer arithmetic: two sums with odd random weights, so that
    the order of the summation does not matter, a moved word does, and no change of a single word goes unseen."""

    def __init__(self, largest_words, generator):
        self.shift_ = 4099
        self.weights_ = torch.empty(largest_words + self.shift_, dtype=torch.int64, device=DEVICE)
        self.weights_.random_(-(1 << 62), 1 << 62, generator=generator).bitwise_or_(1)

    def __call__(self, words):
        first = (words * self.weights_[: words.numel()]).sum()
        second = (words * self.weights_[self.shift_ : self.shift_ + words.numel()]).sum()
        return torch.stack((first, second))

    def of_any(self, tensor):
        """The digest of a tensor of any type, by its bytes, as a hexadecimal string."""
        raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
        padded = torch.zeros((raw.numel() + 7) // 8 * 8, dtype=torch.uint8, device=DEVICE)
        padded[: raw.numel()].copy_(raw)
        return hexadecimal(self(padded.view(torch.int64)))


def hexadecimal(digest):
    return "".join(f"{value & (1 << 64) - 1:016x}" for value in digest.tolist())


class Ballast:
    """Tensors of 40 to 160 MiB: above 10 MiB PyTorch's allocator asks the driver for each."""

    def __init__(self, gib, blocks):
        sizes = random.Random(99)
        generator = torch.Generator(device=DEVICE).manual_seed(5678)
        self.tensors = []
        total = 0
        while total < gib * (1 << 30) or len(self.tensors) < blocks:
            words = sizes.randrange(40 * MIB, 160 * MIB, 4096) // 8
            tensor = torch.empty(words, dtype=torch.int64, device=DEVICE)
            tensor.random_(-(1 << 62), 1 << 62, generator=generator)
            self.tensors.append(tensor)
            total += words * 8
        self.bytes = total
        self.digester = Digester(160 * MIB // 8, generator)
        self.expected_ = [self.digester(tensor) for tensor in self.tensors]
        self.mismatches = torch.zeros((), dtype=torch.int64, device=DEVICE)

    def check_some(self, step):
        for offset in range(CHECKED_PER_STEP):
            index = (step * CHECKED_PER_STEP + offset) % len(self.tensors)
            self.mismatches += (self.digester(self.tensors[index]) != self.expected_[index]).sum()

    def digests(self):
        return {f"ballast_{index}": hexadecimal(self.digester(tensor)) for index, tensor in enumerate(self.tensors)}


class Graphed:
    """A recurrence on fixed addresses: every replay reads and writes the tensors that the capture saw."""

    def __init__(self):
        self.weight_ = torch.randn(WIDTH, WIDTH, device=DEVICE) / WIDTH**0.5
        self.state = torch.randn(256, WIDTH, device=DEVICE)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.advance_()  # cuBLAS takes its workspace before the capture
        torch.cuda.current_stream().wait_stream(side)
        self.graph_ = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph_):
            self.advance_()

    def advance_(self):
        for _ in range(4):
            self.state.copy_(torch.tanh(self.state @ self.weight_ * 3.0))

    def replay(self):
        self.graph_.replay()


class Training:
    def __init__(self, folder):
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH * 2),
            torch.nn.GELU(),
            torch.nn.Linear(WIDTH * 2, WIDTH),
            torch.nn.ReLU(),
            torch.nn.Linear(WIDTH, WIDTH),
        ).to(DEVICE)
        self.convolution = torch.nn.Conv2d(32, 64, 3, padding=1).to(DEVICE)
        self.parameters = list(self.mlp.parameters()) + list(self.convolution.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-4)
        self.graphed = Graphed()
        self.losses = torch.zeros(1 << 16, dtype=torch.float32, device=DEVICE)
        self.gathered = torch.empty(1 << 20, device=DEVICE)
        dist.init_process_group(
            "nccl", init_method=f"file://{os.path.abspath(folder)}/rendezvous", world_size=1, rank=0, device_id=DEVICE
        )

    def step(self, number):
        generator = torch.Generator(device=DEVICE).manual_seed(number)
        batch = torch.randn(512, WIDTH, device=DEVICE, generator=generator)
        images = torch.randn(16, 32, 64, 64, device=DEVICE, generator=generator)
        self.graphed.replay()
        output = self.mlp(batch + self.graphed.state.mean())
        loss = (output - batch.roll(1, 1)).square().mean() + self.convolution(images).square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for parameter in self.parameters:
            dist.all_reduce(parameter.grad)
        # One rank reduces in place without a kernel; the gather copies, and so reaches the device.
        dist.all_gather_into_tensor(self.gathered, self.mlp[0].weight.detach().view(-1)[: self.gathered.numel()])
        self.optimizer.step()
        self.losses[number % self.losses.numel()] = loss.detach() + 0.0 * self.gathered[0]

    def tensors(self):
        named = {f"parameter_{index}": parameter for index, parameter in enumerate(self.parameters)}
        for index, parameter in enumerate(self.parameters):
            for key, value in self.optimizer.state[parameter].items():
                if torch.is_tensor(value) and value.is_cuda:
                    named[f"{key}_{index}"] = value
        return named | {"losses": self.losses, "graph_state": self.graphed.state, "gathered": self.gathered}


def main():
    options = rundir.arguments(gib=20, blocks=210)
    torch.cuda.set_device(DEVICE)
    deterministic()
    ballast = Ballast(options.gib, options.blocks)
    training = Training(options.dir)
    folder = rundir.RunFolder(options)
    torch.cuda.synchronize()
    for step in folder.loop():
        training.step(step)
        ballast.check_some(step)
        if step % SYNCHRONISE_EVERY == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    digests = ballast.digests() | {name: ballast.digester.of_any(tensor) for name, tensor in training.tensors().items()}
    last = training.losses[(folder.steps - 1) % training.losses.numel()].item()
    folder.finish(
        digests,
        {"mismatches_seen_in_the_loop": ballast.mismatches.item(), "last_loss": last},
        {
            "ballast_bytes": ballast.bytes,
            "ballast_blocks": len(ballast.tensors),
            "reserved_bytes": torch.cuda.memory_reserved(),
            "driver_blocks": torch.cuda.memory_stats()["segment.all.current"],
        },
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
