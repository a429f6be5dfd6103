# SPDX-License-Identifier: Apache-2.0
"""Two processes for which the device has no room together, and how soon one has what the other left."""
import os
import statistics
import sys
import time

from director import GIB, MIB, SIMULATED, Failure, Pair, Refusal, in_mib, keep_table, main, require, take_turn
from run_real_programs import OtherProcess

RULES = """
mode = "enforce"
[device]
wait = "20s"
headroom = "0"
[tag.weights]
role = "engine"
pause = "offload"
[tag.optim]
role = "trainer"
pause = "offload"
[[rule]]
on = "resume weights"
kind = "memory"
needs_paused = ["optim"]
[[rule]]
on = "resume optim"
kind = "memory"
needs_paused = ["weights"]
"""
HELD = 64 * MIB if SIMULATED else GIB
SMALL = 8 * MIB
CYCLES = int(os.environ["POLICY_CYCLES"])
WAKES = 20
AT_MOST_SECONDS = 0.1
ENGINE_HAS, TRAINER_HAS = "engine has the device", "trainer has the device"


def fill_but(meter, size):
    """A third process that leaves so much, now that the two have their contexts."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("POLICY_")}
    other = OtherProcess(sys.executable, clean)
    other.ask("fill 1")
    other.ask("release")
    other.ask(f"fill {meter.free() - size}")
    return other


def until_it_waits(player, before):
    """`before`: its waits so far."""
    for _ in range(1000):
        if player.status()["policy"]["waits"] > before:
            return
        time.sleep(0.005)
    raise Failure(f"the {player.role} does not wait")


def cycle(pair, is_first):
    """The one that comes asks before the other leaves."""
    for comes, comes_with, leaves, leaves_with in ((pair.engine, "weights", pair.trainer, "optim"),
                                                   (pair.trainer, "optim", pair.engine, "weights")):
        comes.ask("resume", comes_with)
        if is_first and comes.under_lowtide:
            until_it_waits(comes, 0)
        time.sleep(0.001)
        leaves.do("pause", leaves_with)
        comes.answer()
        comes.do("check")


def crowded(kind, cycles, **environment):
    """(track, cycles that went well, what the next one met)."""
    with Pair(RULES, kind, kind, **environment) as pair:
        track, = take_turn(pair, f"{kind}: {cycles} cycles")
        pair.engine.do("hold", "weights", HELD)
        pair.engine.do("pause", "weights")
        pair.trainer.do("hold", "optim", HELD)
        other = fill_but(track.meter, HELD // 2)
        track.look(TRAINER_HAS)
        met, done = None, 0
        try:
            while done < cycles:
                cycle(pair, done == 0)
                done += 1
            track.look(TRAINER_HAS)
        except Refusal as refusal:
            met = refusal
        waits = [player.status()["policy"]["waits"] if player.under_lowtide else 0 for player in pair.players]
        other.close()
        return track, done, met, sum(waits)


def cycles():
    track, done, met, waits = crowded("holder", CYCLES)
    require(met is None and done == CYCLES, f"cycle {done}: {met}")
    require(waits > CYCLES // 10, f"nobody waited for the other: {waits} waits in {done} cycles")
    keep_table("Two processes, and room for one", track)
    return f"{CYCLES} cycles of twice {in_mib(HELD)}, {in_mib(HELD // 2)} of room beside one; 0 out of memory, {waits} waits"


def cycles_by_hand():
    """The same script without Lowtide."""
    _, done, met, _ = crowded("by_hand", CYCLES, POLICY_BY_HAND="1")
    require(met is not None and "cuMemAlloc_v2 failed with 2" in met.text, f"{done} cycles, and it ended with {met}")
    return f"out of memory in cycle {done + 1}: {met.text}"


def wakes():
    """From the moment that the pause returned to the moment that the resume that waited for it did."""
    with Pair(RULES, "holder", "holder") as pair:
        take_turn(pair)
        trainer, engine = pair.trainer, pair.engine
        engine.do("hold", "weights", SMALL)
        engine.do("pause", "weights")
        trainer.do("hold", "optim", SMALL)
        taken, costs = [], {}
        for number in range(WAKES):
            engine.ask("resume", "weights")
            until_it_waits(engine, number)
            trainer.do("pause", "optim")
            left = trainer.said["ended"]
            engine.answer()
            taken.append(engine.said["ended"] - left)
            engine.do("pause", "weights")
            trainer.do("resume", "optim")
        require(SIMULATED or max(taken) <= AT_MOST_SECONDS, f"the worst wake takes {max(taken)} s")
        trainer.do("pause", "optim")
        for mode in ("off", "enforce"):
            pair.mode(mode)
            engine.do("cycles_of", 20)
            costs[mode] = statistics.median(engine.do("cycles_of", 200))
        return (f"{WAKES} wakes: median {1e3 * statistics.median(taken):.2f} ms, worst {1e3 * max(taken):.2f} ms; pause and resume of one "
                f"block: {costs['off']:.0f} us with mode off, {costs['enforce'] - costs['off']:+.0f} us with enforce")


if __name__ == "__main__":
    main(globals())
