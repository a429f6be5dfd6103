# SPDX-License-Identifier: Apache-2.0
"""A training whose memory is in three tags. At some points it enters a phase of that point's name, in which nothing is allocated,
and prints what PyTorch's own counters say, by tag: a line of JSON each. Then it waits to be killed."""

import json
import sys
import time

import torch

import lowtide

DEFAULT = "train"  # the tag that `lowtide run --tag` gives to what is in no region
MIB = 1 << 20


class Points:
    def __init__(self):
        self.tag_of_pool = {}

    def learn(self, tag):
        """The pools that are new since the last call are the tag's."""
        for segment in torch.cuda.memory_snapshot():
            self.tag_of_pool.setdefault(tuple(segment["segment_pool_id"]), tag)

    def by_tag(self):
        reserved = {}
        for segment in torch.cuda.memory_snapshot():
            tag = self.tag_of_pool[tuple(segment["segment_pool_id"])]
            reserved[tag] = reserved.get(tag, 0) + segment["total_size"]
        return reserved

    def tell(self, name, parked=()):
        torch.cuda.synchronize()
        lowtide.phase(name)
        reserved = self.by_tag()
        assert sum(reserved.values()) == torch.cuda.memory_reserved(), (reserved, torch.cuda.memory_reserved())
        resident = {tag: size for tag, size in reserved.items() if tag not in parked}
        free, total = torch.cuda.mem_get_info()
        print(json.dumps({"phase": name, "resident": resident, "reserved": torch.cuda.memory_reserved(), "used": total - free}), flush=True)
        lowtide.phase("between")


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(512, 4096, device="cuda")).square().mean().backward()
        optimizer.step()


def main():
    points = Points()
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096, device="cuda") for _ in range(8)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    points.learn(DEFAULT)
    points.tell("built")
    train(model, optimizer, 3)
    points.learn(DEFAULT)
    points.tell("trained")
    with lowtide.region("kv_cache"):
        cache = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(8)]
    points.learn("kv_cache")
    with lowtide.region("lora"):
        adapter = torch.ones(33 * MIB, dtype=torch.uint8, device="cuda")
    points.learn("lora")
    points.tell("filled")
    lowtide.pause("kv_cache")
    points.tell("paused", parked=("kv_cache",))
    lowtide.resume("kv_cache")
    points.tell("resumed")
    del cache[4:], adapter
    torch.cuda.empty_cache()
    points.tell("emptied")
    train(model, optimizer, 3)
    points.learn(DEFAULT)
    points.tell("last")
    print(json.dumps({"done": True}), flush=True)
    time.sleep(600)


if __name__ == "__main__":
    sys.exit(main())
