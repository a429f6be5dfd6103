# SPDX-License-Identifier: Apache-2.0
"""Storages that are emptied and filled again in place, with PyTorch on the CPU: transitions."""
import copy
import gc
import resource
import sys
import threading
import unittest
from unittest import mock

from support import MIB, PACKAGE

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
sys.path.insert(0, str(PACKAGE))

import lowtide  # noqa: E402
from lowtide.torch import memory, recreate  # noqa: E402


def of_cpu(*objects):
    return recreate.Storages(*objects, device="cpu")


def cycle(*objects):
    storages = of_cpu(*objects)
    return storages.pause(), storages.resume()


def resident():
    """Bytes of this process."""
    with open("/proc/self/statm", encoding="ascii") as numbers:
        return int(numbers.read().split()[1]) * resource.getpagesize()


def failing(nth, error):
    """UntypedStorage.resize_ that fails the nth time that it shall give memory."""
    real, left = torch.UntypedStorage.resize_, [nth]

    def resize_(storage, size):
        if size > 0:
            left[0] -= 1
            if left[0] == 0:
                raise error
        return real(storage, size)

    return mock.patch.object(torch.UntypedStorage, "resize_", resize_)


class Network(torch.nn.Module):
    """With tied weights, a buffer that is not saved, and a tensor in a plain attribute."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 24)
        self.inner = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.BatchNorm1d(24), torch.nn.LSTM(24, 24))
        self.out = torch.nn.Linear(24, 50)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.rand(24), persistent=False)
        self.shift = [torch.rand(24)]

    def forward(self, tokens):
        return self.out(self.inner(self.embed(tokens) * self.scale + self.shift[0])[0])


class Training(unittest.TestCase):

    def step(self, model, optimizer, tokens, between=lambda: None):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(tokens), tokens)
        between()
        loss.backward()
        optimizer.step()
        return loss

    def test_outputs_and_steps_are_those_of_an_undisturbed_copy_bit_for_bit(self):
        for make in (torch.optim.AdamW, lambda p: torch.optim.SGD(p, lr=.1, momentum=.9), torch.optim.Adagrad):
            model = Network()
            other = copy.deepcopy(model)
            optimizers = make(model.parameters()), make(other.parameters())
            storages = of_cpu(model, optimizers[0])
            for number in range(4):
                tokens = torch.randint(0, 50, (16,))
                losses = self.step(model, optimizers[0], tokens), self.step(other, optimizers[1], tokens)
                self.assertTrue(torch.equal(*losses))
                self.assertGreater(storages.pause().parked, 0)
                self.assertEqual(model.embed.weight.untyped_storage().nbytes(), 0)
                self.assertEqual(storages.resume().left, ())
                for ours, theirs in zip(model.state_dict().values(), other.state_dict().values()):
                    self.assertTrue(torch.equal(ours, theirs))
                for ours, theirs in zip(model.parameters(), other.parameters()):
                    self.assertTrue(torch.equal(ours.grad, theirs.grad), f"step {number}")

    def test_a_cycle_between_forward_and_backward_is_not_noticed_by_autograd(self):
        model = Network()
        other = copy.deepcopy(model)
        optimizers = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(other.parameters())
        tokens = torch.randint(0, 50, (16,))
        for _ in range(2):
            self.step(model, optimizers[0], tokens, lambda: cycle(model, optimizers[0]))
            self.step(other, optimizers[1], tokens)
        for ours, theirs in zip(model.parameters(), other.parameters()):
            self.assertTrue(torch.equal(ours, theirs))

    def test_versions_flags_and_identity_of_parameters_stay(self):
        leaf = torch.nn.Parameter(torch.rand(8))
        view = leaf.detach()[2:5]

        def facts():
            return (leaf._version, leaf.is_leaf, leaf.requires_grad, leaf.untyped_storage()._cdata, view._version,
                    view.storage_offset(), view.stride())

        before = facts()
        cycle(leaf)
        self.assertEqual(before, facts())
        self.assertTrue(torch.equal(view, leaf.detach()[2:5]))

    def test_an_optimizer_alone_is_parked_while_its_model_is_used(self):
        model = torch.nn.Linear(16, 16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))
        self.step(model, optimizer, torch.rand(16, 16))
        storages = of_cpu(optimizer)
        moments, steps, rate = 2 * (16 * 16 + 16) * 4, 2 * 4, 4
        self.assertEqual(storages.pause().parked, moments + steps + rate)
        model(torch.rand(16, 16)).sum().backward()
        storages.resume()
        optimizer.step()


class Transitions(unittest.TestCase):

    def test_memory_leaves_and_comes_back(self):
        tensor = torch.full((64 * MIB,), 7, dtype=torch.uint8)
        storages, before = of_cpu(tensor), resident()
        self.assertEqual(storages.pause("discard", "zero").discarded, 64 * MIB)
        self.assertLess(resident(), before - 60 * MIB)
        storages.resume()
        self.assertGreater(resident(), before - 4 * MIB)
        self.assertFalse(tensor.any())

    def test_repeating_a_pause_or_a_resume_does_nothing(self):
        tensor = torch.arange(100.)
        expected, storages = tensor.clone(), of_cpu([tensor])
        for _ in range(2):
            self.assertEqual(storages.resume().blocks, 0)
            first, second = storages.pause(), storages.pause("discard", "poison")
            self.assertEqual((first.parked, first.blocks, second.discarded, second.blocks), (400, 1, 0, 0))
            back = storages.resume()
            again = storages.resume()
            self.assertEqual((back.parked, back.blocks, again.blocks, again.left), (400, 1, 0, ()))
            self.assertTrue(torch.equal(tensor, expected))

    def test_dropped_content_comes_back_as_the_fill_says(self):
        tensor = torch.rand(10)
        storages = of_cpu(tensor)
        for fill, byte in (("zero", 0), ("poison", 0xcd)):
            self.assertEqual(storages.pause("discard", fill).discarded, 40)
            self.assertEqual((storages.resume().discarded, tensor.view(torch.uint8).tolist()), (40, [byte] * 40))
        storages.pause("discard")
        storages.resume()
        tensor.fill_(1)

    def test_what_is_no_action_or_fill_is_refused_and_nothing_changes(self):
        tensor = torch.rand(10)
        for wrong in ({"action": "keep"}, {"fill": "ones"}):
            with self.assertRaises(lowtide.InvalidError):
                of_cpu(tensor).pause(**wrong)
        self.assertNotEqual(tensor.data_ptr(), 0)

    def test_tensors_made_while_paused_stay_until_the_next_pause(self):
        kept = [torch.full((10,), 1.)]
        storages = of_cpu(kept)
        storages.pause()
        kept.append(torch.full((10,), 2.))
        self.assertEqual(kept[1].tolist(), [2.] * 10)
        self.assertEqual((storages.pause().blocks, storages.resume().blocks), (1, 2))
        self.assertEqual([each[0].item() for each in kept], [1., 2.])

    def test_tensors_freed_while_paused_are_forgotten(self):
        kept = [torch.rand(10), torch.rand(20)]
        storages = of_cpu(kept)
        storages.pause()
        del kept[0]
        gc.collect()
        self.assertEqual(storages.resume().parked, 80)

    def test_the_report_counts_what_is_elsewhere(self):
        tensors = [torch.rand(1000) for _ in range(20)]
        before, storages = [tensor.data_ptr() for tensor in tensors], of_cpu(tensors)
        self.assertEqual(storages.pause().moved, 0)
        others = [torch.rand(1000) for _ in range(10)]
        report = storages.resume()
        self.assertEqual(report.moved, sum(tensor.data_ptr() != address for tensor, address in zip(tensors, before)))
        self.assertGreaterEqual(report.moved, len({other.data_ptr() for other in others}.intersection(before)))
        self.assertGreater(report.moved, 0)

    def test_a_storage_that_got_memory_while_paused_is_left_as_it_is_and_paused_again_later(self):
        tensor = torch.rand(10)
        storages = of_cpu(tensor)
        storages.pause()
        tensor.untyped_storage().resize_(40)
        tensor.fill_(3)
        report = storages.resume()
        self.assertEqual((report.blocks, report.kept, len(report.left)), (0, 40, 1))
        self.assertIn("while it was paused", report.left[0].why)
        storages.pause()
        tensor.untyped_storage().resize_(40)
        tensor.fill_(4)
        storages.pause()
        self.assertEqual((storages.resume().parked, tensor.tolist()), (40, [4.] * 10))

    def test_a_resume_that_finds_no_room_empties_all_again_and_a_retry_works(self):
        tensors = [torch.rand(1000) for _ in range(5)]
        copies = [tensor.clone() for tensor in tensors]
        storages = of_cpu(tensors)
        storages.pause()
        for nth in range(1, 6):
            with failing(nth, torch.OutOfMemoryError("none")), self.assertRaises(lowtide.DeviceMemoryError) as caught:
                storages.resume()
            self.assertIn("20000 bytes", str(caught.exception))
            self.assertEqual([tensor.untyped_storage().nbytes() for tensor in tensors], [0] * 5)
            self.assertEqual(storages.pause().blocks, 0)
        self.assertEqual(storages.resume().blocks, 5)
        self.assertTrue(all(map(torch.equal, tensors, copies)))

    def test_an_interrupted_resume_changes_nothing(self):
        tensors = [torch.rand(1000) for _ in range(3)]
        copies = [tensor.clone() for tensor in tensors]
        storages = of_cpu(tensors)
        storages.pause()
        with failing(2, KeyboardInterrupt()), self.assertRaises(KeyboardInterrupt):
            storages.resume()
        with mock.patch.object(memory, "copy_in", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            storages.resume()
        self.assertEqual([tensor.untyped_storage().nbytes() for tensor in tensors], [0] * 3)
        self.assertEqual(storages.resume().parked, 12000)
        self.assertTrue(all(map(torch.equal, tensors, copies)))

    def test_an_interrupted_pause_loses_nothing(self):
        tensors = [torch.rand(1000) for _ in range(3)]
        copies = [tensor.clone() for tensor in tensors]
        storages = of_cpu(tensors)
        real, left = torch.UntypedStorage.resize_, [2]

        def resize_(storage, size):
            left[0] -= 1
            real(storage, size)
            if left[0] == 0:
                raise KeyboardInterrupt

        with mock.patch.object(torch.UntypedStorage, "resize_", resize_), self.assertRaises(KeyboardInterrupt):
            storages.pause()
        storages.pause()
        self.assertEqual([tensor.untyped_storage().nbytes() for tensor in tensors], [0] * 3)
        storages.resume()
        self.assertTrue(all(map(torch.equal, tensors, copies)))

    def test_really_no_room_at_a_resume_or_for_the_copies(self):
        tensor = torch.full((256 * MIB,), 7, dtype=torch.uint8)
        storages, limits = of_cpu(tensor), resource.getrlimit(resource.RLIMIT_AS)

        def without_room(function, error):
            with open("/proc/self/statm", encoding="ascii") as numbers:
                mapped = int(numbers.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + 100 * MIB, limits[1]))
            try:
                with self.assertRaises(error) as caught:
                    function()
            finally:
                resource.setrlimit(resource.RLIMIT_AS, limits)
            self.assertIn(str(256 * MIB), str(caught.exception))

        without_room(storages.pause, lowtide.HostBudgetError)
        self.assertEqual(tensor[-1].item(), 7)
        storages.pause()
        without_room(storages.resume, lowtide.DeviceMemoryError)
        storages.resume()
        self.assertTrue(tensor.eq(7).all())

    def test_storages_larger_than_a_piece_of_host_memory(self):
        for slab in (7, 64, 1000):
            with mock.patch.object(memory, "_SLAB", slab):
                sizes = (1, 7, 13, 64, 65, 500, 1000, 2001)
                tensors = [torch.randint(0, 99, (size,), dtype=torch.uint8) for size in sizes]
                copies = [tensor.clone() for tensor in tensors]
                cycle(tensors)
            self.assertTrue(all(map(torch.equal, tensors, copies)))

    def test_inference_mode_at_one_end_or_both(self):
        for first in (False, True):
            for second in (False, True):
                with torch.inference_mode():
                    inferred = torch.rand(10)
                tensors = [inferred, torch.rand(10), torch.nn.Parameter(torch.rand(10))]
                copies, storages = [tensor.tolist() for tensor in tensors], of_cpu(tensors)
                for action in ("offload", "discard"):
                    with torch.inference_mode(first):
                        storages.pause(action, "zero")
                    with torch.inference_mode(second):
                        storages.resume()
                    expected = copies if action == "offload" else [[0.] * 10] * 3
                    self.assertEqual([tensor.tolist() for tensor in tensors], expected)
                    self.assertEqual([tensor.is_inference() for tensor in tensors], [True, False, False])

    def test_other_defaults_of_the_program_do_not_matter(self):
        tensor = torch.rand(10)
        expected = tensor.tolist()
        with torch.device("meta"):
            cycle(tensor)
        self.assertEqual(tensor.tolist(), expected)

    def test_two_objects_over_one_storage_do_not_meet_each_other(self):
        first, second = torch.rand(10), torch.rand(10)
        expected = [first.tolist(), second.tolist()]
        one, both = of_cpu(first), of_cpu(first, second)
        self.assertEqual((one.pause().blocks, both.pause().blocks), (1, 1))
        self.assertEqual((both.resume().blocks, one.resume().blocks), (1, 1))
        self.assertEqual([first.tolist(), second.tolist()], expected)

    def test_threads_that_pause_and_resume_one_object(self):
        tensors = [torch.rand(1000) for _ in range(20)]
        copies, storages, failures = [tensor.clone() for tensor in tensors], of_cpu(tensors), []

        def work():
            try:
                for _ in range(50):
                    storages.pause()
                    storages.resume()
            except Exception as error:  # told by the main thread
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        storages.resume()
        self.assertTrue(all(map(torch.equal, tensors, copies)))

    def test_the_cpu_is_left_alone_unless_it_is_named(self):
        tensor = torch.rand(10)
        report = recreate.Storages(tensor).pause()
        self.assertEqual((report.blocks, report.kept, report.left), (0, 0, ()))
        self.assertEqual(recreate.Storages(tensor, device="cuda").pause().blocks, 0)


if __name__ == "__main__":
    unittest.main()
