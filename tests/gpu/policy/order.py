# SPDX-License-Identifier: Apache-2.0
"""Who leaves before who comes: the trainer before the engine's weights; and pausing off, where nobody leaves."""
from director import SMALLEST, Pair, breaches, close, in_mib, keep_table, main, require, rule_of, take_turn

TAGS = """
[tag.weights]
role = "engine"
pause = "discard"
refill = "sync"
[tag.params]
role = "trainer"
pause = "offload"
[tag.grads]
role = "trainer"
pause = "offload"
[tag.optim]
role = "trainer"
pause = "offload"
"""
ORDER = TAGS + """
[[rule]]
on = "resume weights"
kind = "order"
needs_paused = ["params", "grads", "optim"]
[[rule]]
on = "resume kv_cache"
needs_active = ["weights"]
"""
TRAIN, EARLY, HAND_OVER, GENERATE, LEAVE = "train", "weights asked for too early", "hand-over", "generate", "engine leaves"


class Loop:
    """A step of RL, its hand-over in either order."""

    def __init__(self, track, slot):
        self.track = track
        self.trainer, self.engine = track.pair.trainer, track.pair.engine
        self.slot = slot

    def trainer_leaves(self):
        self.track.do(HAND_OVER, self.trainer, "pause")

    def weights_come(self):
        self.track.do(HAND_OVER, self.engine, "resume", "weights")
        self.track.do(HAND_OVER, self.trainer, "publish", self.slot)  # from where the parameters are, parked or not
        self.track.do(HAND_OVER, self.engine, "update", 1 + self.slot, self.slot)

    def generate(self):
        self.track.do(GENERATE, self.engine, "resume", "kv_cache")
        return self.track.do(GENERATE, self.engine, "rollout")

    def engine_leaves(self):
        self.track.do(LEAVE, self.engine, "pause", "kv_cache")
        self.track.do(LEAVE, self.engine, "pause", "weights")

    def trainer_comes(self):
        self.track.do(TRAIN, self.trainer, "resume")

    def finish(self, probe):
        """The engine's answer is that of one that was never paused, and the trainer has lost nothing."""
        answered = self.generate()
        self.engine_leaves()
        self.trainer_comes()
        require(self.trainer.do("probe") == probe, f"{self.track.name}: the trainer is not what it was")
        require(answered == self.engine.do("expected", self.slot), f"{self.track.name}: the logits are not the new weights'")


def weights_come_first(track):
    """Under observe: done, and told."""
    loop = Loop(track, 0)
    probe = loop.trainer.do("probe")
    loop.weights_come()
    loop.trainer_leaves()
    loop.finish(probe)
    tags = loop.trainer.do("tags")
    require(breaches(loop.engine) == {"resume engine.weights": len(tags)}, f"breaches: {breaches(loop.engine)}, of {tags}")
    last = rule_of(loop.engine.status(), "resume engine.weights")["last_breach"]
    require(f"process {loop.trainer.pid} (trainer) has it ACTIVE" in last, f"the trainer is not named: {last}")


def trainer_leaves_first(track):
    """Under enforce, after the other order was tried."""
    loop = Loop(track, 1)
    loop.track.do(TRAIN, loop.trainer, "step")
    probe = loop.trainer.do("probe")
    used = track.meter.used()
    said = loop.engine.refused("RefusedError", "resume", "weights")
    track.look(EARLY)
    require("rule 1 (resume engine.weights)" in said and f"process {loop.trainer.pid} (trainer)" in said, f"who is in the way? {said}")
    require(abs(track.meter.used() - used) <= SMALLEST // 8, f"a refusal took {track.meter.used() - used} bytes")
    tag = loop.engine.tag("weights")
    require(tag["bytes_resident"] == 0 and tag["bytes_parked"] > 0, f"after a refusal: {tag}")
    loop.trainer_leaves()
    loop.weights_come()
    loop.finish(probe)


def trainer(kind):
    with Pair('mode = "observe"' + ORDER, kind) as pair:
        first, second = take_turn(pair, "weights come first (observe)", "trainer leaves first (enforce)")
        pair.engine.do("pause", "kv_cache")
        pair.engine.do("pause", "weights")
        first.do(TRAIN, pair.trainer, "step")
        weights_come_first(first)
        pair.mode("enforce")
        trainer_leaves_first(second)
        shard = pair.trainer.bytes_of(*pair.trainer.do("tags"))
        keep_table(f"Hand-over with a trainer of kind {kind}", first, second)
        fall = first.peak(HAND_OVER) - second.peak(HAND_OVER)
        require(close(fall, shard), f"the peak falls by {fall}, the trainer's shard is {shard}")
        return f"the peak of the hand-over falls by {in_mib(fall)}, the trainer's shard is {in_mib(shard)}; the other order is refused"


def adamw():
    return trainer("adamw")


def fsdp2():
    return trainer("fsdp2")


def flat():
    return trainer("flat")


def kept(report):
    return report["kept"] > 0 and (report["parked"], report["discarded"]) == (0, 0)


def left(report):
    return report["kept"] == 0 and report["parked"] + report["discarded"] > 0


def three_rollouts(mode, is_right, falls, **environment):
    """verl's loop. A weight update is one whether or not anything left before."""
    with Pair(f'mode = "{mode}"' + ORDER, **environment) as pair:
        track, = take_turn(pair, f"mode {mode}" + "".join(f", {name}={value}" for name, value in environment.items()))
        loop = Loop(track, 0)
        answers = [track.do(GENERATE, pair.engine, "rollout")]
        for slot in (0, 1):
            loop.slot, used = slot, track.meter.used()
            for player, tag in ((pair.engine, "kv_cache"), (pair.engine, "weights")):
                report = track.do(LEAVE, player, "pause", tag)
                require(is_right(report), f"a pause of {tag} with pausing off, by {track.name}: {report}")
            require((used - track.meter.used() > SMALLEST) == falls, f"{used - track.meter.used()} bytes left the device")
            track.do(TRAIN, pair.trainer, "step")
            loop.weights_come()
            answers.append(loop.generate())
        expected = [pair.engine.do("expected", slot) for slot in (None, 0, 1)]
        keep_table("Pausing off", track)
        require(answers == expected, f"rollouts {[one == other for one, other in zip(answers, expected)]} are their weights'")
        require(len(set(answers)) == 3, "two rollouts are the same")
        return f"3 rollouts with 2 updates between, each of its weights; version {pair.engine.do('info', 'weights')['version']}"


def backend_off():
    return three_rollouts("enforce", kept, False, LOWTIDE_BACKEND="off")


def mode_off():
    """Nobody looks at rules: the trainer stays, and the engine comes and goes all the same."""
    return three_rollouts("off", left, True)


if __name__ == "__main__":
    main(globals())
