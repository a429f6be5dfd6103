# SPDX-License-Identifier: Apache-2.0
"""Which pool PyTorch allocates from in a region, with a stand-in for PyTorch, on the simulated GPU; each case in a process of
its own."""
import gc
import pathlib
import sys
import threading

from support import MIB, PACKAGE, Played, main

sys.path[:0] = [str(PACKAGE), str(pathlib.Path(__file__).parent / "stand_in")]

import torch  # noqa: E402

import lowtide  # noqa: E402


def blocks(tag):
    return lowtide.info(tag).blocks


def nesting(_device):
    with lowtide.region("outer"):
        outer = torch.active_pool()
        torch.allocate(2 * MIB)
        with lowtide.region("inner"):
            inner = torch.active_pool()
            torch.allocate(2 * MIB)
            with lowtide.region("outer"):
                assert torch.active_pool() is outer
                torch.allocate(2 * MIB)
            assert torch.active_pool() is inner
        assert torch.active_pool() is outer
        with lowtide.region("outer"):
            assert torch.active_pool() is outer
    assert torch.active_pool() is None
    with lowtide.region("outer"):
        assert torch.active_pool() is outer  # again, and not a new one
    assert (blocks("outer"), blocks("inner")) == (2, 1)


def entering_while_paused(_device):
    with lowtide.region("weights"):
        before = torch.active_pool()
        torch.allocate(2 * MIB)
    lowtide.pause("weights")
    with lowtide.region("weights"):
        assert torch.active_pool() is not before  # what is free there is parked
        torch.tensor_of(b"new", 2 * MIB)
    lowtide.pause("weights")
    with lowtide.region("weights"):
        torch.tensor_of(b"newer", 2 * MIB)
    lowtide.resume("weights")
    with lowtide.region("weights"):
        again = torch.active_pool()
    with lowtide.region("weights"):
        assert torch.active_pool() is again
    assert blocks("weights") == 3


def leaving_by_an_exception(_device):
    for wrong in ("inner", "not a tag"):
        try:
            with lowtide.region("outer"):
                outer = torch.active_pool()
                with lowtide.region(wrong):
                    raise KeyError(wrong)
        except (KeyError, lowtide.InvalidError):
            pass
        assert torch.active_pool() is None
        with lowtide.region("outer"):
            assert torch.active_pool() is outer
            torch.allocate(2 * MIB)
    assert blocks("outer") == 2


def threads(_device):
    both_in, pools = threading.Barrier(2), []

    def work():
        with lowtide.region("weights"):
            pools.append(torch.active_pool())
            both_in.wait()
            torch.allocate(2 * MIB)
            both_in.wait()

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert pools[0] is not pools[1] and blocks("weights") == 2
    with lowtide.region("weights"):
        assert torch.active_pool() in pools


def loader_threads(_device):
    with lowtide.region("weights", all_threads=True):
        worker = threading.Thread(target=lambda: torch.allocate(2 * MIB))
        worker.start()
        worker.join()
        torch.allocate(2 * MIB)
    assert blocks("weights") == 2 and torch.active_pool() is None


def graphs(_device):
    first, second, third = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with lowtide.cuda_graph(first):
        torch.allocate(2 * MIB)
    with lowtide.cuda_graph(second, pool=first.pool()):
        torch.allocate(2 * MIB)
    assert second.pool() == first.pool() and blocks("cuda_graph") == 2
    theirs = torch.cuda.MemPool()
    foreign = theirs.id
    try:
        with lowtide.cuda_graph(third, pool=foreign):
            raise AssertionError("captured where no memory has a tag")
    except lowtide.UnsupportedError as error:
        assert "lowtide run" in str(error)
    pool = first.pool()
    with lowtide.region("weights"):
        del first  # and its pool
        gc.collect()
        torch.allocate(2 * MIB)
    try:
        with lowtide.cuda_graph(third, pool=pool):
            raise AssertionError("captured in a pool that is gone")
    except lowtide.UnsupportedError:
        pass


def two_devices(_device):
    with lowtide.region("weights", device=1):
        assert torch.active_pool() is None  # this thread's device is the other
        with lowtide.region("weights"):
            torch.allocate(2 * MIB)
            with torch.cuda.device(1):
                torch.allocate(2 * MIB)
    assert [lowtide.info("weights", device).blocks for device in (0, 1)] == [1, 1]


class Pools(Played):
    def test_the_innermost_region_counts_and_its_pool_is_used_again(self):
        self.play(nesting)

    def test_a_region_that_is_entered_while_its_tag_is_paused_hands_out_no_parked_memory(self):
        self.play(entering_while_paused)

    def test_an_exception_leaves_all_regions(self):
        self.play(leaving_by_an_exception)

    def test_threads_in_regions_of_one_tag_have_pools_of_their_own(self):
        self.play(threads)

    def test_a_region_for_all_threads_covers_loader_threads(self):
        self.play(loader_threads)

    def test_a_graphs_pool_carries_its_tag_and_ends_with_it(self):
        self.play(graphs)

    def test_regions_are_of_one_device(self):
        self.play(two_devices, LOWTIDE_SIM_DEVICES="2")


if __name__ == "__main__":
    main(globals())
