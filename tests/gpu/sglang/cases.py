# SPDX-License-Identifier: Apache-2.0
"""cases.py NAME: one case with a real SGLang. Writes its numbers to $CASE_RESULT, or ends with a failure."""
import concurrent.futures
import itertools
import os
import time

from engine import FOLDER, Watched
from engine_case import GIB, LOWTIDE, MIB, gib, lowtide, play, refusal, require, status
from server import outside  # noqa: F401  a case

TAGS = ("weights", "kv_cache")
CONTEXT = 3 * GIB  # what a process holds of the device beside its tags: contexts, libraries, the caching allocator's rest


def all_gone(when):
    require(all(resident == 0 for resident, _ in status().values()), f"{when}, status says {status()}")


def whole():
    """Everything, with weights copied to the host. Also the row of torch_memory_saver's own."""
    engine = Watched(enable_weights_cpu_backup=True)
    cycles = {}
    for name in ("first", "second", "third"):
        cycles[name] = engine.cycle()
        require(cycles[name]["freed"] > engine.held - CONTEXT, f"{name}: {cycles[name]['freed']} of {engine.held} bytes freed")
        engine.same_answers(f"after the {name} release")
    if LOWTIDE:
        engine.release()
        all_gone("released")
        require(status()["weights"][1] > 3 * GIB, f"released, status says {status()}")
        engine.resume()
        engine.same_answers("after the last release")
    return cycles


def weights_dropped():
    """Without copies a release leaves nothing of the weights, on the device or the host, and they are loaded again."""
    engine = Watched()
    before, cycles = engine.first_weights(), {}
    for name in ("first", "second"):
        cycles[name] = engine.cycle()
        require(engine.first_weights() != before, "weights without a copy are still there after a release")
        engine.load_weights()
        require(engine.first_weights() == before, "other weights than were loaded")
        engine.same_answers(f"after the {name} release and update_weights_from_disk")
    return cycles


def tags_one_by_one():
    """A training step's stages: each tag goes and comes in either order, with an update of weights between."""
    engine = Watched(enable_weights_cpu_backup=True)
    awake = status()
    require(all(awake[tag][0] > GIB for tag in TAGS), f"status says {awake}")
    for going, coming in itertools.product((TAGS, TAGS[::-1]), repeat=2):
        for number, tag in enumerate(going):
            before, size = engine.free(), awake[tag][0]
            engine.release(tag)
            require(engine.free() - before > 0.98 * size, f"{tag} of {size} bytes freed {engine.free() - before}")
            require(status()[going[1]][0] == (0 if number else awake[going[1]][0]), f"{tag} released, status says {status()}")
        for tag in coming:
            engine.resume(tag)
            require(status()[tag][0] == awake[tag][0], f"{tag} resumed, status says {status()}")
            if tag == "weights":
                engine.load_weights()
        engine.same_answers(f"after {going} went and {coming} came")
    other_head(engine)
    return ", ".join(f"{tag} {gib(resident)}" for tag, (resident, _) in sorted(awake.items()))


def other_head(engine):
    """Tensors of this process's device memory, as a trainer's, written over the engine's between the tags' resumes."""
    import safetensors
    with safetensors.safe_open(FOLDER / "model" / "model.safetensors", "pt") as file:
        head = file.get_tensor("lm_head.weight").cuda()
    for weight, same in ((head.roll(1, 0), False), (head, True)):
        engine.release()
        engine.resume("weights")
        done = engine.llm.update_weights_from_tensor([("lm_head.weight", weight)])
        require(done[0], f"update_weights_from_tensor: {done[1]}")
        engine.resume("kv_cache", "cuda_graph")
        require((engine.answers() == engine.expected) == same, f"the head that was written from a tensor is {'not ' if same else ''}there")


def graphs():
    """The memory of captured graphs goes too. Also a row of torch_memory_saver's own."""
    os.environ["SGLANG_MEMORY_SAVER_CUDA_GRAPH"] = "1"
    engine = Watched(enable_weights_cpu_backup=True)
    if LOWTIDE:
        require(status().get("cuda_graph", (0, 0))[0] > MIB, f"status says {status()}")
    cycles = {}
    for name in ("first", "second"):
        cycles[name] = engine.cycle()
        engine.same_answers(f"after the {name} release")
    engine.release("cuda_graph")
    if LOWTIDE:
        require(status()["cuda_graph"][0] == 0, f"cuda_graph released, status says {status()}")
    engine.resume("cuda_graph")
    engine.same_answers("after a release of the graphs alone")
    return cycles


def adapters():
    """One slot for three: every other name is an eviction and an activation."""
    paths = {f"a{number}": str(FOLDER / f"adapter{number}") for number in (1, 2)}
    engine = Watched(enable_weights_cpu_backup=True, enable_lora=True, lora_paths=paths, max_loras_per_batch=1, max_loaded_loras=2)
    expected = {name: engine.answers(name) for name in (None, "a1", "a2")}
    require(len({str(each) for each in expected.values()}) == 3, "the adapters change nothing")

    def same(name, when):
        require(engine.answers(name) == expected[name], f"{name} says something else {when}")

    for name in ("a1", "a2"):
        same(name, "after an eviction")
    tags = status()
    require(tags.get("lora", (0, 0))[0] > MIB, f"status says {tags}")
    for _ in range(2):
        engine.cycle()
        for name in ("a2", "a1", None, "a2"):  # the first is in the slot, the others are not
            same(name, "after a release")
    return f"lora {gib(tags['lora'][0])}"


def no_room():
    """Another process has the device when memory is wanted back: nothing is lost by a refusal, and waiting helps."""
    engine = Watched(enable_weights_cpu_backup=True)
    lowtide("pause")
    all_gone("paused")
    engine.other.ask(f"fill {engine.free() - GIB}")
    said = refusal("resume")
    all_gone("after a refusal")
    engine.other.ask("release")
    lowtide("resume")
    engine.same_answers("after a refusal and a resume")

    engine.release()
    engine.other.ask(f"fill {engine.free() - GIB}")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        resumed = pool.submit(engine.resume)
        time.sleep(4)
        require(not resumed.done(), "SGLang resumed without room")
        engine.other.ask("release")
        seconds = resumed.result(60)
    engine.same_answers("after a resume that waited for room")
    return f"SGLang's resume waited {seconds:.1f} s for room; `lowtide resume` said: {said[:200]}"


if __name__ == "__main__":
    play(globals())
