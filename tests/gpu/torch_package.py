#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package with PyTorch on a GPU: prints a line for each case, and exits 1 if one failed.

    PYTHONPATH=... python3 torch_package.py [--only PART]                 # through the pluggable allocator
    PYTHONPATH=... python3 -m lowtide run -- python3 torch_package.py     # through the driver's doors
"""
import argparse
import gc
import sys
import threading
import time
import traceback

import torch

import lowtide
from lowtide.library import PRELOAD, mapped_library

MIB = 1 << 20
CASES = []


def case(function):
    CASES.append(function)
    return function


def random_tensor(mib):
    return torch.randint(0, 1 << 62, (mib * MIB // 8,), dtype=torch.int64, device="cuda")


def blocks(tag):
    """Of a tag, 0 if nothing carries it."""
    try:
        return lowtide.info(tag).blocks
    except lowtide.InvalidError:
        return 0


def resident(tag):
    return lowtide.info(tag).resident


def free():
    return torch.cuda.mem_get_info()[0]


@case
def a_region_is_paused_and_resumed():
    outside = random_tensor(64)
    with lowtide.region("weights"):
        inside = random_tensor(256)
    address, copy = inside.data_ptr(), inside.cpu()
    before = free()
    report = lowtide.pause("weights")
    gone = free() - before
    assert gone >= 256 * MIB and report.parked >= 256 * MIB, (gone, report)
    assert torch.equal(lowtide.read_paused(inside), copy)
    outside += 1
    lowtide.resume("weights")
    assert inside.data_ptr() == address and torch.equal(inside.cpu(), copy)
    return f"{gone / MIB:.0f} MiB freed of 256"


@case
def an_inner_region_gets_its_own_memory():
    with lowtide.region("outer"):
        first = random_tensor(32)
        with lowtide.region("inner"):
            second = random_tensor(32)
            with lowtide.region("outer"):
                third = random_tensor(32)
        fourth = random_tensor(32)
    after = random_tensor(32)
    assert resident("outer") >= 96 * MIB and 32 * MIB <= resident("inner") < 64 * MIB
    copies = [tensor.cpu() for tensor in (first, third, fourth, second)]
    lowtide.pause("outer")
    second += 0
    after += 0
    torch.cuda.synchronize()
    lowtide.pause("inner")
    lowtide.resume("inner")
    lowtide.resume("outer")
    for tensor, copy in zip((first, third, fourth, second), copies):
        assert torch.equal(tensor.cpu(), copy)


@case
def threads_in_regions_of_one_tag_and_of_others():
    stop, failures = threading.Event(), []

    def work(tag):
        try:
            kept = []
            while not stop.is_set():
                with lowtide.region(tag):
                    kept.append(torch.full((MIB,), len(kept), dtype=torch.int32, device="cuda"))
                if len(kept) > 20:
                    del kept[:10]
        except Exception:  # told by the main thread
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(f"thread_{i // 2}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    with lowtide.region("paused"):
        tensor = random_tensor(64)
    copy = tensor.cpu()
    pauses = 0
    end = time.monotonic() + 4
    while time.monotonic() < end:
        lowtide.pause("paused")
        lowtide.resume("paused")
        pauses += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert torch.equal(tensor.cpu(), copy)
    return f"{pauses} pauses"


@case
def eight_threads_allocate_in_regions_that_are_paused_and_resumed():
    failures = []
    locks = [threading.Lock() for _ in range(8)]
    kept = [[] for _ in range(8)]
    stop = threading.Event()

    def work(index):
        try:
            generator = torch.Generator("cuda").manual_seed(index)
            while not stop.is_set():
                with locks[index]:  # its tag is resident
                    with lowtide.region(f"mine_{index}"):
                        tensor = torch.randint(0, 1 << 62, (MIB // 8,), dtype=torch.int64, device="cuda", generator=generator)
                    torch.cuda.synchronize()
                    kept[index].append((tensor, tensor.cpu()))
                    if len(kept[index]) > 12:
                        old, copy = kept[index].pop(0)
                        assert torch.equal(old.cpu(), copy)
                        del old
        except Exception:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    rounds = 0
    end = time.monotonic() + 6
    while time.monotonic() < end and not failures:
        index = rounds % 8
        with locks[index]:
            if blocks(f"mine_{index}"):
                lowtide.pause(f"mine_{index}")
                lowtide.resume(f"mine_{index}")
        rounds += 1
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    for each in kept:
        for tensor, copy in each:
            assert torch.equal(tensor.cpu(), copy)
    return f"{rounds} rounds, {sum(map(len, kept))} tensors at the end"


@case
def a_region_for_all_threads_covers_loader_threads():
    found = []
    with lowtide.region("loaded", all_threads=True):
        threads = [threading.Thread(target=lambda: found.append(random_tensor(16))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert resident("loaded") >= 64 * MIB
    copies = [tensor.cpu() for tensor in found]
    before = free()
    lowtide.pause("loaded")
    assert free() - before >= 64 * MIB
    lowtide.resume("loaded")
    for tensor, copy in zip(found, copies):
        assert torch.equal(tensor.cpu(), copy)


@case
def a_graph_captured_before_replays_after():
    with lowtide.region("weights"):
        weight = torch.randn(1024, 1024, device="cuda")
        source = torch.randn(1024, 1024, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            torch.relu(source @ weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with lowtide.cuda_graph(graph):
        hidden = torch.relu(source @ weight)
        answer = hidden @ weight
    other = torch.cuda.CUDAGraph()
    with lowtide.cuda_graph(other, pool=graph.pool()):
        second = answer * 2
    graph.replay()
    other.replay()
    torch.cuda.synchronize()
    expected, expected_second = answer.cpu(), second.cpu()
    assert blocks("cuda_graph") > 0
    for _ in range(3):
        report = lowtide.pause()
        assert report.parked > 0
        lowtide.resume()
        assert torch.equal(answer.cpu(), expected)  # the graph's own memory kept its content
        graph.replay()
        other.replay()
        torch.cuda.synchronize()
        assert torch.equal(answer.cpu(), expected) and torch.equal(second.cpu(), expected_second)
    del graph, other, hidden, answer, second
    gc.collect()


@case
def the_cache_is_emptied_while_paused():
    with lowtide.region("emptied"):
        kept, gone = random_tensor(64), random_tensor(64)
    copy = kept.cpu()
    lowtide.pause("emptied")
    del gone
    torch.cuda.empty_cache()
    with lowtide.region("emptied"):
        late = random_tensor(128)
    late_copy = late.cpu()
    lowtide.resume("emptied")
    assert torch.equal(kept.cpu(), copy) and torch.equal(late.cpu(), late_copy)


@case
def a_resume_without_room_raises_and_a_later_one_works():
    with lowtide.region("waits"):
        tensor = random_tensor(512)
    copy = tensor.cpu()
    lowtide.pause("waits")
    torch.cuda.empty_cache()
    hog = torch.empty(free() - 256 * MIB, dtype=torch.uint8, device="cuda")
    try:
        lowtide.resume("waits")
    except lowtide.DeviceMemoryError as error:
        told = str(error)
    else:
        raise AssertionError("the resume found room")
    del hog
    torch.cuda.empty_cache()
    lowtide.resume("waits")
    assert torch.equal(tensor.cpu(), copy)
    return told.split(":")[1].strip()[:60]


@case
def parked_bytes_are_written_before_they_come_back():
    with lowtide.region("written"):
        tensor = torch.zeros(3, 1000, device="cuda")
    lowtide.pause("written")
    lowtide.write_paused(tensor[1], torch.full((1000,), 7.0))
    lowtide.resume("written")
    assert tensor[1].eq(7).all().item() and tensor[0].eq(0).all().item() and tensor[2].eq(0).all().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, "
          f"{'preloaded' if mapped_library(PRELOAD) else 'through the pluggable allocator'}")
    failed = 0
    for function in CASES:
        if options.only not in function.__name__:
            continue
        start = time.monotonic()
        try:
            numbers = function() or ""
            word = "ok  "
        except Exception:
            word, numbers = "FAIL", "\n" + traceback.format_exc()
            failed += 1
        print(f"{word} {function.__name__} ({numbers}; {time.monotonic() - start:.2f} s)", flush=True)
    print(f"{failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
