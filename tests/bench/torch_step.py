# SPDX-License-Identifier: Apache-2.0
"""Milliseconds a training step, of a small transformer (the device is busy) and of a tiny MLP (the host is: every
launch counts). Prints a JSON line for each. Knows nothing of Lowtide."""

import json
import statistics
import time

import torch

DEVICE = torch.device("cuda:0")
WARM_UP, SAMPLES, STEPS = 20, 7, 40


def transformer():
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, device=DEVICE)
    return torch.nn.TransformerEncoder(layer, 6), torch.randn(16, 256, 512, device=DEVICE)


def tiny_mlp():
    layers = [torch.nn.Linear(64, 64, device=DEVICE) for _ in range(20)]
    return torch.nn.Sequential(*layers), torch.randn(32, 64, device=DEVICE)


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    model(batch).square().mean().backward()
    optimizer.step()


def milliseconds(model, batch):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    samples = []
    for _ in range(WARM_UP):
        step(model, optimizer, batch)
    for _ in range(SAMPLES):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step(model, optimizer, batch)
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1000 / STEPS)
    return statistics.median(samples)


def main():
    torch.manual_seed(1)
    for make in (transformer, tiny_mlp):
        print(
            json.dumps({"what": f"PyTorch training step, {make.__name__}", "ns": 1e6 * milliseconds(*make())}),
            flush=True,
        )


if __name__ == "__main__":
    main()
