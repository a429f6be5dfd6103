# SPDX-License-Identifier: Apache-2.0
"""What is measured: each job plays one situation with one engine and notes milliseconds, or what else its rows are in.
The figures of a row and an engine are a list, one per repetition."""

import contextlib
import json

from program import Failed

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 2 * MIB


class Sizes:
    """Blocks as the table has them, or smaller ones of whole pages that come as near as they can."""

    def __init__(self, scale):
        self.scale = scale

    def blocks(self, count, size):
        smaller = max(PAGE, round(size * self.scale / PAGE) * PAGE)
        return max(1, round(count * size * self.scale / smaller)), smaller

    def bytes(self, size):
        return max(PAGE, round(size * self.scale / PAGE) * PAGE)


class Bench:
    def __init__(self, options, programs):
        self.options = options
        self.programs = programs
        self.sizes = Sizes(options.scale)
        self.figures = {}  # (row, engine) -> [figure]
        self.totals = {}  # (row, engine) -> bytes of one repetition
        self.seed_ = 0

    def note(self, row, engine, figure, total=None):
        self.figures.setdefault((row, engine), []).append(figure)
        if total is not None:
            self.totals[row, engine] = total

    def seed(self):
        self.seed_ += 1
        return self.seed_

    @property
    def repetitions(self):
        return self.options.repetitions

    def program(self, engine):
        return self.programs.lowtide() if engine == "lowtide" else self.programs.torch(engine)


def link(bench):
    with bench.programs.bare() as worker:
        hello = worker.ask("hello")
        answer = worker.ask("link", bench.sizes.bytes(2 * GIB))
    return hello, answer


def warm(bench):
    """Host memory as a machine has it that has been up for a while."""
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * KIB
    size = min(bench.sizes.bytes(64 * GIB), available * 6 // 10 // PAGE * PAGE)
    with bench.programs.bare() as worker:
        return size, worker.ask("warm", size)["seconds"]


def cycle(bench, worker, pause_row=None, resume_row=None, engine="lowtide", tag="weights"):
    """A pause and a resume of what is resident, and a look at the bytes."""
    paused = worker.ask("pause", tag)
    resumed = worker.ask("resume", tag)
    worker.ask("check")
    if pause_row:
        bench.note(pause_row, engine, paused["ms"])
    if resume_row:
        bench.note(resume_row, engine, resumed["ms"])
    return paused, resumed


def first(bench, engine):
    """Fresh processes, whose host memory is not pinned yet."""
    count, size = bench.sizes.blocks(40, 512 * MIB)
    for _ in range(min(3, bench.repetitions)):
        with bench.programs.lowtide() as worker:
            worker.ask("alloc", "weights", count, size)
            worker.ask("fill", bench.seed())
            cycle(bench, worker, "first", engine=engine)
    bench.totals["first", engine] = count * size


def later(bench, engine):
    count, size = bench.sizes.blocks(40, 512 * MIB)
    for row in ("first", "later", "unchanged", "tenth", "resume"):
        bench.totals[row, engine] = count * size
    ours = engine == "lowtide"
    few = 1 if engine == "tms" else bench.repetitions
    with bench.program(engine) as worker:
        worker.ask("alloc", "weights", count, size)
        worker.ask("fill", bench.seed())
        cycle(bench, worker, None if ours else "first", engine=engine)
        for _ in range(few):
            worker.ask("fill", bench.seed())
            cycle(bench, worker, "later", "resume", engine)
        for _ in range(few if ours else min(few, 3)):
            cycle(bench, worker, "unchanged", engine=engine)
        for _ in range(bench.repetitions if ours else 0):
            worker.ask("touch", bench.seed(), 10)
            cycle(bench, worker, "tenth", engine=engine)


def many(bench, engine):
    count, size = bench.sizes.blocks(500, 20 * MIB)
    for row in ("pause500", "resume500"):
        bench.totals[row, engine] = count * size
    with bench.program(engine) as worker:
        worker.ask("alloc", "weights", count, size)
        worker.ask("fill", bench.seed())
        cycle(bench, worker, engine=engine)
        for _ in range(1 if engine == "tms" else bench.repetitions):
            worker.ask("fill", bench.seed())
            cycle(bench, worker, "pause500", "resume500", engine)


def eight(bench, engine):
    """Figures: the sum of the bytes over the time from the first start to the last end, and one process's rate when the
    others rest, both in bytes per second."""
    count, size = bench.sizes.blocks(8, 512 * MIB)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(bench.programs.lowtide()) for _ in range(8)]
        for worker in workers:
            worker.ask("alloc", "weights", count, size)
            worker.ask("fill", bench.seed())
            cycle(bench, worker)
        alone = []
        for _ in range(bench.repetitions):
            workers[0].ask("fill", bench.seed())
            paused, _ = cycle(bench, workers[0])
            alone.append(count * size / paused["ms"] * 1e3)
        for repetition in range(bench.repetitions):
            for worker in workers:
                worker.ask("fill", bench.seed())
            for worker in workers:
                worker.send("pause", "weights")
            answers = [worker.receive("a pause beside seven others") for worker in workers]
            wall = max(answer["end_ns"] for answer in answers) - min(answer["start_ns"] for answer in answers)
            bench.note("eight", engine, (8 * count * size / wall * 1e9, alone[repetition]))
            for worker in workers:
                worker.ask("resume", "weights")
                worker.ask("check")


