# SPDX-License-Identifier: Apache-2.0
"""The plug-in for SGLang over a stand-in for SGLang and PyTorch, on the simulated GPU; and the stand-in against SGLang itself,
where a version since 0.5.13 is installed or LOWTIDE_TEST_SGLANG names the folder that holds it."""
import ast
import importlib.machinery
import logging
import os
import pathlib
import pkgutil
import re
import sys
import types
import unittest

from support import MIB, PACKAGE, Played, main, raises

STAND_IN = pathlib.Path(__file__).parent / "stand_in"
sys.path[:0] = [str(PACKAGE), str(STAND_IN)]

import torch  # noqa: E402

import lowtide  # noqa: E402
import lowtide.compat.torch_memory_saver as compat  # noqa: E402
from lowtide.engines import sglang as plugin  # noqa: E402

SOURCES = pathlib.Path(__file__).parents[2]
UPDATER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"


class Adapter:
    """SGLang's adapter of torch_memory_saver, whose calls are noted."""

    def __init__(self):
        self.calls = []

    def pause(self, tag):
        self.calls.append(f"pause {tag}")
        compat.torch_memory_saver.pause(tag)

    def resume(self, tag):
        self.calls.append(f"resume {tag}")
        compat.torch_memory_saver.resume(tag)

    def since(self):
        calls, self.calls = self.calls, []
        return calls


class Engine:
    """What a scheduler has made when it is ready: weights, slots of adapters, a KV cache."""

    def __init__(self, device, updater=None):
        from sglang.srt.lora.mem_pool import LoRAMemoryPool
        saver = compat.torch_memory_saver
        self.device = device
        with saver.region("weights", enable_cpu_backup=True):
            self.weights = torch.allocate(16 * MIB)
        self.slots = LoRAMemoryPool("model")
        with saver.region("kv_cache"):
            self.kv_cache = torch.allocate(32 * MIB)
        self.updater = updater or pkgutil.resolve_name(UPDATER)(Adapter())
        self.adapter = self.updater.memory_saver_adapter

    def slot(self):
        return self.slots.A_buffer["model"]

    def release(self, *tags):
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqInput, ReleaseMemoryOccupationReqOutput
        answer = self.updater.release_memory_occupation(ReleaseMemoryOccupationReqInput(list(tags) or None))
        assert isinstance(answer, ReleaseMemoryOccupationReqOutput), answer
        return self.adapter.since()

    def resume(self, *tags):
        from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqInput, ResumeMemoryOccupationReqOutput
        answer = self.updater.resume_memory_occupation(ResumeMemoryOccupationReqInput(list(tags) or None))
        assert isinstance(answer, ResumeMemoryOccupationReqOutput), answer
        return self.adapter.since()


def load_plugins():
    """As SGLang does: calls what the entry points name, then applies what they have registered."""
    from sglang.srt.plugins.hook_registry import HookRegistry
    plugin.register()
    HookRegistry.apply_hooks()
    return set(HookRegistry.hooks)


def slots_follow_the_weights(device):
    load_plugins()
    engine = Engine(device)
    assert lowtide.info("lora").resident == 8 * MIB and lowtide.info("weights").resident == 16 * MIB
    assert device.write(engine.slot(), b"adapter") == 0
    before = device.free_bytes()
    assert engine.release("kv_cache") == ["pause kv_cache"]
    assert lowtide.info("lora").resident == 8 * MIB
    assert engine.release("weights") == ["pause weights", "pause lora"]
    assert device.free_bytes() - before == (16 + 8 + 32) * MIB
    assert lowtide.read_paused(engine.slot(), 7) == b"adapter"
    assert engine.resume("weights") == ["resume lora", "resume weights"]
    assert device.read(engine.slot(), 7) == b"adapter"
    assert engine.resume("kv_cache") == ["resume kv_cache"]
    assert device.free_bytes() == before


def repeated_calls(device):
    load_plugins()
    engine = Engine(device)
    assert engine.release("kv_cache") == ["pause kv_cache"]
    assert engine.release("kv_cache") == []
    assert engine.release() == ["pause weights", "pause cuda_graph", "pause lora"]
    assert engine.release() == [] and engine.release("weights") == []
    assert engine.resume("weights") == ["resume lora", "resume weights"]
    assert engine.resume("weights", "weights") == []
    assert engine.resume() == ["resume cuda_graph", "resume kv_cache"]
    assert engine.resume() == []
    assert engine.release("weights", "unknown") == ["pause weights", "pause lora"]


def a_resume_without_room(device):
    load_plugins()
    lowtide.set("device.wait", "0")
    engine = Engine(device)
    assert device.write(engine.slot(), b"adapter") == 0
    engine.release()
    block = device.allocate(device.free_bytes() - 20 * MIB)  # room for the slots, and not for the weights too
    with raises(lowtide.DeviceMemoryError):
        engine.resume("weights")
    device.free_block(block)
    compat.torch_memory_saver.resume("weights")
    assert device.read(engine.slot(), 7) == b"adapter"


def without_the_library(device):
    """A process that is not under Lowtide: nothing of SGLang is looked at."""
    plugin.register()
    assert not [name for name in sys.modules if name.startswith("sglang")]


