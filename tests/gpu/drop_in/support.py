# SPDX-License-Identifier: Apache-2.0
"""What the cases share: the package under test, tensors of random bytes, free memory from here and from outside."""
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from row_process import MIB, Failure, finish, in_mib, require, wait_for_turn  # noqa: E402,F401  it lies one folder above
from run_real_programs import OtherProcess  # noqa: E402

DEVICE = "cuda:0"
WAY = os.environ["DROP_IN_WAY"]
LEAST_FREED = 0.99
GRANULES = 32 * MIB  # what segments of PyTorch and shared granules may add to a pause; less than any other tag holds


class NotOffered(Exception):
    """torch_memory_saver itself does not do this in this way, with the reason."""


def is_preloaded():
    """Whether the driver's own door is open: what allocates outside of PyTorch's pools is seen too."""
    return "run" in WAY or WAY == "preload"


def captures_are_tagged(pool_of_pytorch=False):
    """Whether saver.cuda_graph is offered: not in torch mode, and into a pool of PyTorch's under the preload only."""
    return not WAY.startswith("torch") and (is_preloaded() or not pool_of_pytorch)


def open_package():
    """The module that a user of this way imports."""
    if WAY.startswith("module"):
        import lowtide.compat.torch_memory_saver as torch_memory_saver
    else:
        import torch_memory_saver
    if WAY.startswith("torch"):
        torch_memory_saver.torch_memory_saver.hook_mode = "torch"
    return torch_memory_saver


def clean_environment():
    """The environment of a helper that must have nothing of Lowtide in it."""
    return {key: value for key, value in os.environ.items()
            if key != "LD_PRELOAD" and not key.startswith(("LOWTIDE_DEFAULT", "LOWTIDE_CONF", "TMS_"))}


def other_process():
    """A process without Lowtide that sees and takes device memory."""
    other = OtherProcess(sys.executable, clean_environment())
    other.ask("fill 1")  # its context takes memory too: now, and not while something is measured
    other.ask("release")
    return other


def may_disable():
    """Whether disable() works within a region: the original's gives a pool up there, at which PyTorch 2.11 ends the process,
    with the original's own libraries too."""
    return os.environ["DROP_IN_WAY"].startswith("module")


class Held:
    """A tensor of random bytes on the device, whose address and bytes are known."""

    def __init__(self, mib):
        self.tensor = torch.empty(int(mib * MIB) // 8, dtype=torch.int64, device=DEVICE)
        self.address = self.tensor.data_ptr()
        self.bytes = None
        self.rewrite()

    @property
    def size(self):
        return self.tensor.numel() * 8

    def rewrite(self):
        self.tensor.random_(-(1 << 62), 1 << 62)
        self.bytes = self.tensor.cpu()

    def check(self, what):
        require(self.tensor.data_ptr() == self.address, f"{what}: the tensor has moved")
        differing = int((self.tensor.cpu() != self.bytes).sum())
        require(differing == 0, f"{what}: {differing} of {self.bytes.numel()} words differ")

    def check_usable(self, what):
        """For content that was dropped: the memory is there, and keeps what is written."""
        self.rewrite()
        self.check(what)


def free_bytes():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


def expect_gone(before, *held, what="the pause", at_most=True):
    """That the bytes of `held`, and little else, came back to the device since `before`. Returns how many did."""
    wanted = sum(each.size for each in held)
    freed = free_bytes() - before
    require(freed >= LEAST_FREED * wanted, f"{what} freed {freed} of {wanted} bytes")
    require(not at_most or freed <= wanted + GRANULES, f"{what} freed {freed} bytes where {wanted} were to go")
    return freed


def states():
    """The copies of the state library that this process has mapped: (device and inode, path)."""
    found = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and os.path.basename(fields[5].split(" (deleted)")[0].strip()) == "liblowtide.so":
                found.add((fields[3], fields[4], fields[5].strip()))
    return found


def tags_seen_by_the_command():
    """What `lowtide status` of this process answers, by tag."""
    command = [os.environ["DROP_IN_LOWTIDE"], "status", str(os.getpid()), "--json"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=30, check=False)
    require(done.returncode == 0, f"lowtide status: exit {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}")
    return {tag["tag"]: tag for process in json.loads(done.stdout)["processes"] for tag in process["tags"]}


def main(cases):
    """Runs the case named on the command line. `cases` take the torch_memory_saver object and return their numbers."""
    package = open_package()
    wait_for_turn()
    torch.manual_seed(4711)
    try:
        start = time.monotonic()
        numbers = cases[sys.argv[1]](package.torch_memory_saver)
        found = states()
        require(len(found) == 1, f"{len(found)} copies of Lowtide's state are mapped: {sorted(found)}")
        torch.cuda.synchronize()
        finish("ok", numbers)
        print(f"{sys.argv[1]}: {time.monotonic() - start:.2f} s", file=sys.stderr)
    except NotOffered as reason:
        finish("not offered", str(reason))
    except Exception:  # pylint: disable=broad-except  a row of the table, whatever it was
        traceback.print_exc()
        sys.exit(1)
