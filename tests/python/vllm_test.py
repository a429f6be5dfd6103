# SPDX-License-Identifier: Apache-2.0
"""vLLM's sleep mode on Lowtide: stand-ins with the interfaces of four versions, on the simulated GPU; each case in a process
of its own."""
import contextlib
import sys

from support import MIB, Played, main, raises
from vllm_engine import VERSIONS, Engine, arguments, forget_all_tensors, parked

if len(sys.argv) > 1:  # a case is played
    from vllm_engine import lowtide, plugin, torch


def levels(device):
    engine = Engine(device)
    assert parked("weights", "kv_cache") == [False, False]
    before = device.free_bytes()
    engine.worker.sleep()
    assert parked("weights", "kv_cache") == [True, True] and device.free_bytes() - before >= 70 * MIB
    engine.worker.sleep()  # again
    engine.worker.wake_up()
    engine.expect(parameter=b"parameter", buffer=b"buffer")
    engine.worker.sleep(level=2)
    assert lowtide.info("weights").backup == 0
    engine.worker.wake_up(["weights"])
    assert parked("weights", "kv_cache") == [False, True]
    assert not engine.parameter.read().startswith(b"parameter")  # it is to be loaded anew
    engine.expect(buffer=b"buffer")
    engine.worker.wake_up(["kv_cache"])
    engine.expect(table=b"table")
    engine.worker.wake_up()  # again
    assert parked("weights", "kv_cache") == [False, False]


def kv_cache_before_weights(device):
    engine = Engine(device)
    engine.worker._sleep_saved_buffers = {"what vLLM": "would write back at once"}
    engine.worker.sleep(level=2)
    assert engine.worker._sleep_saved_buffers == {}
    engine.worker.wake_up(tags=["kv_cache"])
    assert parked("weights", "kv_cache") == [True, False]
    engine.worker.wake_up(tags=["weights"])
    engine.expect(buffer=b"buffer")


def no_room_to_wake_up(device):
    engine = Engine(device)
    engine.worker.sleep()
    taken = device.allocate(device.free_bytes() - 32 * MIB)  # room for the weights alone
    with raises(lowtide.DeviceMemoryError) as caught:
        engine.worker.wake_up()
    assert "64.0 MiB" in str(caught.exception), caught.exception
    assert parked("weights", "kv_cache") == [True, True]
    engine.worker.wake_up(["weights"])
    engine.expect(parameter=b"parameter", buffer=b"buffer")
    device.free_block(taken)
    engine.worker.wake_up()
    assert parked("weights", "kv_cache") == [False, False]


def no_room_on_the_host(device):
    engine = Engine(device)
    lowtide.set("host.budget", "1MiB")
    with raises(lowtide.HostBudgetError):
        engine.worker.sleep()
    assert parked("weights", "kv_cache") == [False, False]
    engine.expect(parameter=b"parameter", buffer=b"buffer", cache=b"cache")


def adapters(device):
    engine = Engine(device)
    manager = lora_class("LoRAModelManager")()
    with engine.worker._maybe_get_memory_pool_context("weights"):
        manager._create_lora_modules()
    model = lora_class("LoRAModel")
    assert model.from_lora_tensors(1, "on the host", None, "cpu") == "on the host"
    adapter = model.from_lora_tensors(1, {}, None)
    assert lowtide.info("lora").resident == 4 * MIB and lowtide.info("lora_adapters").resident == 4 * MIB
    before = device.free_bytes()
    assert manager.activate_adapter(1)
    assert parked("lora", "lora_adapters") == [False, True] and device.free_bytes() - before >= 4 * MIB
    engine.worker.sleep(level=2)
    assert parked("lora", "lora_adapters") == [True, True]
    engine.worker.wake_up(["weights"])
    assert parked("lora", "lora_adapters") == [False, True]
    assert manager.slots.read().startswith(b"slots") and adapter.read().startswith(b"adapter")


def lora_class(name):
    import importlib
    for module in ("vllm.lora.model_manager", "vllm.lora.lora_model", "vllm.lora.models"):
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise AssertionError(name)


def graphs(device):
    engine = Engine(device)
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin(pool=None)
    block = device.allocate(4 * MIB)
    graph.capture_end()
    outside = device.allocate(4 * MIB)
    assert lowtide.info("cuda_graph").blocks == 1
    device.write(block, b"captured")
    engine.worker.sleep(level=2)
    assert parked("cuda_graph") == [True]
    engine.worker.wake_up(["weights"])
    assert device.read(block, 8) == b"captured"
    device.free_block(outside)


def paused_by_another(_device):
    """The KV cache of requests and prefixes is vLLM's to drop."""
    engine = Engine(_device)
    engine.worker.sleep()
    engine.worker.wake_up()
    engine.cache.copy_(torch.Tensor(None, 5, b"again"))
    lowtide.pause()
    assert parked("weights", "kv_cache") == [True, True]
    lowtide.resume()
    engine.expect(cache=b"again", parameter=b"parameter")