def without_a_plug_in_system(device):
    sys.modules["sglang.srt.plugins"] = None
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append((record.levelname, record.getMessage()))
    plugin.logger.addHandler(handler)
    plugin.logger.setLevel(logging.DEBUG)
    plugin.register()
    assert len(said) == 1 and said[0][0] == "DEBUG" and "no plug-in system" in said[0][1], said


def what_is_absent_is_left_out(device):
    from sglang.srt.lora.mem_pool import LoRAMemoryPool
    del LoRAMemoryPool.init_buffers
    assert load_plugins() == {f"{UPDATER}.release_memory_occupation", f"{UPDATER}.resume_memory_occupation"}


def handlers_of_older_versions(device):
    """Before 0.5.13 they were the scheduler's own, by a base class."""
    now, then = UPDATER.rsplit(".", 1)[0], "sglang.srt.managers.scheduler_update_weights_mixin"
    names = ("release_memory_occupation", "resume_memory_occupation")
    handlers = {name: getattr(pkgutil.resolve_name(UPDATER), name) for name in names}
    older = types.ModuleType(then)
    older.SchedulerUpdateWeightsMixin = type("SchedulerUpdateWeightsMixin", (), handlers)
    del sys.modules["sglang.srt.managers.scheduler_components"].weight_updater
    sys.modules.update({then: older, now: None})
    assert load_plugins() >= {f"{then}.SchedulerUpdateWeightsMixin.{name}" for name in names}
    scheduler = type("Scheduler", (older.SchedulerUpdateWeightsMixin,), {})()
    scheduler.offload_tags, scheduler.memory_saver_adapter, scheduler.weights_are_there = set(), Adapter(), True
    engine = Engine(device, scheduler)
    assert engine.release("weights") == ["pause weights", "pause lora"] and engine.release("weights") == []
    assert engine.resume("weights") == ["resume lora", "resume weights"] and engine.resume() == []


class Sglang(Played):
    def test_slots_of_adapters_are_tagged_and_follow_the_weights(self):
        self.play(slots_follow_the_weights, preload="PRELOAD")

    def test_a_repeated_release_or_resume_reaches_neither_the_model_nor_the_saver(self):
        self.play(repeated_calls, preload="PRELOAD")

    def test_a_resume_that_finds_room_for_the_slots_alone_loses_nothing(self):
        self.play(a_resume_without_room, preload="PRELOAD")

    def test_a_process_that_is_not_under_lowtide_is_left_alone(self):
        self.play(without_the_library)

    def test_a_version_without_a_plug_in_system_is_left_alone(self):
        self.play(without_a_plug_in_system, preload="PRELOAD")

    def test_a_patch_point_that_is_not_there_keeps_none_of_the_others(self):
        self.play(what_is_absent_is_left_out, preload="PRELOAD")

    def test_the_handlers_of_older_versions_are_found(self):
        self.play(handlers_of_older_versions, preload="PRELOAD")

    def test_the_entry_point_names_the_function(self):
        group = re.search(r'^\[project.entry-points."sglang.srt.plugins"\]\nlowtide = "(.*)"$',
                          (SOURCES / "pyproject.toml").read_text(encoding="utf-8"), re.M)
        self.assertIs(pkgutil.resolve_name(group.group(1)), plugin.register)


def functions(path):
    """The parameters of each function of a file, by its name with that of its class."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owners = [("", tree)] + [(f"{node.name}.", node) for node in tree.body if isinstance(node, ast.ClassDef)]
    return {f"{owner}{node.name}": [each.arg for each in node.args.args + node.args.kwonlyargs]
            for owner, body in owners for node in body.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def real_sglang():
    if "LOWTIDE_TEST_SGLANG" in os.environ:
        return pathlib.Path(os.environ["LOWTIDE_TEST_SGLANG"]) / "sglang"
    found = importlib.machinery.PathFinder.find_spec("sglang", [path for path in sys.path if path != str(STAND_IN)])
    return pathlib.Path(found.origin).parent if found and found.origin else None


@unittest.skipUnless(real_sglang(), "SGLang is not here")
class StandIn(unittest.TestCase):
    def test_what_it_shares_with_sglang_takes_the_same_arguments(self):
        compared = 0
        for path in sorted((STAND_IN / "sglang").rglob("*.py")):
            real = functions(real_sglang() / path.relative_to(STAND_IN / "sglang"))
            for name, arguments in functions(path).items():
                if name in ("LoRAMemoryPool.__init__", "_around"):  # its own
                    continue
                self.assertEqual(real.get(name), arguments, f"{path.name}: {name}")
                compared += 1
        self.assertEqual(compared, 5)

    def test_the_tags_that_are_released_and_resumed_are_kept_under_the_name_that_is_looked_at(self):
        text = (real_sglang() / "srt/managers/scheduler_components/weight_updater.py").read_text(encoding="utf-8")
        for name in ("offload_tags", "memory_saver_adapter"):
            self.assertRegex(text, rf"(?m)^    {name}: ")


if __name__ == "__main__":
    main(globals())
