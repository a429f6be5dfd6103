# SPDX-License-Identifier: Apache-2.0
"""Which storages objects hold and which of them can be emptied, with PyTorch on the CPU."""
import collections
import pathlib
import sys
import tempfile
import types
import unittest
import warnings
from unittest import mock

from support import PACKAGE

try:
    import torch
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)
sys.path.insert(0, str(PACKAGE))

from lowtide.torch import holdings, memory, movable, recreate  # noqa: E402


def of_cpu(*objects):
    return recreate.Storages(*objects, device="cpu")


class Case(unittest.TestCase):

    def setUp(self):
        warnings.simplefilter("ignore", UserWarning)  # of PyTorch, about sparse and nested tensors

    def check_cycle(self, holder, tensors, blocks):
        """All tensors have no memory while `holder` is paused, and their content afterwards."""
        expected = [tensor.detach().clone() for tensor in tensors]
        storages = of_cpu(holder)
        report = storages.pause()
        self.assertEqual((report.blocks, report.left), (blocks, ()))
        self.assertEqual([tensor.untyped_storage().nbytes() for tensor in tensors], [0] * len(tensors))
        self.assertEqual(storages.resume().blocks, blocks)
        for tensor, content in zip(tensors, expected):
            self.assertTrue(torch.equal(tensor.detach(), content))


