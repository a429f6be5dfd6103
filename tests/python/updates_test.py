# SPDX-License-Identifier: Apache-2.0
"""Updates of a tag's content from Python, on the simulated GPU; each case in a process of its own."""
import json
import os
import subprocess
import sys

from support import MIB, PACKAGE, Played, main, raises

sys.path.insert(0, str(PACKAGE))

import lowtide  # noqa: E402


def allocate(device, tag, size):
    with lowtide.scope(tag):
        return device.allocate(size)


def status():
    command = [PACKAGE / "lowtide" / "bin" / "lowtide", "status", str(os.getpid())]
    told = json.loads(subprocess.run([*command, "--json"], check=True, capture_output=True, text=True).stdout)
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return told["processes"][0]["tags"][0], shown


def committing(device):
    block = allocate(device, "weights", 4 * MIB)
    lowtide.set("tag.weights.pause", "discard")
    lowtide.set("tag.weights.coverage", "enforce")
    lowtide.pause("weights")
    with raises(lowtide.RefusedError) as caught:
        lowtide.begin_update("weights", 7)
    assert "resume weights" in str(caught.exception), caught.exception
    lowtide.resume("weights")
    assert lowtide.info("weights").freshness == "stale" and lowtide.info("weights").stale == 4 * MIB
    with raises(lowtide.RefusedError) as caught:
        with lowtide.begin_update("weights", 7):
            device.write(block, os.urandom(3 * MIB))
            with raises(lowtide.RefusedError):
                lowtide.pause("weights")
    assert "1048576 bytes" in str(caught.exception), caught.exception
    assert lowtide.info("weights").freshness == "stale"
    with lowtide.begin_update("weights", 7):
        device.write(block, os.urandom(4 * MIB))
    lowtide.commit_update("weights", 7)  # again
    info = lowtide.info("weights")
    assert (info.freshness, info.version, info.updates, info.repeated_calls) == ("valid", 7, 1, 1), info
    told, shown = status()
    assert (told["freshness"], told["version"], told["updating_to"]) == ("valid", 7, None), told
    assert told["updates"] == {"committed": 1, "aborted": 0, "refused": 1, "repeated": 1}, told
    assert "CONTENT" in shown and "valid" in shown, shown


def impossible_versions(device):
    allocate(device, "weights", 4 * MIB)
    for version in (-1, 2 ** 64):
        for call in (lowtide.begin_update, lowtide.commit_update, lowtide.mark_valid):
            with raises(lowtide.InvalidError):
                call("weights", version)
    with lowtide.begin_update("weights", 2 ** 64 - 1):
        pass
    assert lowtide.info("weights").version == 2 ** 64 - 1


def aborting(device):
    allocate(device, "weights", 4 * MIB)
    with raises(KeyError):
        with lowtide.begin_update("weights", 1):
            assert lowtide.info("weights").freshness == "syncing"
            raise KeyError
    assert lowtide.info("weights").freshness == "stale"
    assert "stale" in status()[1]
    lowtide.mark_valid("weights", 2)
    assert (lowtide.info("weights").freshness, lowtide.info("weights").version) == ("valid", 2)


def learning(device):
    block = allocate(device, "weights", 4 * MIB)
    lowtide.set("tag.weights.pause", "discard")
    lowtide.set("tag.weights.coverage", "learn")
    rotary = os.urandom(MIB)
    device.write(block + 3 * MIB, rotary)
    for version in (1, 2, 3):
        report = lowtide.pause("weights")
        assert (report.parked, report.discarded) == (0, 4 * MIB), report
        assert lowtide.info("weights").backup == (4 if version == 1 else 1) * MIB
        lowtide.resume("weights")
        data = os.urandom(3 * MIB)
        with lowtide.begin_update("weights", version):
            device.write(block, data)
        assert device.read(block, 4 * MIB) == data + rotary
        assert lowtide.info("weights").residue == MIB


def refilling(device):
    block = allocate(device, "weights", 2 * MIB)
    lowtide.pause("weights")
    with lowtide.begin_update("weights", 1):
        lowtide.write_paused(block, b"n" * (2 * MIB))
    assert lowtide.info("weights").version == 1
    lowtide.drop_backup("weights")
    assert lowtide.info("weights").freshness == "stale" and lowtide.info("weights").backup == 0
    lowtide.resume("weights")
    assert lowtide.info("weights").freshness == "stale"


class Updates(Played):
    def test_what_an_update_leaves_out_is_refused_and_named(self):
        self.play(committing, preload="PRELOAD")

    def test_an_exception_aborts_the_update_that_it_leaves(self):
        self.play(aborting, preload="PRELOAD")

    def test_a_version_that_is_none_is_not_taken_for_another(self):
        self.play(impossible_versions, preload="PRELOAD")

    def test_what_updates_do_not_write_is_put_back(self):
        self.play(learning, preload="PRELOAD")

    def test_a_parked_tag_is_updated_by_writing_its_backup(self):
        self.play(refilling, preload="PRELOAD")


if __name__ == "__main__":
    main(globals())
