# SPDX-License-Identifier: Apache-2.0
"""What an update leaves out, and loops of frameworks that never heard of updates."""
from director import Pair, breaches, in_mib, keep_table, main, require, rule_of, take_turn

LEARN = """
mode = "enforce"
[tag.weights]
role = "engine"
pause = "discard"
refill = "sync"
"""
SYNC, GENERATE, TRAIN = "sync", "generate", "train"
CYCLES = 3


def learnt():
    """The update writes neither a frozen submodule nor the rotary tables."""
    with Pair(LEARN) as pair:
        track, = take_turn(pair, "enforce, coverage learn")
        trainer, engine = pair.trainer, pair.engine
        whole, kept, residues = engine.tag("weights")["bytes_resident"], [], []
        for number in range(CYCLES):
            for tag in ("kv_cache", "weights"):
                track.do(TRAIN, engine, "pause", tag)
            kept.append(engine.tag("weights")["bytes_backup"])
            track.do(TRAIN, trainer, "step")
            trainer.do("publish", 0)
            track.do(SYNC, engine, "resume", "weights")
            track.do(SYNC, engine, "update_partly", number + 1, 0)
            residues.append(engine.tag("weights")["bytes_residue"])
            track.do(GENERATE, engine, "resume", "kv_cache")
            answered = track.do(GENERATE, engine, "rollout")
            require(answered == engine.do("expected", 0, True), f"cycle {number}: the logits are not those of a run that never paused")
        least = engine.do("left_out")
        keep_table("Updates that leave out a frozen submodule and the rotary tables", track)
        require(kept[0] >= 0.99 * whole, f"the first pause kept {kept[0]} of {whole} bytes")
        require(least <= residues[-1] < whole // 2, f"the residue is {residues}, {least} bytes were left out of {whole}")
        require(max(kept[1:]) < whole // 2, f"later pauses keep {kept[1:]} bytes on the host")
        return (f"{in_mib(least)} of {in_mib(whole)} left out, residue {in_mib(residues[-1])}; on the host: first {in_mib(kept[0])}, "
                f"later {in_mib(kept[-1])}; logits of {CYCLES} cycles equal")


def leave(track, player, *tags):
    for tag in tags:
        track.do(TRAIN, player, "pause", tag)


def verl(track, slot):
    """Weights come back while the trainer is there, and the trainer leaves after the update."""
    engine, trainer = track.pair.engine, track.pair.trainer
    leave(track, engine, "kv_cache", "weights")
    track.do(TRAIN, trainer, "step")
    track.do(SYNC, engine, "resume", "weights")
    trainer.do("publish", slot)
    track.do(SYNC, engine, "load", slot)
    leave(track, trainer, "params", "optim")
    track.do(SYNC, engine, "resume", "kv_cache")
    answered = track.do(GENERATE, engine, "rollout")
    for tag in ("params", "optim"):
        track.do(TRAIN, trainer, "resume", tag)
    return answered


def skyrl(track, slot):
    """The optimizer leaves before the weights come, the parameters after they are sent; all of the engine leaves in one call."""
    engine, trainer = track.pair.engine, track.pair.trainer
    track.do(TRAIN, engine, "pause")
    track.do(TRAIN, trainer, "step")
    leave(track, trainer, "optim")
    track.do(SYNC, engine, "resume", "weights")
    trainer.do("publish", slot)
    track.do(SYNC, engine, "load", slot)
    leave(track, trainer, "params")
    track.do(SYNC, engine, "resume", "kv_cache")
    answered = track.do(GENERATE, engine, "rollout")
    for tag in ("params", "optim"):
        track.do(TRAIN, trainer, "resume", tag)
    return answered


def slime(track, slot):
    """All of the trainer leaves before anything comes; weights go out of its parked parameters."""
    engine, trainer = track.pair.engine, track.pair.trainer
    track.do(TRAIN, engine, "pause")
    track.do(TRAIN, trainer, "step")
    track.do(TRAIN, trainer, "pause")
    track.do(SYNC, engine, "resume", "weights")
    trainer.do("publish", slot)
    track.do(SYNC, engine, "load", slot)
    track.do(SYNC, engine, "resume", "kv_cache")
    answered = track.do(GENERATE, engine, "rollout")
    track.do(TRAIN, trainer, "resume")
    return answered


def unconfigured(loop, trainer, engine, broken):
    """Two steps of a framework's loop without any configuration. `broken`: built-in rules, and how often in a step."""
    with Pair(trainer=trainer, engine=engine) as pair:
        track, = take_turn(pair, "observe, no configuration")
        if engine == "engine":
            pair.engine.do("set", "tag.weights.pause", "discard")  # as the framework's sleep says it
        answers = [loop(track, slot) for slot in (0, 1)]
        told = breaches(pair.engine)
        policy = pair.engine.status()["policy"]
        expected = [pair.engine.do("expected", slot) for slot in (0, 1)]
        keep_table(f"A loop like {loop.__name__}'s", track)
        require(policy["mode"] == "observe" and breaches(pair.trainer) == {}, f"the trainer's breaches: {breaches(pair.trainer)}")
        require(answers == expected and answers[0] != answers[1], "the logits are not those of a run that was never paused")
        require(told == {on: 2 * times for on, times in broken.items()}, f"status tells of {told}")
        lines = [f"{on} {times} times: {rule_of(pair.engine.status(), on, 0)['last_breach']}" for on, times in told.items()]
        return f"2 steps, logits equal; broken: {'; '.join(lines) or 'nothing'}"


STALE_WEIGHTS = {"resume kv_cache": 1}


def like_verl():
    return unconfigured(verl, "fsdp2", "engine", STALE_WEIGHTS)


def like_skyrl():
    return unconfigured(skyrl, "adamw", "engine", STALE_WEIGHTS)


def like_slime():
    return unconfigured(slime, "flat", "saver_engine", {})


if __name__ == "__main__":
    main(globals())
