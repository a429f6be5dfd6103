# SPDX-License-Identifier: Apache-2.0
"""lowtide.compat.torch_memory_saver with a stand-in for PyTorch, on the simulated GPU; each case in a process of its own."""
import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys

from support import MIB, PACKAGE, Played, main, raises

sys.path[:0] = [str(PACKAGE), str(pathlib.Path(__file__).parent / "stand_in")]

import torch  # noqa: E402

import lowtide  # noqa: E402
import lowtide.compat.torch_memory_saver as torch_memory_saver  # noqa: E402
from lowtide.compat.torch_memory_saver import utils  # noqa: E402
from lowtide.compat.torch_memory_saver.flags import saver_library  # noqa: E402

saver = torch_memory_saver.torch_memory_saver


def allocate(size=2 * MIB, **region):
    with saver.region(**region):
        return torch.allocate(size)


def one_tag_of_three_kinds(device):
    data = os.urandom(1000)
    kept, stored = allocate(tag="w", enable_cpu_backup=True), allocate(tag="w", enable_disk_backup=True)
    dropped, other = allocate(tag="w"), allocate()
    for block in (kept, stored, dropped, other):
        device.write(block, data)
    free = device.free_bytes()
    saver.pause("w")
    saver.pause("w")
    assert device.free_bytes() == free + 6 * MIB and device.read(other, 1000) == data
    saver.pause()
    assert device.free_bytes() == free + 8 * MIB
    late = allocate(tag="w", enable_cpu_backup=True)
    device.write(late, data)
    saver.resume("w")
    saver.resume()
    for block in (kept, stored, late):
        assert device.read(block, 1000) == data


def contradictions(_device):
    for wrong in ({"enable_cpu_backup": True, "enable_disk_backup": True}, {"cpu_backup_backend": "mmap"},
                  {"enable_cpu_backup": True, "cpu_backup_backend": "tape"}):
        try:
            with saver.region(**wrong):
                raise AssertionError(wrong)
        except lowtide.InvalidError:
            pass
    for call in (saver.disable, lambda: saver.disable(dispose_mem_pool_after_use=False)):
        try:
            with call():
                raise AssertionError("disabled outside of a region")
        except lowtide.InvalidError:
            pass
    with raises(lowtide.InvalidError):
        saver.hook_mode = "other"


def disabling(device):
    with saver.region(tag="w", enable_cpu_backup=True):
        region = torch.active_pool()
        for _ in range(2):
            with saver.disable():
                assert torch.active_pool() is not region and torch.allocate(2 * MIB) is None  # PyTorch's own memory
            assert torch.active_pool() is region
        block = torch.allocate(2 * MIB)
    device.write(block, b"x")
    saver.pause("w")
    saver.resume("w")
    assert device.read(block, 1) == b"x"


def without_room(device):
    block = allocate(64 * MIB, tag="w", enable_cpu_backup=True)
    device.write(block, b"x")
    saver.pause()
    hog = device.allocate(device.free_bytes() - 8 * MIB)
    with raises(lowtide.DeviceMemoryError) as caught:
        saver.resume()
    assert "needs 64.0 MiB and 8.00 MiB" in str(caught.exception), caught.exception
    device.free_block(hog)
    saver.resume()
    assert device.read(block, 1) == b"x"


def settings(device):
    assert saver.enabled and not saver.retain_cpu_backup
    saver.retain_cpu_backup = True
    assert saver.retain_cpu_backup
    saver.hook_mode = "torch"
    saver.hook_mode = "preload"
    saver.memory_margin_bytes = device.free_bytes() - 10 * MIB
    assert allocate(20 * MIB) is None and allocate(2 * MIB) is not None


def the_disks_folder(device):
    def files():
        found = []
        for entry in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the listing's own
                found.append(os.readlink(f"/proc/self/fd/{entry}"))
        return [link for link in found if link.startswith(folder)]

    folder = os.environ["TMS_DISK_BACKUP_DIR"]
    device.write(allocate(tag="w", enable_disk_backup=True), b"x")
    saver.pause()
    assert len(files()) == 1, files()
    saver.resume()
    folder = f"{folder}/made/here"
    saver.set_disk_backup_dir(folder)
    saver.pause()
    assert len(files()) == 1, files()


def graphs(_device):
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, tag="cuda_graph", enable_cpu_backup=True):
        torch.allocate(2 * MIB)
    assert lowtide.info("cuda_graph").blocks == 1
    saver.pause("cuda_graph")
    assert lowtide.info("cuda_graph").backup == 2 * MIB


def tasks_in_one_thread(_device):
    async def load(tag, backup):
        with saver.region(tag=tag, enable_cpu_backup=backup):
            await asyncio.sleep(0.01)
            torch.allocate(2 * MIB)

    async def both():
        return await asyncio.gather(load("weights", True), load("kv_cache", False), return_exceptions=True)

    done, refused = asyncio.run(both())
    assert done is None and isinstance(refused, lowtide.InvalidError) and "asyncio" in str(refused), (done, refused)
    assert lowtide.info("weights").blocks == 1  # and not the other's
    assert not saver_library().tms_get_interesting_region()
    asyncio.run(load("kv_cache", False))
    assert lowtide.info("kv_cache").blocks == 1


def launching(_device):
    before = os.environ.get("LD_PRELOAD")
    with torch_memory_saver.configure_subprocess():
        path = str(utils.get_binary_path_from_package("torch_memory_saver_hook_mode_preload"))
        assert os.environ["LD_PRELOAD"].split(":").count(path) == 1
        script = f"print('{path}' in open('/proc/self/maps').read())"
        said = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        assert said == "True\n", said
    assert os.environ.get("LD_PRELOAD") == before
    assert utils.get_binary_path_from_package("torch_memory_saver_hook_mode_torch").name == "liblowtide.so"
    with raises(lowtide.InvalidError):
        utils.get_binary_path_from_package("libcuda")


class Compat(Played):
    def test_one_tag_has_memory_of_three_kinds(self):
        self.assertEqual(self.play(one_tag_of_three_kinds), "")

    def test_contradictions_are_refused(self):
        self.play(contradictions)

    def test_what_is_allocated_while_disabled_is_no_regions(self):
        self.play(disabling)

    def test_a_resume_without_room_raises_and_a_later_one_works(self):
        self.play(without_room, LOWTIDE_CONF="device.wait:100ms")

    def test_the_settings_are_the_librarys(self):
        self.play(settings)

    def test_backups_lie_in_the_folder_that_was_said(self):
        self.play(the_disks_folder, TMS_DISK_BACKUP_DIR=self.make_folder())

    def test_a_graphs_memory_has_its_tag_and_backup(self):
        self.play(graphs)

    def test_what_tasks_of_one_thread_allocate_is_not_mixed_up(self):
        self.play(tasks_in_one_thread)

    def test_subprocesses_are_preloaded_and_the_environment_comes_back(self):
        for preload in ("", "PRELOAD", "PRELOAD:libm.so.6"):
            self.play(launching, preload=preload)


if __name__ == "__main__":
    main(globals())