class Holders(Case):

    def test_a_storage_of_several_tensors_moves_once_and_stays_common(self):
        whole = torch.arange(60.)
        views = [whole, whole[10:20], whole.view(6, 10).t(), whole.as_strided((3, 3), (1, 2), 7), whole[::7],
                 whole.view(torch.int32)]
        report = of_cpu(views, {"again": views}).pause()
        self.assertEqual((report.blocks, report.parked), (1, 240))

    def test_views_share_their_memory_afterwards(self):
        whole = torch.arange(60.)
        turned, strided = whole.view(6, 10).t(), whole.as_strided((3, 3), (1, 2), 7)
        self.check_cycle([strided], [whole, turned, strided], 1)
        turned[5, 2] = -1
        strided[0, 0] = -2
        self.assertEqual((whole[25].item(), whole[7].item()), (-1, -2))

    def test_a_part_of_a_storage_moves_the_whole_of_it(self):
        whole = torch.rand(1000)
        self.assertEqual(of_cpu(torch.nn.Parameter(whole[10:12])).pause().parked, 4000)
        self.assertEqual(whole.untyped_storage().nbytes(), 0)

    def test_tied_weights_buffers_gradients_and_attributes_of_modules(self):
        linear = [torch.nn.Linear(4, 4, bias=False) for _ in range(2)]
        model = torch.nn.Sequential(*linear, torch.nn.BatchNorm1d(4))
        model[1].weight = model[0].weight
        model.register_buffer("not_saved", torch.rand(3), persistent=False)
        model.cache = {"k": [torch.rand(2)], 3: (torch.rand(2), torch.nn.Linear(1, 1, bias=False))}
        model[0].weight.main_grad = torch.rand(4, 4)
        model(torch.rand(5, 4)).sum().backward()
        held = [*model.parameters(), *model.buffers(), *(each.grad for each in model.parameters()),
                model[0].weight.main_grad, model.cache["k"][0], model.cache[3][0], model.cache[3][1].weight]
        self.check_cycle(model, held, len(held))

    def test_gradients_of_tensors_that_are_no_leaves(self):
        leaf = torch.rand(3, requires_grad=True)
        kept, plain = leaf * 2, leaf * 3
        kept.retain_grad()
        (kept * plain).sum().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.check_cycle([kept, plain], [kept, plain, kept.grad], 3)

    def test_containers_in_containers_and_cycles(self):
        tensors = [torch.rand(3) for _ in range(6)]
        Pair = collections.namedtuple("Pair", "a b")
        cache = {"a": Pair(tensors[0], [tensors[1]]), tensors[2]: {tensors[3]}, "n": None, "i": 4, "s": "text"}
        cache["itself"] = [cache, collections.deque([tensors[4]])]
        self.check_cycle([cache, tensors[5].untyped_storage()], tensors, 6)

    def test_a_deep_nest_does_not_exhaust_the_stack(self):
        nest = tensor = torch.rand(3)
        for _ in range(10000):
            nest = [nest]
        self.check_cycle(nest, [tensor], 1)

    def test_models_of_script_and_parameters_without_a_shape(self):
        script = torch.jit.script(torch.nn.Linear(2, 2))
        self.check_cycle([script, torch.nn.LazyLinear(3)], list(script.parameters()), 2)

    def test_sparse_tensors(self):
        dense = torch.eye(4)
        for sparse, parts in ((dense.to_sparse(), 2), (dense.to_sparse_csr(), 3), (dense.to_sparse_csc(), 3),
                              (dense.to_sparse_bsr((2, 2)), 3), (dense.to_sparse_bsc((2, 2)), 3)):
            storages = of_cpu(sparse)
            self.assertEqual(storages.pause().blocks, parts)
            storages.resume()
            self.assertTrue(torch.equal(sparse.to_dense(), dense))

    def test_tensors_that_are_made_for_the_look_alone_are_not_taken_for_each_other(self):
        self.assertEqual(of_cpu([torch.eye(4).to_sparse() for _ in range(100)]).pause().blocks, 200)

    def test_nested_and_quantized_tensors(self):
        parts = [torch.rand(2), torch.rand(3)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        quantized = torch.quantize_per_tensor(torch.rand(8), .1, 3, torch.quint8)
        self.check_cycle([nested, quantized], [nested.values(), nested.offsets(), quantized], 3)
        self.assertTrue(all(map(torch.equal, nested.unbind(), parts)))

    @unittest.skipUnless(torch.distributed.is_available(), "PyTorch without torch.distributed")
    def test_distributed_tensors(self):
        from torch.distributed.tensor import Replicate, distribute_tensor
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        try:
            mesh = torch.distributed.init_device_mesh("cpu", (1,))
            model = torch.nn.Linear(4, 4)
            model.weight = torch.nn.Parameter(distribute_tensor(model.weight.detach().clone(), mesh, [Replicate()]))
            self.check_cycle(model, [model.weight.to_local(), model.bias], 2)
        finally:
            torch.distributed.destroy_process_group()

    def test_subclasses_that_answer_for_themselves(self):

        class Own(torch.Tensor):

            @classmethod
            def __torch_function__(cls, function, kinds, arguments=(), options=None):
                raise AssertionError(f"{function} was asked for")

        tensor = torch.rand(3)
        self.check_cycle(tensor.as_subclass(Own), [tensor], 1)

    def test_tensors_without_memory_are_nothing(self):
        for device in ("cpu", "meta", None):
            storages = recreate.Storages(torch.rand(0), torch.rand(3, device="meta"), [], device=device)
            self.assertEqual(storages.pause().blocks, 0)

    def test_what_is_not_looked_into_is_refused(self):
        for wrong in (types.SimpleNamespace(weight=torch.rand(3)), None, "model", iter([])):
            with self.assertRaises(TypeError) as caught:
                of_cpu(torch.rand(3), wrong)
            self.assertIn(type(wrong).__name__, str(caught.exception))

    def test_names_lead_to_what_was_left(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        model[0].weight = torch.nn.Parameter(torch.rand(2, 2).share_memory_())
        model[0].cache = {"k": [torch.rand(2).share_memory_()]}
        names = [each.name for each in of_cpu(model, [torch.rand(2).share_memory_()]).pause().left]
        self.assertEqual(names, ["Sequential.0.weight", "Sequential.0.cache['k'][0]", "list[0]"])


class Left(Case):

    def check_left(self, holder, tensor, size, why):
        """Is reported, and keeps its memory and content through a cycle."""
        address, content = tensor.data_ptr(), tensor.tolist()
        storages = of_cpu(holder)
        for _ in range(2):
            report = storages.pause()
            self.assertEqual((report.blocks, report.kept, [each.bytes for each in report.left]), (0, size, [size]))
            self.assertIn(why, report.left[0].why)
            self.assertEqual((tensor.data_ptr(), tensor.tolist(), storages.resume().blocks), (address, content, 0))

    def test_memory_of_others(self):
        memory_of_others = torch.frombuffer(bytearray(range(16)), dtype=torch.uint8)
        self.check_left(memory_of_others, memory_of_others, 16, "not PyTorch's own")

    def test_memory_that_other_processes_share(self):
        shared = torch.rand(3).share_memory_()
        self.check_left(shared, shared, 12, "shared with other processes")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "saved"
            torch.save({"a": torch.arange(5.)}, path)
            tensor = torch.load(path, mmap=True)["a"]
            report = of_cpu(tensor).pause()
            self.assertEqual((report.blocks, len(report.left), tensor.tolist()), (0, 1, [0., 1., 2., 3., 4.]))

    def test_numpy_arrays_on_either_side(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("NumPy is not installed")
        imported, exported = torch.from_numpy(numpy.arange(3.)), torch.arange(3.)
        array = exported.numpy()
        self.check_left(imported, imported, 24, "NumPy")
        self.check_left(exported, exported, 12, "NumPy")
        exported[1] = 7
        self.assertEqual(array.tolist(), [0, 7, 2])

    def test_what_stays_takes_those_that_have_its_memory_along(self):
        mine, other = torch.arange(4.), torch.rand(3)
        theirs = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(mine[1:3]))
        report = of_cpu(mine, theirs, other).pause()
        self.assertEqual((report.parked, report.kept), (12, 16 + theirs.untyped_storage().nbytes()))
        self.assertEqual(sum("in common" in each.why for each in report.left), 1)
        theirs[0] = 7
        self.assertEqual(mine.tolist(), [0, 7, 2, 3])

    def test_neighbours_of_what_stays_are_paused(self):

        def held(start, end, stays=False):
            storage = mock.Mock(nbytes=lambda: end - start, resizable=lambda: not stays, is_shared=lambda: False)
            return holdings.Held(f"{start}", storage, start)

        stay = [held(100, 200, True), held(300, 900, True), held(400, 500, True)]
        apart = [held(0, 100), held(200, 300), held(900, 950)]
        meeting = [held(50, 101), held(120, 130), held(199, 250), held(600, 601), held(0, 1000)]
        can, left = movable.apart(stay + apart + meeting, ())
        self.assertEqual((can, len(left)), (apart, len(stay + meeting)))

    def test_tensors_that_hide_their_storage(self):

        class Wrapper(torch.Tensor):

            @staticmethod
            def __new__(cls, inner):
                return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

            __torch_dispatch__ = None

        opaque = torch.rand(4).to_mkldnn() if torch.backends.mkldnn.is_available() else Wrapper(torch.rand(4))
        report = of_cpu(opaque, Wrapper(torch.rand(3)), torch.rand(2)).pause()
        self.assertEqual((report.parked, report.kept), (8, 28))
        self.assertEqual({each.why for each in report.left}, {"this kind of tensor hides its storage"})
        self.assertEqual(recreate.Storages(opaque, device="cuda").pause().left, ())


class Graphs(Case):
    """What is asked about captured graphs, with a stand-in for them."""

    def setUp(self):
        super().setUp()

        class CUDAGraph:

            def __init__(self, pool=None):
                self.of = pool

            def pool(self):
                if self.of is None:
                    raise RuntimeError("no capture")
                return self.of

        replaced = mock.patch.object(torch.cuda, "CUDAGraph", CUDAGraph)
        replaced.start()
        self.addCleanup(replaced.stop)

    def test_those_that_were_captured_are_found_where_graphs_run(self):
        graphs = [torch.cuda.CUDAGraph((0, 1)), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph((0, 2))]
        self.assertEqual(memory.captured_graphs({torch.device("cpu")}), [])
        self.assertEqual(memory.captured_graphs({torch.device("cuda", 0)}), [graphs[0], graphs[2]])

    def test_storages_in_the_memory_of_a_graph_stay(self):
        inside, outside = torch.rand(3), torch.rand(3)
        segments = [{"segment_pool_id": pool, "blocks": [{"address": tensor.data_ptr()}]}
                    for pool, tensor in (((0, 1), inside), ((0, 0), outside))]
        with mock.patch.object(torch.cuda, "memory_snapshot", lambda: segments):
            blocks = memory.of_graphs([torch.cuda.CUDAGraph((0, 1))])
            self.assertEqual(memory.of_graphs([]), set())
        found, _ = holdings.held([inside, outside], lambda device: True)
        can, left = movable.apart(found, blocks)
        self.assertEqual([each.address for each in can], [outside.data_ptr()])
        self.assertIn("graph writes to it", left[0].why)


if __name__ == "__main__":
    unittest.main()
