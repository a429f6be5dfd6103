# SPDX-License-Identifier: Apache-2.0
"""The functions that torch_memory_saver's Python calls, in a process of their own for each case."""
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from support import MIB, Device

STATE = os.environ["LOWTIDE_TEST_STATE"]
PRELOAD = os.environ["LOWTIDE_TEST_PRELOAD"]
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class Saver:
    """The library as torch_memory_saver's binary_wrapper sees it: the preloaded one."""

    def __init__(self):
        self.library = ctypes.CDLL(os.environ.get("LOWTIDE_TEST_COPY", PRELOAD))
        for name, result in (("tms_get_current_tag", ctypes.c_char_p), ("tms_get_cpu_backup_backend", ctypes.c_char_p),
                             ("tms_get_interesting_region", ctypes.c_bool), ("tms_get_enable_cpu_backup", ctypes.c_bool),
                             ("tms_get_enable_disk_backup", ctypes.c_bool), ("tms_get_retain_cpu_backup", ctypes.c_bool),
                             ("tms_get_cpu_backup_pointer", ctypes.c_void_p), ("tms_torch_malloc", ctypes.c_void_p)):
            getattr(self.library, name).restype = result
        self.library.tms_get_cpu_backup_pointer.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        self.library.tms_torch_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.library.tms_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
        self.library.set_memory_margin_bytes.argtypes = [ctypes.c_uint64]

    def __getattr__(self, name):
        return getattr(self.library, name)

    def enter(self, tag, cpu=False, disk=False):
        self.tms_set_current_tag(tag)
        self.tms_set_enable_cpu_backup(cpu)
        self.tms_set_enable_disk_backup(disk)
        self.tms_set_interesting_region(True)

    def leave(self):
        self.tms_set_interesting_region(False)
        self.tms_set_current_tag(b"default")
        self.tms_set_enable_cpu_backup(False)
        self.tms_set_enable_disk_backup(False)

    def allocate(self, device, size, tag, **backup):
        self.enter(tag, **backup)
        block = device.allocate(size)
        self.leave()
        return block


def flags(saver, _device):
    assert saver.tms_get_current_tag() == b"default" and saver.tms_get_cpu_backup_backend() == b"pinned"
    assert not saver.tms_get_interesting_region() and not saver.tms_get_enable_cpu_backup()
    saver.enter(b"a name / of any kind", cpu=True)
    saver.tms_set_cpu_backup_backend(b"mmap")
    saver.tms_set_cpu_backup_backend(b"nonsense")
    seen = []
    thread = threading.Thread(target=lambda: seen.extend(
        [saver.tms_get_current_tag(), saver.tms_get_interesting_region(), saver.tms_get_cpu_backup_backend()]))
    thread.start()
    thread.join()
    assert seen == [b"default", False, b"pinned"], seen
    assert saver.tms_get_current_tag() == b"a name / of any kind" and saver.tms_get_cpu_backup_backend() == b"mmap"
    saver.tms_set_cpu_backup_backend(b"")
    assert saver.tms_get_cpu_backup_backend() == b"pinned" and saver.tms_get_enable_cpu_backup()
    saver.tms_set_current_tag(None)
    assert saver.tms_get_current_tag() == b"a name / of any kind"


def environment(saver, device):
    assert saver.tms_get_interesting_region() and saver.tms_get_enable_cpu_backup()
    block = device.allocate(3 * MIB)
    device.write(block, b"x" * 100)
    free = device.free_bytes()
    assert saver.tms_pause(None) == 0 and device.free_bytes() >= free + 3 * MIB
    assert saver.tms_resume(None) == 0 and device.read(block, 100) == b"x" * 100


