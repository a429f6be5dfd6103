# SPDX-License-Identifier: Apache-2.0
"""The rows of the table: what each is, its goal, and what the figures say to it."""

import statistics

from jobs import GIB, MIB

MET, MISSED = "met", "MISSED"


class Judge:
    """Turns figures into cells. `link`: bytes per second, to_host and to_device."""

    def __init__(self, bench, link, failures):
        self.bench_ = bench
        self.link_ = link
        self.failures_ = failures  # (row, engine) -> why there is no figure

    def has(self, row, engine="lowtide"):
        return (row, engine) in self.bench_.figures

    def all(self, row, engine="lowtide"):
        return self.bench_.figures[row, engine]

    def total(self, row, engine="lowtide"):
        return self.bench_.totals[row, engine]

    def median(self, row, engine="lowtide"):
        return statistics.median(self.all(row, engine))

    def of_link(self, row, way, engine="lowtide"):
        return self.total(row, engine) / (self.median(row, engine) * 1e-3) / self.link_[way]

    def milliseconds(self, row, way=None, engine="lowtide"):
        """Such as 123 ms (0.97 L), and whether it was done but once."""
        median = self.median(row, engine)
        text = f"{median:.4g} ms" if median < 1e3 else f"{median:.0f} ms"
        if way and (row, engine) in self.bench_.totals:
            text += f" ({self.of_link(row, way, engine):.2f} L)"
        return text + (" once" if len(self.all(row, engine)) == 1 else "")

    def peer(self, row, way, engine):
        if self.has(row, engine):
            return self.milliseconds(row, way, engine)
        return self.failures_.get((row, engine), "")

    def tms(self, row, way=None):
        cells = [("", "tms"), ("retained ", "tms-retained")]
        return "; ".join(name + cell for name, engine in cells if (cell := self.peer(row, way, engine)))

    def vllm(self, row, way=None):
        return self.peer(row, way, "vllm")


def judged(value, ok):
    return value, MET if ok else MISSED


def at_link(way, least):
    """A goal that is a share of the link's rate."""
    return lambda judge, row: judged(judge.milliseconds(row, way), judge.of_link(row, way) >= least)


def shown(way=None):
    return lambda judge, row: (judge.milliseconds(row, way), "")


def unchanged(judge, row):
    return judged(judge.milliseconds(row), judge.median(row) <= 30)


def tenth(judge, row):
    share = judge.median(row) / judge.median("later")
    return judged(f"{judge.milliseconds(row)}, {share:.3f} of the full copy", share <= 0.18)


def eight(judge, row):
    together = statistics.median(figure[0] for figure in judge.all(row))
    alone = statistics.median(figure[1] for figure in judge.all(row))
    text = f"{together / GIB:.1f} GiB/s, one alone {alone / GIB:.1f}: {together / alone:.2f}"
    return judged(text, together / alone >= 0.9)


def beside_bare(judge, row):
    share = judge.median(row) / judge.median(row, "bare")
    return judged(f"{judge.milliseconds(row)}, {share:.2f} of bare", share <= 1.1)


def cycles(judge, row, engine="lowtide"):
    (pause, resume), *others = judge.all(row, engine)
    later_pause, later_resume = (statistics.median(times) for times in zip(*others))
    share = (later_pause + later_resume) / (pause + resume)
    text = f"first {pause:.0f} + {resume:.0f} ms, then {later_pause:.0f} + {later_resume:.0f} ms: {share:.2f}"
    return judged(text, share <= 1 / 3)


def lora(judge, row):
    size = judge.total(row)
    text = f"{judge.milliseconds(row, 'to_host')}, {size / GIB:.2f} GiB of blocks"
    return judged(text, judge.median(row) <= 300)


def peak(judge, row):
    size = judge.total(row)
    own, machine = judge.all(row)[0]
    text = f"process {own / size:.3f} n, machine {machine / size:.3f} n (n = {size / GIB:.2f} GiB)"
    return judged(text, max(own, machine) <= 1.02 * size + 256 * MIB)


def beside(judge, row, engine="lowtide"):
    worst = max(judge.all(row, engine), key=lambda answer: answer["max_ms"])
    extra = worst["max_ms"] - worst["usual_median_ms"]
    text = (
        f"at most {worst['max_ms']:.2f} ms, median {worst['median_ms']:.3f} ms, of {worst['count']:.0f} allocations "
        f"in {worst['ms']:.0f} ms; usually {worst['usual_median_ms']:.3f} ms, at most {worst['usual_max_ms']:.2f} ms; "
        f"frees at most {worst['free_max_ms']:.2f} ms, usually {worst['usual_free_max_ms']:.2f} ms"
    )
    return judged(text, extra <= 5)