def second_runner(_device):
    plugin.register()
    from vllm.v1.worker.gpu import attn_utils
    from vllm.v1.worker.gpu_worker import Worker
    with Worker()._maybe_get_memory_pool_context("kv_cache"):
        torch.tensor_of(b"table", 2 * MIB)
        attn_utils._allocate_kv_cache(*[None] * arguments(attn_utils._allocate_kv_cache))
    assert lowtide.info("kv_cache").resident == 64 * MIB and lowtide.info("runtime").resident == 2 * MIB


def backend(_device):
    plugin.register()
    from vllm.device_allocator import sleep_mode_backend
    assert sleep_mode_backend.SleepModeBackendFactory.registered == {"lowtide": ("lowtide.engines.vllm.backend", "LowtideBackend")}
    from lowtide.engines.vllm.backend import LowtideBackend
    mine = LowtideBackend()
    mine.suspend(level=1)
    mine.resume()
    assert mine._state == "RUNNING"


def unknown_layout(_device):
    plugin.register()
    from vllm.device_allocator import cumem
    assert cumem.CuMemAllocator.__module__ == "vllm.device_allocator.cumem"


def without_lowtide(_device):
    plugin.register()
    assert "vllm" not in sys.modules


class OtherRank:
    """A group of two ranks, of which this process is the first. `failures` is what the other says at each agreement, the last
    of them for ever."""
    world_size, rank, rank_in_group, cpu_group = 2, 0, 0, "gloo"

    def __init__(self, **groups):
        import types
        self.failures = [None]
        sys.modules["vllm.distributed.parallel_state"] = types.SimpleNamespace(_WORLD=self, **(groups or {"_TP": self}))
        torch.distributed = types.SimpleNamespace(all_gather_object=self.gather)

    def gather(self, said, mine, group):
        assert group == "gloo"
        said[:] = [mine, [self.failures.pop(0) if len(self.failures) > 1 else self.failures[0]]]


def executed_by(engine, name):
    import types
    engine.worker.vllm_config = types.SimpleNamespace(parallel_config=types.SimpleNamespace(distributed_executor_backend=name))


def another_rank_fails(device):
    engine, other = Engine(device), OtherRank()
    other.failures = ["no host memory"]
    for backend_name in ("ray", "mp"):  # of the latter the last rank speaks for all
        executed_by(engine, backend_name)
        with raises(lowtide.Error) if backend_name == "ray" else contextlib.nullcontext() as caught:
            engine.worker.sleep(level=2)
        assert backend_name == "mp" or "rank 1: no host memory" in str(caught.exception)
        assert parked("weights", "kv_cache") == [False, False]
        engine.expect(parameter=b"parameter", buffer=b"buffer", cache=b"cache")
    other.failures = [None]
    engine.worker.sleep()
    other.failures = ["no device memory"]
    engine.worker.wake_up()
    assert parked("weights", "kv_cache") == [True, True]
    assert lowtide.info("kv_cache").backup == 0  # it came back empty: there is nothing to keep
    other.failures = [None]
    engine.worker.wake_up()
    engine.expect(parameter=b"parameter", buffer=b"buffer")
    other.failures = [None, "a capture is under way"]
    engine.worker.sleep(level=2)  # the weights go last
    engine.expect(parameter=b"parameter", buffer=b"buffer")


def this_rank_alone_fails(device):
    """Nobody else would say it."""
    engine, _ = Engine(device), OtherRank()
    executed_by(engine, "mp")
    engine.worker.sleep()
    with raises(TypeError):
        engine.worker.wake_up(tags=1)
    engine.worker.wake_up()
    engine.expect(parameter=b"parameter", buffer=b"buffer")


def other_engines_in_the_world(device):
    """Data parallelism: an engine sleeps when it is told to, and others need not."""
    other = OtherRank(_TP=None)
    torch.distributed.all_gather_object = None  # who is not told to sleep does not answer
    engine = Engine(device)
    engine.worker.sleep()
    lowtide.set("device.wait", "0s")
    taken = device.allocate(device.free_bytes() - 32 * MIB)
    with raises(lowtide.DeviceMemoryError):  # the world's last rank is another engine's
        executed_by(engine, "mp")
        engine.worker.wake_up()
    device.free_block(taken)
    engine.worker.wake_up()
    engine.expect(parameter=b"parameter", buffer=b"buffer")
    assert other.failures == [None]


