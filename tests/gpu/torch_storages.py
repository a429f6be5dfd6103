#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lowtide.torch.recreate on a GPU: prints a line for each case, and exits 1 if one failed. No library is needed.

    PYTHONPATH=shim/python python3 tests/gpu/torch_storages.py [--only PART]
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True PYTHONPATH=shim/python python3 tests/gpu/torch_storages.py
"""
import argparse
import contextlib
import copy
import gc
import os
import pathlib
import random
import re
import sys
import threading
import time
import traceback

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # bit-equal results from step to step

import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from run_real_programs import OtherProcess  # noqa: E402

import lowtide  # noqa: E402
from lowtide.torch import recreate  # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
SLACK = 32 * MIB  # segments of PyTorch that came or went beside
CASES = []


class NotRun(Exception):
    """With the reason."""


def case(function):
    CASES.append(function)
    return function


def random_tensor(mib):
    return torch.randint(0, 1 << 62, (mib * MIB // 8,), dtype=torch.int64, device="cuda")


def free():
    return torch.cuda.mem_get_info()[0]


def rise(report):
    before, after = report.free[torch.cuda.current_device()]
    return after - before


@contextlib.contextmanager
def other_process():
    other = OtherProcess(sys.executable)
    try:
        other.ask("fill 1")  # its context takes memory too: now, and not while something is measured
        other.ask("release")
        yield other
    finally:
        other.close()


def network():
    layers = [torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.LayerNorm(512), torch.nn.LSTM(512, 512)]
    model = torch.nn.Sequential(*layers).cuda()
    model.register_buffer("not_saved", torch.rand(1000, device="cuda"), persistent=False)
    return model


def step(model, optimizer, batch, between=lambda: None):
    optimizer.zero_grad()
    loss = model(batch)[0].square().mean()
    between()
    loss.backward()
    optimizer.step()
    return loss.detach()


@case
def training_is_that_of_an_undisturbed_copy_bit_for_bit():
    model = network()
    other = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(each.parameters(), fused=True) for each in (model, other)]
    storages = recreate.Storages(model, optimizers[0])
    for number in range(6):
        batch = torch.rand(32, 512, device="cuda")

        def cycle():
            assert storages.pause().parked > 0 and next(model.parameters()).untyped_storage().nbytes() == 0
            assert not storages.resume().left

        losses = step(model, optimizers[0], batch, cycle), step(other, optimizers[1], batch)
        assert torch.equal(*losses), f"step {number}: {losses}"
        cycle()
        for ours, theirs in zip(model.parameters(), other.parameters()):
            assert torch.equal(ours, theirs) and torch.equal(ours.grad, theirs.grad), f"step {number}"


@case
def the_memory_leaves_for_another_process():
    with recreate.region():
        small = [torch.full((1000,), number, device="cuda") for number in range(2000)]
        large = [random_tensor(mib) for mib in (1, 3, 7, 15, 100, 700, 1200)]
    expected = [each.cpu() for each in large]
    storages = recreate.Storages(small, large)
    with other_process() as other:
        for _ in range(3):
            before, outside = free(), other.free()
            report = storages.pause()
            gone, seen = free() - before, other.free() - outside
            assert min(gone, seen) >= 0.99 * report.parked, f"{report.parked} bytes parked, {gone} left, {seen} seen"
            assert rise(report) >= gone - SLACK
            other.ask(f"fill {seen * 9 // 10}")
            other.ask("release")
            storages.resume()
            assert all(torch.equal(tensor.cpu(), content) for tensor, content in zip(large, expected))
            assert all(tensor.eq(number).all().item() for number, tensor in enumerate(small))
    return f"{seen / MIB:.0f} MiB of {report.parked / MIB:.0f}, as another process sees it"


@case
def without_a_region_all_leaves_from_the_second_pause_on():
    mixed = [random_tensor(1) for _ in range(400)]  # every second one stays, in the same segments
    storages = recreate.Storages(mixed[::2])
    first = storages.pause()
    storages.resume()
    before = free()
    second = storages.pause()
    gone = free() - before
    assert gone >= 0.99 * second.parked, f"{second.parked} bytes parked, {gone} left"
    storages.resume()
    return f"first {rise(first) / MIB:.0f} MiB, then {gone / MIB:.0f} of {second.parked / MIB:.0f}"


@case
def a_language_model_answers_the_same_bit_for_bit():
    try:
        import transformers
    except ImportError as missing:
        raise NotRun("transformers is not installed") from missing
    config = transformers.Qwen2Config(vocab_size=8192, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8,
                                      num_attention_heads=16, num_key_value_heads=4, tie_word_embeddings=True)
    config._attn_implementation = "eager"
    with recreate.region():
        model = transformers.Qwen2ForCausalLM(config).to(torch.bfloat16).eval().cuda()
    storages = recreate.Storages(model)
    prompt = torch.randint(0, config.vocab_size, (4, 48), device="cuda")

    @torch.inference_mode()
    def answers():
        mask = torch.ones_like(prompt)
        tokens = model.generate(prompt, attention_mask=mask, do_sample=False, max_new_tokens=16, pad_token_id=0,
                                eos_token_id=None)
        return model(prompt).logits.cpu(), tokens.cpu()

    expected = answers()
    torch.cuda.empty_cache()
    assert torch.isfinite(expected[0]).all()
    for _ in range(3):
        before = free()
        report = storages.pause()
        gone = free() - before
        assert gone >= 0.99 * report.parked > 100 * MIB, (gone, report)
        taken = random_tensor(report.parked // MIB // 2)  # so that it comes back elsewhere
        storages.resume()
        assert all(map(torch.equal, answers(), expected))
        del taken
    return f"{report.parked / MIB:.0f} MiB, {report.blocks} storages"


@case
def a_paged_cache_is_dropped_and_its_block_table_kept():
    with recreate.region():
        pages = [torch.rand(64, 16, 8, 64, dtype=torch.float16, device="cuda") for _ in range(32)]
        table = torch.randint(0, 64, (4, 32), device="cuda")
    views = [page.view(64, -1).t() for page in pages]
    cache, kept, expected = recreate.Storages(pages, views), recreate.Storages(table), table.cpu()
    for fill, value in (("zero", 0), ("poison", 0xcd)):
        assert cache.pause("discard", fill).discarded == sum(page.nbytes for page in pages)
        assert kept.pause().parked == table.nbytes
        kept.resume()
        cache.resume()
        assert torch.equal(table.cpu(), expected)
        assert all(page.view(torch.uint8).eq(value).all().item() for page in pages)
        views[5][3, 7] = 2
        assert pages[5].view(64, -1)[7, 3].item() == 2


@case
def a_resume_without_room_changes_nothing_and_a_later_one_works():
    with recreate.region():
        tensors = [random_tensor(256) for _ in range(8)]
    expected = [tensor.cpu() for tensor in tensors]
    storages = recreate.Storages(tensors)
    report = storages.pause()
    with other_process() as other:
        other.ask(f"fill {other.free() - GIB}")
        before = free()
        for _ in range(2):
            try:
                storages.resume()
            except lowtide.DeviceMemoryError as error:
                told = str(error)
            else:
                raise AssertionError("the resume found room")
            needed, room = map(int, re.search(r"needs (\d+) bytes on cuda:\d+, (\d+) are free", told).groups())
            assert needed == report.parked and abs(room - before) < SLACK, told
            assert abs(free() - before) < SLACK, f"{before - free()} bytes stayed with a resume that failed"
            assert all(tensor.untyped_storage().nbytes() == 0 for tensor in tensors)
        other.ask("release")
        storages.resume()
    assert all(torch.equal(tensor.cpu(), content) for tensor, content in zip(tensors, expected))
    return f"{needed / MIB:.0f} MiB needed, {room / MIB:.0f} free"


@case
def captured_graphs_are_told_of_and_their_memory_stays():
    gc.collect()
    weight, source = torch.rand(1024, 1024, device="cuda"), torch.rand(1024, 1024, device="cuda")
    storages = recreate.Storages(weight, source)

    def capture():
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            source @ weight
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            try:
                storages.pause()
            except lowtide.RefusedError:
                refused.append(True)
            answer = source @ weight
        return graph, answer

    refused = []
    graph, answer = capture()
    graph.replay()
    expected = answer.cpu()
    address = answer.data_ptr()
    both = recreate.Storages(weight, source, {"answer": answer})
    report = both.pause()
    assert (report.graphs, report.blocks, [each.name for each in report.left]) == (1, 2, ["dict['answer']"]), report
    assert "graph" in report.left[0].why and answer.data_ptr() == address and torch.equal(answer.cpu(), expected)
    others = [torch.rand(1024, 1024, device="cuda") for _ in range(2)]
    back = both.resume()
    assert back.graphs == (back.moved > 0), back
    del graph, answer, others
    graph, answer = capture()
    graph.replay()
    assert torch.equal(answer.cpu(), expected) and len(refused) == 2
    return f"{back.moved} of 2 moved"


@case
def work_of_other_streams_is_waited_for():
    tensor = torch.zeros(MIB, device="cuda")
    storages, stream = recreate.Storages(tensor), torch.cuda.Stream()
    torch.cuda.synchronize()
    for number in range(1, 4):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            tensor.fill_(number)
        storages.pause()
        storages.resume()
        assert tensor.eq(number).all().item()


@case
def cycles_beside_a_thread_that_allocates():
    stop, failures = threading.Event(), []

    def work():
        try:
            while not stop.is_set():
                with recreate.region():
                    mine = [torch.full((1 << random.randint(0, 20),), 3, device="cuda") for _ in range(5)]
                assert all(each.eq(3).all().item() for each in mine)
        except Exception:  # told by the main thread
            failures.append(traceback.format_exc())

    tensors = [random_tensor(8) for _ in range(8)]
    expected, storages = [tensor.cpu() for tensor in tensors], recreate.Storages(tensors)
    thread = threading.Thread(target=work)
    thread.start()
    end, cycles = time.monotonic() + 3, 0
    while time.monotonic() < end and not failures:
        storages.pause()
        storages.resume()
        cycles += 1
    stop.set()
    thread.join()
    assert not failures, failures[0]
    assert all(torch.equal(tensor.cpu(), content) for tensor, content in zip(tensors, expected))
    return f"{cycles} cycles"


@case
def many_cycles_do_not_grow():
    tensors = [random_tensor(1 + number % 7) for number in range(64)]
    expected, storages = [tensor.cpu() for tensor in tensors], recreate.Storages(tensors)
    storages.pause()
    storages.resume()
    torch.cuda.empty_cache()
    before, moved = free(), 0
    for number in range(200):
        storages.pause()
        beside = [random_tensor(random.randint(1, 9)) for _ in range(number % 5)]
        moved += storages.resume().moved
        del beside
    torch.cuda.empty_cache()
    assert all(torch.equal(tensor.cpu(), content) for tensor, content in zip(tensors, expected))
    assert abs(free() - before) < SLACK, f"{before - free()} bytes more are taken after 200 cycles"
    return f"200 cycles, {moved / 200 / 64:.0%} of the storages moved"


@case
def copies_run_at_the_speed_of_the_link():
    with recreate.region():
        tensors = [random_tensor(256) for _ in range(16)]
    storages = recreate.Storages(tensors)
    times = [(storages.pause().seconds, storages.resume().seconds) for _ in range(3)]
    return ", ".join(f"{4 / out:.1f} and {4 / back:.1f}" for out, back in times) + " GiB/s out and back"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    failed = 0
    for function in CASES:
        if options.only not in function.__name__:
            continue
        start, word = time.monotonic(), "ok  "
        try:
            numbers = function() or ""
        except NotRun as reason:
            word, numbers = "not run", str(reason)
        except Exception:
            word, numbers = "FAIL", "\n" + traceback.format_exc()
            failed += 1
        print(f"{word} {function.__name__} ({numbers}; {time.monotonic() - start:.2f} s)", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    print(f"{failed} failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
