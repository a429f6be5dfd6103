# SPDX-License-Identifier: Apache-2.0
"""The Python package without PyTorch, on the simulated GPU; each case in a process of its own."""
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

from support import MIB, PACKAGE, Played, main, raises

sys.path.insert(0, str(PACKAGE))

import lowtide  # noqa: E402
from lowtide import library  # noqa: E402


def allocate(device, tag, size):
    with lowtide.scope(tag):
        return device.allocate(size)


def pausing(device):
    block = allocate(device, "weights", 8 * MIB)
    data = os.urandom(MIB)
    device.write(block + 3 * MIB, data)
    before = device.free_bytes()
    report = lowtide.pause("weights")
    assert (report.parked, report.blocks, report.free[0][1]) == (8 * MIB, 1, before + 8 * MIB), report
    assert lowtide.info("weights") == lowtide.TagInfo(blocks=1, resident=0, parked=8 * MIB, backup=8 * MIB, slack=0)
    assert lowtide.pause().blocks == 0  # again, and all
    assert lowtide.read_paused(block + 3 * MIB, MIB) == data
    lowtide.write_paused(block + 3 * MIB + 5, b"new")
    assert lowtide.resume("weights").parked == 8 * MIB
    assert device.read(block + 3 * MIB, MIB) == data[:5] + b"new" + data[8:]
    assert lowtide.trim() > 0


def errors(device):
    block = allocate(device, "weights", 64 * MIB)
    for call, kind, words in (
            (lambda: lowtide.info("nothing"), lowtide.InvalidError, "nothing"),
            (lambda: lowtide.info("not a tag"), lowtide.InvalidError, "is no tag"),
            (lambda: lowtide.set("tag.weights.pause", "perhaps"), lowtide.ConfigError, "keep, offload or discard"),
            (lambda: lowtide.set("no.such.key", 1), lowtide.ConfigError, "no.such.key"),
            (lambda: lowtide.read_paused(block, 1), lowtide.InvalidError, "resident")):
        with raises(kind) as caught:
            call()
        assert words in str(caught.exception), caught.exception
    lowtide.pause()
    hog = device.allocate(device.free_bytes() - 8 * MIB)
    with raises(lowtide.DeviceMemoryError) as caught:
        lowtide.resume()
    assert "needs 64.0 MiB and 8.00 MiB" in str(caught.exception), caught.exception
    device.free_block(hog)
    lowtide.resume()


def dropping(device):
    block = allocate(device, "scratch", 4 * MIB)
    lowtide.set("tag.scratch.pause", "discard")
    lowtide.set("tag.scratch.fill", "zero")
    device.write(block, b"x")
    assert lowtide.pause("scratch").discarded == 4 * MIB
    lowtide.resume("scratch")
    assert device.read(block, 1) == b"\0"


def with_pausing_off(device):
    """All is kept, by whoever asks for the pause."""
    block = allocate(device, "weights", 8 * MIB)
    device.write(block, b"old")
    free = device.free_bytes()
    report = lowtide.pause("weights")
    assert (report.parked, report.discarded, report.kept, report.blocks) == (0, 0, 8 * MIB, 0), report
    assert lowtide.info("weights") == lowtide.TagInfo(blocks=1, resident=8 * MIB, parked=0, backup=0, slack=0)
    assert device.free_bytes() == free
    device.write(block, b"new")  # the update between a pause and a resume goes on as ever
    assert lowtide.resume("weights").blocks == 0
    assert device.read(block, 3) == b"new"

    command = [PACKAGE / "lowtide" / "bin" / "lowtide", "pause", str(os.getpid())]
    said = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
    report = json.loads(said.stdout)["processes"][0]["report"]
    assert (report["bytes_parked"], report["bytes_kept"], report["blocks"]) == (0, 8 * MIB, 0), report
    assert "8.00 MiB, stays on the device (pausing is off there)" in said.stderr, said.stderr
    device.write(block, b"and")  # the gate is open
    status = subprocess.run([command[0], "status", str(os.getpid())], check=True, capture_output=True, text=True).stdout
    assert "weights" in status and "asked for by LOWTIDE_BACKEND" in status, status
    assert subprocess.run([command[0], "resume", str(os.getpid())], check=False, capture_output=True).returncode == 0


def all_threads(device):
    blocks = []

    def work():
        device.call("cuCtxSetCurrent", device.context)
        blocks.append(device.allocate(2 * MIB))

    with lowtide.process_scope("loaded"):
        with lowtide.scope("own"):
            device.allocate(2 * MIB)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        with lowtide.process_scope("inner"):
            work()
        work()
    work()  # nobody's
    assert [lowtide.info(tag).blocks for tag in ("loaded", "own", "inner")] == [2, 1, 1]
    assert len(blocks) == 4
    with raises(lowtide.InvalidError):
        library.call("lowtide_process_scope_end", b"loaded")


def pluggable(_device):
    loaded = library.load()
    loaded.lowtide_malloc.restype = ctypes.c_void_p
    with lowtide.scope("weights"):
        block = loaded.lowtide_malloc(ctypes.c_ssize_t(3 * MIB), 0, None)
    assert lowtide.pause("weights").parked == 3 * MIB
    lowtide.resume("weights")
    loaded.lowtide_free(ctypes.c_void_p(block), ctypes.c_ssize_t(3 * MIB), 0, None)
    assert lowtide.info("weights").blocks == 0