def one_tag_with_and_without_backup(saver, device):
    data = os.urandom(MIB)
    kept = saver.allocate(device, 40 * MIB, b"weights", cpu=True)
    on_disk = saver.allocate(device, 4 * MIB, b"weights", disk=True)
    dropped = saver.allocate(device, 4 * MIB, b"weights")
    other = saver.allocate(device, 4 * MIB, b"kv_cache")
    plain = device.allocate(4 * MIB)
    for block in (kept, kept + 39 * MIB, on_disk, dropped, other, plain):
        device.write(block, data)
    free = device.free_bytes()
    assert saver.tms_pause(b"weights") == 0 and device.free_bytes() == free + 48 * MIB
    pointer = saver.tms_get_cpu_backup_pointer(kept, 40 * MIB)
    assert ctypes.string_at(pointer + 39 * MIB, MIB) == data  # in one piece, whatever lies where
    assert saver.tms_get_cpu_backup_pointer(on_disk, 100) is None
    assert saver.tms_get_cpu_backup_pointer(dropped, 100) is None
    assert saver.tms_get_cpu_backup_pointer(other, 100) is None and saver.tms_get_cpu_backup_pointer(1, 1) is None
    assert device.read(other, MIB) == data and device.read(plain, MIB) == data
    assert saver.tms_pause(b"weights") == 0 and saver.tms_pause(b"no such tag") == 0
    assert saver.tms_pause(b"") == 0 and device.free_bytes() == free + 52 * MIB
    late = saver.allocate(device, 2 * MIB, b"weights", cpu=True)  # in a paused tag
    device.write(late, data)
    device.free_block(dropped)  # while it is parked, outside of its region
    assert saver.tms_resume(b"weights") == 0 and saver.tms_resume(b"weights") == 0 and saver.tms_resume(None) == 0
    for block in (kept, kept + 39 * MIB, on_disk, late, plain):
        assert device.read(block, MIB) == data
    for block in (kept, on_disk, other, plain, late):
        device.free_block(block)


def a_resume_without_room(saver, device):
    data, doors = os.urandom(1000), "LD_PRELOAD" in os.environ
    saver.enter(b"weights", cpu=True)
    block = device.allocate(64 * MIB) if doors else saver.tms_torch_malloc(64 * MIB, 0, None)
    saver.leave()
    device.write(block, data)
    assert saver.tms_pause(None) == 0
    hog = device.allocate(device.free_bytes() - 8 * MIB)
    for _ in range(2):
        try:
            saver.tms_resume(None)  # an answer that its Python does not look at
            raise AssertionError("nobody was told")
        except MemoryError:
            pass
        if doors:
            assert device.write(hog, data) == OUT_OF_MEMORY  # instead of touching what is parked
    assert ctypes.string_at(saver.tms_get_cpu_backup_pointer(block, 1000), 1000) == data
    device.free_block(hog)
    assert saver.tms_resume(None) == 0
    assert device.read(block, 1000) == data


def what_was_refused_for_is_freed(saver, device):
    block = saver.allocate(device, 64 * MIB, b"weights", cpu=True)
    assert saver.tms_pause(None) == 0
    hog = device.allocate(device.free_bytes() - 8 * MIB)
    try:
        saver.tms_resume(b"weights")
    except MemoryError:
        pass
    assert device.write(hog, b"x") == OUT_OF_MEMORY
    device.free_block(block)
    assert device.write(hog, b"x") == 0


def the_context_goes_while_its_memory_is_refused_for(saver, device):
    saver.allocate(device, 64 * MIB, b"weights", cpu=True)
    assert saver.tms_pause(None) == 0
    device.allocate(device.free_bytes() - 8 * MIB)
    try:
        saver.tms_resume(b"weights")
    except MemoryError:
        pass
    device.call("cuDevicePrimaryCtxReset_v2", 0)
    device = Device()
    assert device.write(device.allocate(MIB), b"x") == 0


def a_hold_that_fails(saver, device):
    """Somebody holds the process while it has parked memory itself, and it does not come to rest."""
    other = device.allocate(MIB)
    saver.allocate(device, 8 * MIB, b"kv_cache")
    assert saver.tms_pause(b"kv_cache") == 0
    over = threading.Event()
    work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: over.wait() and None)
    stream = ctypes.c_void_p()
    device.call("cuStreamCreate", ctypes.byref(stream), 1)
    device.call("cuLaunchHostFunc", stream, work, None)
    environment_ = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [os.environ["LOWTIDE_TEST_COMMAND"], "pause", str(os.getpid()), "--timeout", "0.2"]
    held = subprocess.run(command, env=environment_, text=True, capture_output=True, timeout=60, check=False)
    assert "goes on as before" in held.stderr, held
    results = []

    def write():
        device.call("cuCtxSetCurrent", device.context)
        results.append(device.write(other, b"x"))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    over.set()
    thread.join(30)
    saver.tms_resume(None)
    assert results == [0], "it was held after all"
    device.call("cuStreamSynchronize", stream)  # Python must not end while the stream's thread is in a function of it


