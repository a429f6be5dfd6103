# SPDX-License-Identifier: Apache-2.0
"""A worker of vLLM over a stand-in of the version that LOWTIDE_TEST_VLLM names, for the cases of vllm_test.py."""
import ctypes
import inspect
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE / "engines"))

import stand_in  # noqa: E402

from support import MIB, PACKAGE  # noqa: E402

VERSIONS = ("0.11.2", "0.22.0", "0.26.0", "0.33.0")
GIVES_ALLOCATOR = "from vllm.device_allocator.cumem import CuMemAllocator\nallocator = CuMemAllocator.get_instance()\n"
BODIES = {
    "CuMemAllocator": "instance = None\n    default_tag = 'default'",
    "SleepModeBackend": "_state = 'RUNNING'",
    "SleepModeBackendFactory": "registered = {}",
    "SleepModeBackendFactory.register_backend": "cls.registered[name] = (module_path, class_name)",
    "Worker.sleep": GIVES_ALLOCATOR + "allocator.sleep(offload_tags=('weights',) if level == 1 else ())",
    "Worker.wake_up": GIVES_ALLOCATOR + "allocator.wake_up(tags)",
    "Worker.get_model": "return self.model_runner.model",
    "Worker.reload_weights": "self.model_runner.reload_weights()",
    "Worker.start_weight_update": "assert not getattr(self, '_weight_update_active', False)\nself._weight_update_active = True",
    "Worker.update_weights": "try:\n    self.model_runner.model.load_weights(update_info)\nexcept BaseException:\n"
                             "    self._weight_update_active = False\n    raise",
    "Worker.finish_weight_update": "self._weight_update_active = False",
    "Worker._maybe_get_memory_pool_context": "return contextlib.nullcontext()",
    "GPUModelRunner._allocate_kv_cache_tensors": "import torch\nreturn torch.tensor_of(b'cache', 64 << 20)",
    "._allocate_kv_cache": "import torch\nreturn torch.tensor_of(b'cache', 64 << 20)",
    "LoRAModelManager._create_lora_modules": "import torch\nself.slots = torch.tensor_of(b'slots', 4 << 20)",
    "LoRAModelManager.activate_adapter": "return lora_id not in self.__dict__.setdefault('active', set())",
    "LoRAModel.from_lora_tensors": "import torch\nreturn torch.tensor_of(b'adapter', 4 << 20) if device != 'cpu' else tensors",
}

if len(sys.argv) > 1:  # a case is played: what it imports
    _folder = tempfile.TemporaryDirectory(prefix="lowtide-test-")
    stand_in.write(pathlib.Path(_folder.name), f"vllm-{os.environ['LOWTIDE_TEST_VLLM']}.json",
                   {**BODIES, **({"CuMemAllocator": os.environ["LOWTIDE_TEST_CUMEM"]} if "LOWTIDE_TEST_CUMEM" in os.environ else {})})
    sys.path[:0] = [str(PACKAGE), str(HERE / "stand_in"), _folder.name]
    import torch  # noqa: E402

    import lowtide  # noqa: E402
    from lowtide.engines import vllm as plugin  # noqa: E402


class Model:

    def __init__(self, *parameters):
        self._parameters = parameters

    def parameters(self):
        return iter(self._parameters)

    def load_weights(self, weights):
        """Pairs of the number of a parameter and its bytes."""
        for number, content in weights:
            self._parameters[number].copy_(torch.Tensor(None, len(content), content))


class Runner:

    def __init__(self, model):
        self.model, self.checkpoint = model, []

    def reload_weights(self):
        self.model.load_weights(self.checkpoint)


class Engine:
    """As a worker of vLLM does: registers the plug-in, loads, makes the KV cache. All memory by PyTorch's stand-in."""

    def __init__(self, device):
        plugin.register()
        plugin.register()
        from vllm.v1.worker.gpu_worker import Worker
        self.device, self.worker = device, Worker()
        with self.worker._maybe_get_memory_pool_context("weights"):
            self.parameter = torch.tensor_of(b"parameter", 4 * MIB)
            self.buffer = torch.tensor_of(b"buffer", 2 * MIB)
        self.worker.model_runner = Runner(Model(self.parameter))
        self.worker.load_model()
        self.allocate_cache()

    def allocate_cache(self):
        """As the version at hand does it, with a table of the runner's beside."""
        from vllm.v1.worker import gpu_model_runner
        runner = gpu_model_runner.GPUModelRunner()
        if hasattr(runner, "_allocate_kv_cache_tensors"):
            with self.worker._maybe_get_memory_pool_context("kv_cache"):
                self.table = torch.tensor_of(b"table", 2 * MIB)
                self.cache = runner._allocate_kv_cache_tensors(*[None] * arguments(runner._allocate_kv_cache_tensors))
        else:
            with self.worker._maybe_get_memory_pool_context("runtime"):
                self.table = torch.tensor_of(b"table", 2 * MIB)
                with self.worker._maybe_get_memory_pool_context("kv_cache"):
                    self.cache = torch.tensor_of(b"cache", 64 * MIB)

    def expect(self, **tensors):
        for name, value in tensors.items():
            assert getattr(self, name).read().startswith(value), (name, getattr(self, name).read()[:16])


def arguments(function):
    return len(inspect.signature(function).parameters)


def parked(*tags):
    return [lowtide.info(tag).resident == 0 and lowtide.info(tag).parked > 0 for tag in tags]


def forget_all_tensors():
    from lowtide import library
    for _, number, address, size in torch._blocks:
        library.load().lowtide_free(ctypes.c_void_p(address), ctypes.c_ssize_t(size), number, None)
    torch._blocks.clear()
