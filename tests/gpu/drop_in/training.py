# SPDX-License-Identifier: Apache-2.0
"""A training engine started with TMS_INIT_ENABLE=1 TMS_INIT_ENABLE_CPU_BACKUP=1: all it allocates can be paused."""
import gc
import os

import torch

from support import DEVICE, MIB, Held, NotOffered, expect_gone, free_bytes, in_mib, is_preloaded, main, require

STEPS = 24


def needs_the_preload():
    require(os.environ.get("TMS_INIT_ENABLE") == "1", "the runner did not set TMS_INIT_ENABLE")
    if not is_preloaded():
        raise NotOffered("TMS_INIT_ENABLE reaches what is allocated outside of regions, through the preload only")


def train(between_steps):
    """Trains an MLP with AdamW. Returns its losses, and its parameters at the end, on the host."""
    torch.manual_seed(99)
    model = torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        batch = torch.randn(256, 2048, device=DEVICE)
        loss = (model(batch) - batch.roll(1, 1)).square().mean()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
        between_steps(step)
    return torch.stack(losses).cpu(), [parameter.detach().cpu() for parameter in model.parameters()]


def trainer(saver):
    """Losses and parameters are those of a run that nobody paused."""
    needs_the_preload()
    torch.use_deterministic_algorithms(True)
    calm_losses, calm_parameters = train(lambda step: None)
    gc.collect()
    torch.cuda.empty_cache()
    shares = []

    def cycle(step):
        if step % 4 != 3:
            return
        reserved, before = torch.cuda.memory_reserved(), free_bytes()
        saver.pause()
        freed = free_bytes() - before
        require(freed >= 0.99 * reserved, f"a pause freed {freed} of the {reserved} bytes that PyTorch holds")
        shares.append(freed)
        saver.resume()

    losses, parameters = train(cycle)
    require(torch.equal(losses, calm_losses), f"the losses differ: {losses.tolist()} and {calm_losses.tolist()}")
    require(all(map(torch.equal, parameters, calm_parameters)), "the parameters differ at the end")
    return f"{STEPS} steps, {len(shares)} pauses of {in_mib(max(shares))}"


def disabled(saver):
    """What is allocated under disable() stays on the device when the engine pauses itself."""
    needs_the_preload()
    paused = Held(64)
    with saver.disable():
        stays = Held(96)
        before = free_bytes()
        saver.pause()
        expect_gone(before, paused, at_most=False)
        stays.check("while all else is paused")
        saver.resume()
        paused.check("after the resume")
        del stays
    later = Held(128)
    before = free_bytes()
    saver.pause()
    expect_gone(before, paused, later, at_most=False)
    saver.resume()
    later.check("allocated after disable()")


def freed_to_the_driver(saver):
    """Blocks that PyTorch gives back to the driver while they are paused are gone, and the others come back."""
    needs_the_preload()
    held = [Held(64) for _ in range(4)]
    before = free_bytes()
    saver.pause()
    del held[1], held[2]
    gc.collect()
    torch.cuda.empty_cache()
    saver.resume()
    for each in held:
        each.check("what was not freed")
    freed = free_bytes() - before
    require(freed >= 128 * MIB * 0.99, f"{freed} bytes came back of 128 MiB that were freed while paused")
    held.append(Held(64))
    saver.pause()
    saver.resume()
    for each in held:
        each.check("after one more cycle")
    return f"{in_mib(freed)} of 128 freed"


if __name__ == "__main__":
    main(globals())