def a_resume_of_a_corrupted_backup(saver, device):
    block = saver.allocate(device, 4 * MIB, b"weights", cpu=True)
    device.write(block, b"right")
    assert saver.tms_pause(None) == 0
    ctypes.memset(saver.tms_get_cpu_backup_pointer(block, 8), 0, 8)
    try:
        saver.tms_resume(None)
        raise AssertionError("nobody was told")
    except MemoryError as error:
        raise AssertionError("it was not for want of memory") from error
    except RuntimeError:
        pass


def the_margin(saver, device):
    free = device.free_bytes()
    saver.set_memory_margin_bytes(free - 100 * MIB)
    block = ctypes.c_uint64()
    saver.enter(b"weights")
    assert device.cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(200 * MIB)) == OUT_OF_MEMORY
    small = device.allocate(50 * MIB)
    saver.leave()
    plain = device.allocate(200 * MIB)  # no region's
    device.free_block(small)
    device.free_block(plain)


def the_pluggable_allocator(saver, device):
    saver.enter(b"weights", cpu=True)
    block = saver.tms_torch_malloc(5 * MIB, 0, None)
    assert saver.tms_torch_malloc(0, 0, None) is None and saver.tms_torch_malloc(1 << 60, 0, None) is None
    saver.leave()
    device.write(block, b"y" * 10)
    free = device.free_bytes()
    assert saver.tms_pause(b"weights") == 0 and device.free_bytes() > free
    assert saver.tms_resume(b"weights") == 0 and device.read(block, 10) == b"y" * 10
    threading.Thread(target=saver.tms_torch_free, args=(block, 5 * MIB, 0, None)).start()  # no context, no region


def retention(saver, device):
    data = os.urandom(1000)
    block = saver.allocate(device, 40 * MIB, b"weights", cpu=True)
    device.write(block, data)

    def cycle():
        assert saver.tms_pause(None) == 0 and saver.tms_resume(None) == 0
        device.write(block, b"later")  # the copy is of the pause
        return saver.tms_get_cpu_backup_pointer(block, 40 * MIB)

    retained = os.environ.get("TMS_RETAIN_CPU_BACKUP") == "1"
    assert saver.tms_get_retain_cpu_backup() == retained and (cycle() is not None) == retained
    saver.tms_set_retain_cpu_backup(True)
    device.write(block, data)
    assert saver.tms_get_retain_cpu_backup() and ctypes.string_at(cycle(), 1000) == data
    saver.tms_set_retain_cpu_backup(False)
    assert not saver.tms_get_retain_cpu_backup() and cycle() is None


def backups_of_several_pieces(saver, device):
    api = ctypes.CDLL(STATE)
    block, other = saver.allocate(device, 80 * MIB, b"weights", cpu=True), saver.allocate(device, 2 * MIB, b"kv_cache")
    device.write(block, b"old")
    assert saver.tms_pause(None) == 0
    part = saver.tms_get_cpu_backup_pointer(block, 40 * MIB)
    whole = saver.tms_get_cpu_backup_pointer(block, 80 * MIB)
    assert saver.tms_resume(b"kv_cache") == 0 and saver.tms_pause(b"weights") == 0  # neither changes these backups
    assert ctypes.string_at(part, 3) == ctypes.string_at(whole, 3) == b"old"
    for size in (80 * MIB + 1, 1 << 40, (1 << 64) - 1, (1 << 64) - block):
        assert saver.tms_get_cpu_backup_pointer(block, size) is None
    for data in (b"new", b"3rd"):  # paused by who does not come through these functions
        assert api.lowtide_resume(None, None) == 0 and device.write(block, data) == 0
        assert api.lowtide_pause(None, None) == 0
        assert ctypes.string_at(saver.tms_get_cpu_backup_pointer(block, 80 * MIB), 3) == data
    device.free_block(other)


def one_state(saver, device):
    one_tag_with_and_without_backup(saver, device)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        states = {line.split()[-1] for line in maps if line.rstrip().endswith("/liblowtide.so")}
    assert len(states) == 1, states


