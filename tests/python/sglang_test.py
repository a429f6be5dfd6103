# SPDX-License-Identifier: Apache-2.0
"""The plug-in for SGLang over stand-ins with the interfaces of three versions, on the simulated GPU; each case in a process
of its own."""
import logging
import os
import pathlib
import pkgutil
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "engines"))

import stand_in  # noqa: E402

from support import MIB, PACKAGE, SOURCES, Played, main, raises  # noqa: E402

VERSIONS = ("0.5.11", "0.5.13")  # the handlers are the scheduler's by a base class, and an object of their own
ALL_TAGS = ["kv_cache", "weights", "cuda_graph"]
REQUEST = "def __init__(self, tags=None): self.tags = tags"
RELEASE = """
tags = recv_req.tags or self.all_tags
self.offload_tags.update(tags)
for tag in ("kv_cache", "weights", "cuda_graph"):
    if tag in tags:
        if tag == "weights":
            assert self.weights_are_there, "copies the model's buffers"
            self.weights_are_there = False
        self.memory_saver_adapter.pause(tag)
return "released"
""".strip()
RESUME = """
tags = recv_req.tags or self.all_tags
for tag in tags:
    self.offload_tags.remove(tag)
for tag in ("cuda_graph", "weights", "kv_cache"):
    if tag in tags:
        self.memory_saver_adapter.resume(tag)
        self.weights_are_there |= tag == "weights"
return "resumed"
""".strip()
REGISTER = "assert hook_type is HookType.AROUND\ncls.hooks[target] = hook"
APPLY = """
import functools, pkgutil
for target, hook in cls.hooks.items():
    where, name = target.rsplit(".", 1)
    owner = pkgutil.resolve_name(where)
    setattr(owner, name, functools.partialmethod(lambda self, *given, _hook=hook, _original=getattr(owner, name):
                                                 _hook(_original, self, *given)))
""".strip()
BODIES = {
    "HookType": "AFTER, AROUND = 'after', 'around'",
    "HookRegistry": "hooks = {}",
    "HookRegistry.register": REGISTER,
    "HookRegistry.apply_hooks": APPLY,
    "LoRAMemoryPool": "pass",
    "LoRAMemoryPool.init_buffers": "import torch\nself.A_buffer, self.B_buffer = (torch.allocate(4 << 20) for _ in 'AB')",
    "ReleaseMemoryOccupationReqInput": REQUEST,
    "ResumeMemoryOccupationReqInput": REQUEST,
    **{f"{owner}.{function}": body for owner in ("SchedulerWeightUpdaterManager", "SchedulerUpdateWeightsMixin")
       for function, body in (("release_memory_occupation", RELEASE), ("resume_memory_occupation", RESUME))},
}

if len(sys.argv) > 1:  # a case is played: what it imports
    _folder = tempfile.TemporaryDirectory(prefix="lowtide-test-")
    _root = pathlib.Path(_folder.name)
    stand_in.write(_root, f"sglang-{os.environ.get('LOWTIDE_TEST_SGLANG', VERSIONS[-1])}.json", BODIES)
    (_root / "sglang" / "srt" / "constants.py").write_text(f"GPU_MEMORY_ALL_TYPES = {ALL_TAGS}\n", encoding="utf-8")
    sys.path[:0] = [str(PACKAGE), str(HERE / "stand_in"), str(_root)]
    import torch  # noqa: E402

    import lowtide  # noqa: E402
    import lowtide.compat.torch_memory_saver as compat  # noqa: E402
    from lowtide.engines import sglang as plugin  # noqa: E402