def launching(_device):
    assert lowtide.preload_path() == f"{PACKAGE}/lowtide/lib/liblowtide_preload.so"
    base = {"LD_PRELOAD": "/other.so", "LOWTIDE_CONF": "device.wait:1s"}
    made = lowtide.env(tag="weights", settings={"tag.weights.pause": "discard"}, base=base)
    assert made == {"LD_PRELOAD": f"/other.so:{lowtide.preload_path()}", "LOWTIDE_DEFAULT_TAG": "weights",
                    "LOWTIDE_CONF": "device.wait:1s,tag.weights.pause:discard"}, made
    assert lowtide.env(base=made)["LD_PRELOAD"] == made["LD_PRELOAD"]
    with raises(ValueError) as caught:
        lowtide.env(settings={"unmanaged.callers": "a,b"})
    assert "config" in str(caught.exception)
    said = subprocess.run([sys.executable, "-c", "import lowtide.library as l; print(l.mapped_library(l.PRELOAD))"],
                          env={**lowtide.env(), "PYTHONPATH": str(PACKAGE)}, check=True, capture_output=True, text=True).stdout
    assert said.strip() == lowtide.preload_path(), said
    command = [sys.executable, "-m", "lowtide", "run", "--tag", "weights", "--", sys.executable, "-c",
               "import os; print(os.environ['LD_PRELOAD'], os.environ['LOWTIDE_DEFAULT_TAG'])"]
    said = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(PACKAGE)}, check=True, capture_output=True, text=True).stdout
    assert said.split() == [lowtide.preload_path(), "weights"], said


def before_the_first_gpu_call(_device):
    """Engines ask for their plug-ins then; the state is not open yet."""
    other_name = PACKAGE / "lowtide" / "lib" / "torch_memory_saver_hook_mode_preload_cu13.abi3.so"
    shutil.copy(lowtide.preload_path(), other_name)
    ask = [sys.executable, "-c", "import lowtide.library as l; print(l.mapped_library(l.STATE), l.under_lowtide())"]
    for preload, disable, expected in ((lowtide.preload_path(), "", "True"), (other_name, "", "True"), ("", "", "False"),
                                       (lowtide.preload_path(), "1", "False")):
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "LD_PRELOAD": str(preload), "LOWTIDE_DISABLE": disable}
        said = subprocess.run(ask, env=environment, check=True, capture_output=True, text=True).stdout
        assert said.split() == ["None", expected], (preload, disable, said)


def an_upgrade_under_way(device):
    """Started with the libraries of one folder, which are gone when the package is first used."""
    started = pathlib.Path(os.environ["LD_PRELOAD"]).parent
    api = ctypes.CDLL("liblowtide.so", mode=os.RTLD_NOLOAD)
    assert api.lowtide_scope_begin(b"weights") == 0
    block = device.allocate(8 * MIB)
    assert api.lowtide_scope_end() == 0
    shutil.rmtree(started)
    assert lowtide.pause("weights").parked == 8 * MIB and lowtide.read_paused(block, 1)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        states = {line.split()[4] for line in maps if "/liblowtide.so" in line}
    assert len(states) == 1, states


def a_path_that_ld_preload_cannot_say(_device):
    with raises(lowtide.UnsupportedError) as caught:
        lowtide.env()
    assert "a space or a colon" in str(caught.exception), caught.exception


def without_libraries(_device):
    shutil.rmtree(f"{PACKAGE}/lowtide/lib")
    with raises(lowtide.Error) as caught:
        lowtide.pause()
    assert "install the wheel" in str(caught.exception), caught.exception


class Package(Played):
    def test_a_tag_is_paused_read_written_and_resumed(self):
        self.assertEqual(self.play(pausing, preload="PRELOAD"), "")

    def test_each_error_is_its_own_exception_with_the_numbers(self):
        self.play(errors, preload="PRELOAD")

    def test_what_a_tag_discards_comes_back_filled(self):
        self.play(dropping, preload="PRELOAD")

    def test_where_pausing_is_off_all_is_kept(self):
        self.play(with_pausing_off, preload="PRELOAD", LOWTIDE_BACKEND="off")

    def test_a_scope_of_the_process_covers_threads_without_one(self):
        self.play(all_threads, preload="PRELOAD")

    def test_memory_without_a_preload_comes_through_the_pluggable_allocator(self):
        self.play(pluggable)

    def test_programs_are_launched_with_the_packages_own_libraries(self):
        self.play(launching)

    def test_under_lowtide_before_the_first_gpu_call(self):
        self.play(before_the_first_gpu_call)

    def test_a_process_whose_libraries_were_replaced_has_one_state(self):
        folder = self.make_folder()
        for name in ("STATE", "PRELOAD"):
            shutil.copy(os.environ[f"LOWTIDE_TEST_{name}"], folder)
        self.play(an_upgrade_under_way, preload=f"{folder}/liblowtide_preload.so")

    def test_a_path_that_would_be_ignored_is_refused(self):
        spaced = pathlib.Path(self.make_folder()) / "a venv"
        shutil.copytree(self.install(), spaced)
        self.play(a_path_that_ld_preload_cannot_say, LOWTIDE_TEST_PACKAGE=str(spaced))

    def test_a_package_without_its_libraries_says_so(self):
        self.play(without_libraries)


if __name__ == "__main__":
    main(globals())