CASES = (flags, environment, one_tag_with_and_without_backup, a_resume_without_room, a_resume_of_a_corrupted_backup,
         what_was_refused_for_is_freed,
         the_context_goes_while_its_memory_is_refused_for, a_hold_that_fails, the_margin, the_pluggable_allocator,
         retention, backups_of_several_pieces, one_state)


class Abi(unittest.TestCase):
    def play(self, case, preload=True, **variables):
        folder = tempfile.mkdtemp(prefix="lowtide-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        environment_ = {**os.environ, "LOWTIDE_SIM_DIR": folder, "LOWTIDE_SIM_MEMORY": "1G",
                        "LOWTIDE_RUNTIME_DIR": f"{folder}/run", "LOWTIDE_CONF": "device.wait:200ms",
                        **({"LD_PRELOAD": PRELOAD} if preload else {}), **variables}
        result = subprocess.run([sys.executable, "-B", __file__, case.__name__], env=environment_, text=True,
                                capture_output=True, timeout=120, check=False)
        self.assertEqual((result.returncode, result.stdout), (0, "right\n"), result.stderr)
        return result.stderr

    def test_flags_are_the_threads_own(self):
        self.assertEqual(self.play(flags).count("\n"), 1)  # of the backend that there is not

    def test_a_training_engine_is_started_with_its_environment(self):
        self.play(environment, TMS_INIT_ENABLE="1", TMS_INIT_ENABLE_CPU_BACKUP="yes")

    def test_a_word_of_the_environment_that_means_nothing_ends_nobody(self):
        told = self.play(flags, TMS_INIT_ENABLE="perhaps")
        self.assertIn("TMS_INIT_ENABLE=perhaps means nothing", told)

    def test_one_tag_has_blocks_with_and_without_a_backup(self):
        self.assertEqual(self.play(one_tag_with_and_without_backup), "")

    def test_a_resume_without_room_ends_nobody_and_a_later_one_repairs_it(self):
        for preload in (True, False):
            told = self.play(a_resume_without_room, preload=preload)
            self.assertEqual(told.count("\n"), 2, told)
            self.assertIn("a resume of all tags failed: device 0: the resume needs 64.0 MiB and 8.00 MiB of", told)

    def test_work_goes_on_once_nothing_is_parked_that_it_was_refused_for(self):
        self.play(what_was_refused_for_is_freed)
        self.play(the_context_goes_while_its_memory_is_refused_for)

    def test_a_hold_that_fails_leaves_the_program_as_it_was(self):
        self.play(a_hold_that_fails)

    def test_a_corrupted_backup_raises_and_not_for_want_of_memory(self):
        told = self.play(a_resume_of_a_corrupted_backup, LOWTIDE_CONF="backup.verify:true")
        self.assertIn("a resume of all tags failed: ", told)

    def test_the_margin_is_kept_by_regions(self):
        self.play(the_margin)

    def test_the_pluggable_allocator_works_with_and_without_the_preload(self):
        for preload in (True, False):
            self.play(the_pluggable_allocator, preload=preload)

    def test_a_copy_under_its_file_name_and_the_preload_of_lowtide_run_have_one_state(self):
        folder = tempfile.mkdtemp(prefix="lowtide-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        copy = f"{folder}/torch_memory_saver_hook_mode_preload_cu13.abi3.so"
        shutil.copy(PRELOAD, copy)
        shutil.copy(STATE, folder)
        for order in (f"{copy}:{PRELOAD}", f"{PRELOAD}:{copy}"):
            self.play(one_state, LD_PRELOAD=order, LOWTIDE_TEST_COPY=copy)

    def test_a_pointer_to_a_backup_stays_good_and_shows_the_last_pause(self):
        self.assertEqual(self.play(backups_of_several_pieces), "")

    def test_copies_of_active_memory_are_shown_to_who_asked_for_them(self):
        self.play(retention)
        self.play(retention, TMS_RETAIN_CPU_BACKUP="1")


if __name__ == "__main__":
    chosen = {case.__name__: case for case in CASES}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if chosen is None:
        unittest.main()
    chosen(Saver(), Device())
    print("right")