def handlers():
    """The class that has them, as SGLang's scheduler finds it."""
    try:
        return pkgutil.resolve_name("sglang.srt.managers.scheduler_components.weight_updater."
                                    "SchedulerWeightUpdaterManager")
    except (ImportError, AttributeError):
        return pkgutil.resolve_name("sglang.srt.managers.scheduler_update_weights_mixin.SchedulerUpdateWeightsMixin")


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

    def __init__(self, device):
        from sglang.srt.lora.mem_pool import LoRAMemoryPool
        saver = compat.torch_memory_saver
        self.device, self.adapter = device, Adapter()
        with saver.region("weights", enable_cpu_backup=True):
            self.weights = torch.allocate(16 * MIB)
        self.slots = LoRAMemoryPool()
        self.slots.init_buffers("model")
        with saver.region("kv_cache"):
            self.kv_cache = torch.allocate(32 * MIB)
        self.updater = handlers()()
        self.updater.offload_tags, self.updater.all_tags = set(), ALL_TAGS
        self.updater.memory_saver_adapter, self.updater.weights_are_there = self.adapter, True

    def release(self, *tags):
        """The calls that reach the saver."""
        from sglang.srt.managers.io_struct import ReleaseMemoryOccupationReqInput, ReleaseMemoryOccupationReqOutput
        answer = self.updater.release_memory_occupation(ReleaseMemoryOccupationReqInput(list(tags) or None))
        assert answer == "released" or isinstance(answer, ReleaseMemoryOccupationReqOutput), answer
        return self.adapter.since()

    def resume(self, *tags):
        from sglang.srt.managers.io_struct import ResumeMemoryOccupationReqInput, ResumeMemoryOccupationReqOutput
        answer = self.updater.resume_memory_occupation(ResumeMemoryOccupationReqInput(list(tags) or None))
        assert answer == "resumed" or isinstance(answer, ResumeMemoryOccupationReqOutput), answer
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
    assert device.write(engine.slots.A_buffer, b"adapter") == 0
    before = device.free_bytes()
    assert engine.release("kv_cache") == ["pause kv_cache"]
    assert lowtide.info("lora").resident == 8 * MIB
    assert engine.release("weights") == ["pause weights", "pause lora"]
    assert device.free_bytes() - before == (16 + 8 + 32) * MIB
    assert lowtide.read_paused(engine.slots.A_buffer, 7) == b"adapter"
    assert engine.resume("weights") == ["resume lora", "resume weights"]
    assert device.read(engine.slots.A_buffer, 7) == b"adapter"
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
    assert device.write(engine.slots.A_buffer, b"adapter") == 0
    engine.release()
    block = device.allocate(device.free_bytes() - 20 * MIB)  # room for the slots, and not for the weights too
    with raises(lowtide.DeviceMemoryError):
        engine.resume("weights")
    device.free_block(block)
    compat.torch_memory_saver.resume("weights")
    assert device.read(engine.slots.A_buffer, 7) == b"adapter"


def without_the_library(device):
    """A process that is not under Lowtide: nothing of SGLang is looked at."""
    plugin.register()
    assert not [name for name in sys.modules if name.startswith("sglang")]


def without_a_plug_in_system(device):
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
    found = sorted(target.rsplit(".", 1)[1] for target in load_plugins())
    assert found == ["release_memory_occupation", "resume_memory_occupation"], found


class Sglang(Played):

    def each_version(self, case):
        for version in VERSIONS:
            with self.subTest(version):
                self.play(case, preload="PRELOAD", LOWTIDE_TEST_SGLANG=version)

    def test_slots_of_adapters_are_tagged_and_follow_the_weights(self):
        self.each_version(slots_follow_the_weights)

    def test_a_repeated_release_or_resume_reaches_neither_the_model_nor_the_saver(self):
        self.each_version(repeated_calls)

    def test_a_resume_that_finds_room_for_the_slots_alone_loses_nothing(self):
        self.each_version(a_resume_without_room)

    def test_a_patch_point_that_is_not_there_keeps_none_of_the_others(self):
        self.each_version(what_is_absent_is_left_out)

    def test_a_version_without_a_plug_in_system_is_left_alone(self):
        self.play(without_a_plug_in_system, preload="PRELOAD", LOWTIDE_TEST_SGLANG="0.5.10")

    def test_a_process_that_is_not_under_lowtide_is_left_alone(self):
        self.play(without_the_library)

    def test_a_process_that_lowtide_is_kept_out_of_is_left_alone(self):
        self.play(without_the_library, preload="PRELOAD", LOWTIDE_DISABLE="1")

    def test_the_entry_point_names_the_function(self):
        group = re.search(r'^\[project.entry-points."sglang.srt.plugins"\]\nlowtide = "(.*)"$',
                          (SOURCES.parents[1] / "pyproject.toml").read_text(encoding="utf-8"), re.M)
        sys.path.insert(0, str(PACKAGE))
        self.assertTrue(callable(pkgutil.resolve_name(group.group(1))))


if __name__ == "__main__":
    main(globals())
