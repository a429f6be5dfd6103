# SPDX-License-Identifier: Apache-2.0
"""A resume that finds no room, since another process has taken it. The runner sets device.wait to one second."""
import os
import re
import time

import torch

from support import DEVICE, MIB, Held, expect_gone, free_bytes, in_mib, main, other_process, require


def without_room(saver):
    """A paused region of 1 GiB, and a device on which another process left 256 MiB."""
    with saver.region("weights", enable_cpu_backup=True):
        held = Held(1024)
    before = free_bytes()
    saver.pause("weights")
    expect_gone(before, held)
    other = other_process()
    other.ask(f"fill {other.free() - 256 * MIB}")
    return held, other


def resume_raises(saver):
    """With our module the resume raises, with the bytes needed and those free; later the same call succeeds."""
    import lowtide
    held, other = without_room(saver)
    start, message = time.monotonic(), None
    for _ in range(2):
        try:
            saver.resume("weights")
        except lowtide.DeviceMemoryError as error:
            message = str(error)
        require(message is not None, "a resume of 1 GiB succeeded where another process left 256 MiB")
    numbers = re.findall(r"\d[\d.]*\s*(?:bytes|[KMG]iB|B\b)", message)
    require(len(numbers) >= 2, f"the error does not say what is needed and what is free: {message}")
    waited = time.monotonic() - start
    other.ask("release")
    saver.resume("weights")
    held.check("after the resume")
    other.close()
    return f"{waited:.1f} s for two refusals: {message}"


def next_use_raises(saver):
    """The original's Python ignores what a resume answers: Lowtide raises in it, and where its doors are, so does the next use
    of the device, instead of touching parked memory."""
    held, other = without_room(saver)
    seen = []
    try:
        saver.resume("weights")
        raise AssertionError("nobody was told")
    except torch.OutOfMemoryError:
        pass
    doors = os.environ["DROP_IN_WAY"] != "torch"
    uses = (lambda: held.tensor.add_(1), held.tensor.cpu, lambda: torch.zeros(1 << 10, device=DEVICE).add_(1))
    for use in uses if doors else ():
        try:
            use()
            torch.cuda.synchronize()
        except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
            require("out of memory" in str(error).lower(), f"not an out-of-memory error: {error}")
            seen.append(type(error).__name__)
    require(not doors or len(seen) == 3, f"{len(seen)} of 3 uses raised: {seen}")
    other.ask("release")
    saver.resume("weights")
    held.check("after the resume")
    later = Held(64)
    later.check("a new tensor")
    other.close()
    return f"the resume raised{f', then {seen[0]}' if seen else ''}; {in_mib(held.size)} bit-exact after the repair"


if __name__ == "__main__":
    main(globals())
