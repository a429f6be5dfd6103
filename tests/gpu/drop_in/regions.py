# SPDX-License-Identifier: Apache-2.0
"""Regions, tags, pause and resume: what every user of torch_memory_saver does."""
import threading

from support import (
    Held,
    NotOffered,
    expect_gone,
    free_bytes,
    in_mib,
    main,
    other_process,
    require,
    states,
    tags_seen_by_the_command,
)


def simple(saver):
    """The address stays, the memory is gone in between for other processes too; the content may be anything."""
    with saver.region("scratch"):
        held = Held(256)
    outside = Held(64)
    other = other_process()
    before, seen_before = free_bytes(), other.free()
    saver.pause("scratch")
    freed = expect_gone(before, held)
    seen = other.free() - seen_before
    require(seen >= 0.99 * held.size, f"another process sees {seen} of {held.size} bytes")
    outside.check("while paused")
    saver.resume("scratch")
    other.close()
    held.check_usable("after the resume")
    outside.check("after the resume")
    return f"{in_mib(freed)} of 256 freed, another process sees {in_mib(seen)}"


def default_tag(saver):
    """Without names: region(), pause(), resume()."""
    with saver.region(enable_cpu_backup=True):
        held = Held(64)
    before = free_bytes()
    saver.pause()
    freed = expect_gone(before, held)
    saver.resume()
    held.check("after the resume")
    return f"{in_mib(freed)} of 64 freed"


def two_tags_in_any_order(saver):
    held = {}
    for tag, mib in (("a", 96), ("b", 160)):
        with saver.region(tag, enable_cpu_backup=True):
            held[tag] = Held(mib)
    orders = [("a", "b", "a", "b"), ("a", "b", "b", "a"), ("b", "a", "a", "b"), ("b", "a", "b", "a")]
    for first, second, third, fourth in orders:
        before = free_bytes()
        saver.pause(first)
        expect_gone(before, held[first], what=f"pause of {first}")
        held[second].check(f"{second} while {first} is paused")
        saver.pause(second)
        expect_gone(before, *held.values(), what="both pauses")
        saver.resume(third)
        held[third].check(f"{third}, which came back first")
        saver.resume(fourth)
        held[fourth].check(f"{fourth}, which came back last")
    saver.pause("a")
    saver.pause()
    saver.resume("b")
    held["b"].check("b, of a pause of all while a was paused")
    saver.resume()
    held["a"].check("a, of a resume of all while b was resident")
    return f"{len(orders) + 1} orders"


def nested(saver):
    """A region in a region with another tag: each tensor goes with the innermost."""
    with saver.region("outer", enable_cpu_backup=True):
        first = Held(48)
        with saver.region("inner"):
            second = Held(80)
        third = Held(48)
    before = free_bytes()
    saver.pause("inner")
    expect_gone(before, second, what="pause of the inner tag")
    first.check("outer, allocated before the inner region")
    third.check("outer, allocated after the inner region")
    saver.resume("inner")
    second.check_usable("inner after its resume")
    before = free_bytes()
    saver.pause("outer")
    expect_gone(before, first, third, what="pause of the outer tag")
    second.check("inner while outer is paused")
    saver.resume("outer")
    first.check("outer after its resume")
    third.check("outer after its resume")


def entered_again(saver):
    """A region that is entered several times holds what was allocated in all of them."""
    held = []
    for _ in range(4):
        with saver.region("kv", enable_cpu_backup=True):
            held.append(Held(24))
    before = free_bytes()
    saver.pause("kv")
    freed = expect_gone(before, *held)
    saver.resume("kv")
    for each in held:
        each.check("after the resume")
    return f"{in_mib(freed)} of {24 * len(held)} freed"


def entered_while_entered(saver):
    try:
        with saver.region("kv", enable_cpu_backup=True):
            held = [Held(24)]
            with saver.region("kv", enable_cpu_backup=True):
                held.append(Held(24))
            held.append(Held(24))
    except RuntimeError as error:
        if "already recording" in str(error):
            raise NotOffered("PyTorch refuses to enter a pool that is entered") from None
        raise
    before = free_bytes()
    saver.pause("kv")
    expect_gone(before, *held)
    saver.resume("kv")
    for each in held:
        each.check("after the resume")


def regions_of_threads(saver):
    """A region belongs to the thread that entered it."""
    inside, finished, found = threading.Event(), threading.Event(), {}

    def other():
        with saver.region("theirs", enable_cpu_backup=True):
            found["theirs"] = Held(48)
            inside.set()
            finished.wait(30)
            found["theirs, later"] = Held(48)

    thread = threading.Thread(target=other)
    thread.start()
    require(inside.wait(30), "the thread did not get into its region")
    outside = Held(80)
    with saver.region("ours", enable_cpu_backup=True):
        ours = Held(64)
    finished.set()
    thread.join()
    before = free_bytes()
    saver.pause("theirs")
    expect_gone(before, *found.values(), what="pause of the other thread's tag")
    outside.check("allocated outside of all regions")
    ours.check("another tag")
    saver.resume("theirs")
    for name, each in found.items():
        each.check(name)


def one_state(saver):
    """However many ways lead in, there is one state, and `lowtide status` shows what regions tagged."""
    with saver.region("weights", enable_cpu_backup=True):
        held = Held(64)
    with saver.region("kv_cache"):
        Held(32)
    require(len(states()) == 1, f"states: {states()}")
    tags = tags_seen_by_the_command()
    require(tags["weights"]["bytes_resident"] >= held.size and "kv_cache" in tags, f"lowtide status says {tags}")
    saver.pause("weights")
    weights = tags_seen_by_the_command()["weights"]
    require(weights["state"] == "parked" and weights["bytes_parked"] >= held.size, f"lowtide status says {weights}")
    saver.resume("weights")
    held.check("after the resume")
    require(tags_seen_by_the_command()["weights"]["state"] == "resident", "the tag is not resident after the resume")
    return ", ".join(f"{tag} {in_mib(seen['bytes_resident'])}" for tag, seen in sorted(tags.items()))


if __name__ == "__main__":
    main(globals())