def fork(judge, row):
    share = 100 * judge.median(row) / judge.total(row)
    return judged(f"{share:.2f} % ({judge.median(row) / MIB:.0f} MiB)", share < 1)


# Row, what it is, its goal, the cell and the verdict, the way over the link of the peers' figures.
ROWS = [
    ("first", "first pause, 20 GiB in 40 blocks, to host", "at least 0.5 L", at_link("to_host", 0.5), "to_host"),
    ("later", "later pause, every byte changed", "at least 0.95 L", at_link("to_host", 0.95), "to_host"),
    ("unchanged", "later pause, nothing changed", "at most 30 ms", unchanged, None),
    ("tenth", "later pause, one page in ten changed", "at most 0.18 of the full copy's time", tenth, None),
    ("resume", "resume, 20 GiB", "at least 0.90 L", at_link("to_device", 0.90), "to_device"),
    ("pause500", "pause, 10 GB in 500 blocks of 20 MiB", "at least 0.85 L", at_link("to_host", 0.85), "to_host"),
    ("resume500", "resume, 10 GB in 500 blocks of 20 MiB", "at least 0.85 L", at_link("to_device", 0.85),
     "to_device"),
    ("eight", "8 processes on one GPU pausing 4 GiB each at once", "sum at least 0.9 of one process's rate",
     eight, None),
    ("discard_pause", "discard, 60 GiB in 60 blocks, written before: pause", "within 1.1 of the bare calls",
     beside_bare, None),
    ("discard_resume", "the same: resume", "within 1.1 of the bare calls", beside_bare, None),
    ("tiny", "discard, 20 GiB in 10,000 blocks of 2 MiB (pause + resume)",
     "from the second cycle on at most a third of the first", cycles, None),
    ("lora", "6.2 GiB of LoRA in 18,432 tensors through PyTorch, to host, arena warm", "at most 300 ms",
     lora, "to_host"),
    ("lora_resume", "the same: resume", "", shown("to_device"), "to_device"),
    ("peak", "peak host memory for a backup of n bytes, 20 GiB", "at most 1.02 n + 256 MiB", peak, None),
    ("command_first_pause", "default settings, `lowtide pause PID`: first, 20 GiB", "", shown("to_host"), None),
    ("command_pause", "default settings, `lowtide pause PID`: later, every byte changed", "", shown("to_host"), None),
    ("command_resume", "default settings, `lowtide resume PID`", "", shown("to_device"), None),
    ("beside", "allocations of 2 MiB under another tag during a first pause of 8 GiB",
     "not delayed by more than 5 ms", beside, None),
    ("fork", "a fork with 20 GiB pinned whose child writes nothing", "under 1 % of the 20 GiB", fork, None),
]  # fmt: skip


def rows_of(judge, wanted):
    for row, what, goal, cell, way in ROWS:
        if row not in wanted:
            continue
        try:
            value, verdict = cell(judge, row)
        except (KeyError, ValueError, ZeroDivisionError, statistics.StatisticsError) as missing:
            value, verdict = judge_failure(judge, row, missing), "FAILED"
        peers = cycles_of_peer(judge) if row == "tiny" else judge.tms(row, way)
        bare = bare_cell(judge, row) if judge.has(row, "bare") else ""
        yield [what, goal, value, peers, judge.vllm(row, way), bare, verdict]


def bare_cell(judge, row):
    return beside(judge, row, "bare")[0] if row == "beside" else judge.milliseconds(row, engine="bare")


def cycles_of_peer(judge):
    if judge.has("tiny", "tms"):
        return cycles(judge, "tiny", "tms")[0]
    return judge.peer("tiny", None, "tms")


def judge_failure(judge, row, missing):
    return judge.peer(row, None, "lowtide") if not judge.has(row) else f"FAILED: {type(missing).__name__} {missing}"


def markdown(rows):
    head = ["work", "goal", "Lowtide", "torch_memory_saver", "vLLM's method", "the bare driver", "verdict"]
    clean = [[str(cell).replace("|", "/").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *clean]) + "\n"
