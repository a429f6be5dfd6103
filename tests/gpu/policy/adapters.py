# SPDX-License-Identifier: Apache-2.0
"""LoRA: copies of an adapter that nobody reads meanwhile, and adapters over base weights that are not there."""
import os
import statistics

from director import GIB, MIB, SIMULATED, Pair, close, in_mib, keep_table, main, require, take_turn

TAGS = """
mode = "enforce"
[tag.weights]
role = "engine"
pause = "discard"
refill = "sync"
[tag.lora]
role = "engine"
pause = "offload"
[tag.lora_stage]
role = "engine"
pause = "offload"
"""
COPIES = 48 * MIB if SIMULATED else int(float(os.environ["POLICY_ADAPTER_GIB"]) * GIB) // (48 * MIB) * 48 * MIB
PIECES = 24
STEPS = 4
SYNC, GENERATE, TRAIN = "sync", "generate", "train"
AT_MOST_SECONDS = 0.3


def steps(track, tag):
    """A new adapter in each step. Its copies stay on the device, or leave with `tag` once the slots have it."""
    engine, trainer = track.pair.engine, track.pair.trainer
    added = []
    for number in range(1, STEPS + 1):
        track.do(SYNC, engine, "pack_adapter", number, COPIES, PIECES, tag)
        engine.do("drop_adapters", 1)
        if tag:
            report = track.do(SYNC, engine, "pause", tag)
            require(report["parked"] == COPIES, f"step {number}: {report}")
            added.append(engine.said["ended"] - engine.said["began"])
        track.do(GENERATE, engine, "rollout")
        track.do(TRAIN, trainer, "step")
    return added


def repeated(engine):
    """Seconds of one more pause of what is parked, and that nothing was done."""
    before = engine.do("info", "lora_stage")
    seconds = engine.do("pause_again", "lora_stage", 100)
    after = engine.do("info", "lora_stage")
    require(after == {**before, "repeated_calls": after["repeated_calls"]}, f"a repeated pause did something: {before}, {after}")
    engine.do("read_parked_adapter", STEPS)
    return seconds


def copies():
    with Pair(TAGS) as pair:
        stay, leave = take_turn(pair, "copies on the device", "copies in lora_stage")
        steps(stay, None)
        pair.engine.do("drop_adapters", 0)
        added = steps(leave, "lora_stage")
        again = repeated(pair.engine)
        keep_table(f"Copies of adapters, {in_mib(COPIES)}", stay, leave)
        falls = [stay.peak(phase) - leave.peak(phase) for phase in (SYNC, GENERATE, TRAIN)]
        require(all(close(fall, COPIES) for fall in falls), f"the peaks fall by {falls}, the copies are {COPIES}")
        later = statistics.median(added[1:])
        require(SIMULATED or later < AT_MOST_SECONDS, f"a pause of {COPIES} bytes takes {added} s")
        require(SIMULATED or 20 * again < later, f"a repeated pause takes {again} s, the first one {later}")
        fallen = ", ".join(map(in_mib, falls))
        return (f"{in_mib(COPIES)} of copies; the peaks of sync, generate and train fall by {fallen}; a pause adds {later:.3f} s "
                f"(the first {added[0]:.3f}), one more {1e6 * again:.0f} us; read while parked")


def base_discarded():
    with Pair(TAGS) as pair:
        track, = take_turn(pair, "enforce")
        trainer, engine = pair.trainer, pair.engine
        engine.do("add_adapter")
        engine.do("update_adapter", 1, 11)
        first = track.do(GENERATE, engine, "rollout")
        for tag in ("kv_cache", "weights"):
            track.do(SYNC, engine, "pause", tag)
        trainer.do("publish", 0)
        track.do(SYNC, engine, "resume", "weights")
        said = engine.refused("RefusedError", "update_adapter", 2, 12)
        require("(commit engine.lora) needs engine.weights written: this process (engine) has it STALE" in said, f"the reason? {said}")
        engine.do("abort_update", "lora")
        track.do(SYNC, engine, "update", 2, 0)
        track.do(SYNC, engine, "update_adapter", 2, 12)
        track.do(GENERATE, engine, "resume", "kv_cache")
        second = track.do(GENERATE, engine, "rollout")
        keep_table("An adapter's update after its base was dropped", track)
        require(second == engine.do("expected", 0, False, 12), "the logits are not those of a run that was never paused")
        require(first == engine.do("expected", None, False, 11) and first != second, "the first logits are not the first adapter's")
        return f"refused: {said}"


def never_written():
    """A base loaded as a dummy, and an adapter that is registered and never loaded."""
    needs = '[[rule]]\non = "resume kv_cache"\nneeds_active = ["lora"]\n'
    stale = TAGS.replace('role = "engine"', 'role = "engine"\ninitial = "stale"')
    with Pair(stale + needs) as pair:
        track, = take_turn(pair, "enforce")
        trainer, engine = pair.trainer, pair.engine
        engine.do("add_adapter")
        track.do(SYNC, engine, "pause", "kv_cache")
        dummy = engine.refused("RefusedError", "resume", "kv_cache")
        require("needs engine.weights written: this process (engine) has it STALE" in dummy, f"the dummy base: {dummy}")
        trainer.do("publish", 0)
        track.do(SYNC, engine, "update", 1, 0)
        missing = engine.refused("RefusedError", "resume", "kv_cache")
        require("needs engine.lora active: this process (engine) has it STALE" in missing, f"the missing adapter: {missing}")
        track.do(SYNC, engine, "update_adapter", 1, 13)
        track.do(GENERATE, engine, "resume", "kv_cache")
        answered = track.do(GENERATE, engine, "rollout")
        keep_table("The first rollout of a dummy base and of an adapter that is missing", track)
        require(answered == engine.do("expected", 0, False, 13), "the logits are not those of a run that was never paused")
        return f"refused: {dummy} | refused: {missing}"


if __name__ == "__main__":
    main(globals())