def discard(bench, engine):
    count, size = bench.sizes.blocks(60, GIB)
    ours = engine == "lowtide"
    with bench.program(engine) as worker:
        worker.ask("alloc", "kv_cache", count, size)
        if ours:
            worker.ask("bare", count, size)
        # Each is first as often as the other: the driver clears what the first gave back while the second has its turn.
        for repetition in range(2 * ((bench.repetitions + 1) // 2) + 1):
            plays = [("discard", engine, "", "kv_cache")] + ([("discard", "bare", "bare_", "")] if ours else [])
            worker.ask("fill", bench.seed())
            if ours:
                worker.ask("bare_fill", bench.seed())
            for row, whose, prefix, tag in plays if repetition % 2 else plays[::-1]:
                paused = worker.ask(prefix + "pause", tag)
                resumed = worker.ask(prefix + "resume", tag)
                if repetition:  # the first one warms up
                    bench.note(row + "_pause", whose, paused["ms"], count * size)
                    bench.note(row + "_resume", whose, resumed["ms"], count * size)


def tiny(bench, engine):
    """Figures: a cycle's pause and resume; the first one is the first cycle's."""
    count, size = bench.sizes.blocks(10_000, PAGE)
    with bench.program(engine) as worker:
        worker.ask("alloc", "kv_cache", count, size)
        for _ in range(5):
            worker.ask("fill", bench.seed())
            paused = worker.ask("pause", "kv_cache")
            resumed = worker.ask("resume", "kv_cache")
            bench.note("tiny", engine, (paused["ms"], resumed["ms"]), count * size)


def lora(bench, engine):
    with bench.programs.torch(engine) as worker:
        worker.ask("tensors", "lora", 18_432, int(6.2 * GIB))
        worker.ask("fill", bench.seed())
        paused, _ = cycle(bench, worker, engine=engine, tag="lora")
        for row in ("lora", "lora_resume"):
            bench.totals[row, engine] = paused.get("bytes", int(6.2 * GIB))
        for _ in range(1 if engine == "tms" else bench.repetitions):
            worker.ask("fill", bench.seed())
            cycle(bench, worker, "lora", "lora_resume", engine, "lora")


def peak(bench, engine):
    """Figures: what the process and what the machine had at most beyond before, in bytes: over the first pause, the
    resume and a later pause."""
    count, size = bench.sizes.blocks(40, 512 * MIB)
    with bench.programs.lowtide() as worker:
        worker.ask("alloc", "weights", count, size)
        worker.ask("fill", bench.seed())
        worker.ask("watch")
        cycle(bench, worker)
        worker.ask("fill", bench.seed())
        worker.ask("pause", "weights")
        seen = worker.ask("watched")
        worker.ask("resume", "weights")
        worker.ask("check")
    bench.note("peak", engine, (seen["own"], seen["machine"]), count * size)


def command(bench, engine):
    count, size = bench.sizes.blocks(40, 512 * MIB)
    with bench.programs.under_command() as worker:
        pid = str(worker.ask("hello")["pid"])
        worker.ask("alloc", "-", count, size)
        for repetition in range(bench.repetitions + 1):
            worker.ask("fill", bench.seed())
            for verb in ("pause", "resume"):
                seconds, answer = bench.programs.command(verb, pid, "--json")
                if not answer.get("ok"):
                    raise Failed(f"lowtide {verb}: {json.dumps(answer)[:300]}")
                row = f"command_{verb}" if repetition else f"command_first_{verb}"
                bench.note(row, engine, 1e3 * seconds, count * size)
            worker.ask("check")


def beside(bench, engine):
    """Figures: the answers as they are."""
    count, size = bench.sizes.blocks(16, 512 * MIB)
    for _ in range(min(3, bench.repetitions)):
        with bench.programs.lowtide() as worker:
            worker.ask("alloc", "weights", count, size)
            worker.ask("fill", bench.seed())
            bench.note("beside", engine, worker.ask("pause_beside", "weights", "kv_cache"), count * size)
            worker.ask("resume", "weights")
            worker.ask("check")
        with bench.programs.bare() as worker:
            bench.note("beside", "bare", worker.ask("pin_beside", count * size), count * size)


def fork(bench, engine):
    """Figures: bytes."""
    count, size = bench.sizes.blocks(40, 512 * MIB)
    with bench.programs.lowtide() as worker:
        worker.ask("alloc", "weights", count, size)
        worker.ask("fill", bench.seed())
        worker.ask("pause", "weights")
        for _ in range(min(3, bench.repetitions)):
            bench.note("fork", engine, worker.ask("fork")["added"], count * size)
        worker.ask("resume", "weights")
        worker.ask("check")


# Name, the job, engine, the rows that it fills: ours first, then the peers, the slowest last.
JOBS = [
    ("first", first, "lowtide", ["first"]),
    ("later", later, "lowtide", ["later", "unchanged", "tenth", "resume"]),
    ("many", many, "lowtide", ["pause500", "resume500"]),
    ("eight", eight, "lowtide", ["eight"]),
    ("discard", discard, "lowtide", ["discard_pause", "discard_resume"]),
    ("tiny", tiny, "lowtide", ["tiny"]),
    ("lora", lora, "lowtide", ["lora", "lora_resume"]),
    ("peak", peak, "lowtide", ["peak"]),
    ("command", command, "lowtide", ["command_first_pause", "command_pause", "command_resume"]),
    ("beside", beside, "lowtide", ["beside"]),
    ("fork", fork, "lowtide", ["fork"]),
    ("discard", discard, "tms", ["discard_pause", "discard_resume"]),
    ("tiny", tiny, "tms", ["tiny"]),
    ("later", later, "tms-retained", ["first", "later", "unchanged", "resume"]),
    ("many", many, "tms-retained", ["pause500", "resume500"]),
    ("lora", lora, "tms-retained", ["lora", "lora_resume"]),
    ("later", later, "vllm", ["first", "later", "unchanged", "resume"]),
    ("many", many, "vllm", ["pause500", "resume500"]),
    ("lora", lora, "tms", ["lora", "lora_resume"]),
    ("later", later, "tms", ["first", "later", "unchanged", "resume"]),
    ("many", many, "tms", ["pause500", "resume500"]),
]