def two_engines_one_after_the_other(device):
    """The first one goes while it is asleep."""
    from lowtide.engines.vllm.allocator import Allocator
    first = Engine(device)
    first.worker.sleep(level=2)
    assert Allocator.get_instance().reloaded is None  # it would keep the weights
    forget_all_tensors()
    assert Allocator.get_instance().get_current_usage() == 0
    second = Engine(device)
    second.worker.sleep()
    second.worker.wake_up()
    second.expect(parameter=b"parameter", buffer=b"buffer")
    second.worker.sleep(level=2)
    second.worker.wake_up()
    second.expect(buffer=b"buffer")


def resumed_by_another(device):
    """Who knows nothing of what lies beside the weights."""
    engine = Engine(device)
    engine.worker.sleep(level=2)
    lowtide.resume()
    engine.worker.wake_up()
    engine.expect(buffer=b"buffer")


def beside_an_old_finder(device):
    """One without find_spec, as importers of before Python 3.4 are: Python does without it."""
    sys.meta_path.insert(0, type("Old", (), {"find_module": lambda *_: None}))
    Engine(device).worker.sleep()
    assert parked("weights") == [True]


def configured_to_drop_weights(device):
    engine = Engine(device)
    engine.worker.sleep(level=1)
    engine.worker.wake_up()
    engine.expect(parameter=b"parameter")


class Vllm(Played):

    def each_version(self, case, **variables):
        for version in VERSIONS:
            with self.subTest(version):
                yield self.play(case, preload="PRELOAD", LOWTIDE_TEST_VLLM=version, **variables)

    def test_both_levels_and_tags_one_by_one(self):
        list(self.each_version(levels))

    def test_the_kv_cache_wakes_up_before_the_weights(self):
        list(self.each_version(kv_cache_before_weights))

    def test_a_wake_up_without_room_loses_nothing(self):
        list(self.each_version(no_room_to_wake_up))

    def test_a_sleep_without_host_memory_changes_nothing(self):
        list(self.each_version(no_room_on_the_host))

    def test_adapters(self):
        list(self.each_version(adapters, LOWTIDE_SIM_PERSONA="h200"))

    def test_graphs(self):
        list(self.each_version(graphs))

    def test_a_pause_from_outside_keeps_the_kv_cache(self):
        list(self.each_version(paused_by_another))

    def test_tables_of_the_second_runner_are_not_dropped_with_the_kv_cache(self):
        for version in ("0.22.0", "0.26.0"):
            self.play(second_runner, preload="PRELOAD", LOWTIDE_TEST_VLLM=version)

    def test_the_backend_is_registered(self):
        for version in VERSIONS[2:]:
            self.play(backend, preload="PRELOAD", LOWTIDE_TEST_VLLM=version)

    def test_an_unknown_layout_is_left_alone(self):
        for cumem in ("pass\n    def teleport(self): pass", "instance = 'in use'"):
            said = self.play(unknown_layout, preload="PRELOAD", LOWTIDE_TEST_VLLM="0.26.0", LOWTIDE_TEST_CUMEM=cumem)
            self.assertIn("vLLM runs without Lowtide", said)

    def test_lowtide_switched_off(self):
        self.assertEqual(self.play(without_lowtide, preload="PRELOAD", LOWTIDE_TEST_VLLM="0.26.0", LOWTIDE_DISABLE="1"), "")

    def test_a_configuration_that_is_wrong(self):
        said = self.play(unknown_layout, preload="PRELOAD", LOWTIDE_TEST_VLLM="0.26.0", LOWTIDE_CONF="tag.weights.pause:offlaod")
        self.assertIn("vLLM runs without Lowtide", said)

    def test_a_rank_that_fails_leaves_both_where_they_were(self):
        list(self.each_version(another_rank_fails))

    def test_an_error_of_one_rank_alone_is_raised(self):
        self.play(this_rank_alone_fails, preload="PRELOAD", LOWTIDE_TEST_VLLM="0.26.0")

    def test_engines_under_data_parallelism_sleep_each_for_itself(self):
        list(self.each_version(other_engines_in_the_world))

    def test_an_engine_that_went_asleep_leaves_nothing_to_the_next(self):
        list(self.each_version(two_engines_one_after_the_other))

    def test_a_resume_from_outside_does_not_lose_buffers(self):
        list(self.each_version(resumed_by_another))

    def test_level_1_keeps_weights_whatever_the_configuration_says(self):
        self.play(configured_to_drop_weights, preload="PRELOAD", LOWTIDE_TEST_VLLM="0.26.0", LOWTIDE_CONF="tag.weights.pause:discard")

    def test_a_finder_without_find_spec(self):
        self.play(beside_an_old_finder, preload="PRELOAD", LOWTIDE_TEST_VLLM="0.26.0")

    def test_not_started_with_lowtide_run(self):
        self.play(without_lowtide, LOWTIDE_TEST_VLLM="0.26.0")


if __name__ == "__main__":
    main(globals())
