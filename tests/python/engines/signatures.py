# SPDX-License-Identifier: Apache-2.0
"""The places of the engines that Lowtide enters, read out of their sources without importing them.

    signatures.py ENGINE FOLDER    prints those of the package in FOLDER (the one that holds vllm/ or sglang/) as JSON
"""
import ast
import json
import pathlib
import sys
from typing import Dict, Optional, Union, Set

_HANDLERS: Set[str] = {"release_memory_occupation", "resume_memory_occupation"}

# Of each module the classes ("": the module itself), and of each the functions; None: all public ones. What a version lacks
# is left out.
PLACES: Dict[str, Dict[str, Dict[str, Optional[set]]]] = {
    "vllm": {
        "vllm.device_allocator.cumem": {"CuMemAllocator": None},
        "vllm.device_allocator.sleep_mode_backend": {"SleepModeBackend": None, "SleepModeBackendFactory": None},
        "vllm.v1.worker.gpu_worker": {
            "Worker": {"sleep", "wake_up", "_maybe_get_memory_pool_context", "load_model", "get_model", "execute_model", "reload_weights",
                       "start_weight_update", "update_weights", "finish_weight_update"}},
        "vllm.v1.worker.gpu_model_runner": {"GPUModelRunner": {"_allocate_kv_cache_tensors"}},
        "vllm.v1.worker.gpu.attn_utils": {"": {"_allocate_kv_cache"}},
        "vllm.lora.model_manager": {"LoRAModelManager": {"_create_lora_modules", "activate_adapter"}},
        "vllm.lora.lora_model": {"LoRAModel": {"from_lora_tensors"}},
        "vllm.lora.models": {"LoRAModelManager": {"_create_lora_modules", "activate_adapter"}, "LoRAModel": {"from_lora_tensors"}},
    },
    "sglang": {
        "sglang.srt.plugins.hook_registry": {"HookType": set(), "HookRegistry": {"register", "apply_hooks"}},
        "sglang.srt.lora.mem_pool": {"LoRAMemoryPool": {"init_buffers"}},
        "sglang.srt.managers.io_struct": {f"{verb}MemoryOccupationReq{which}": set() for verb in ("Release", "Resume")
                                          for which in ("Input", "Output")},
        "sglang.srt.managers.scheduler_components.weight_updater": {"SchedulerWeightUpdaterManager": _HANDLERS},
        "sglang.srt.managers.scheduler_update_weights_mixin": {"SchedulerUpdateWeightsMixin": _HANDLERS},
    },
}


def read(engine: str, folder: pathlib.Path) -> dict:
    """{module: {class: {function: [kind, arguments]}}} of what there is, without annotations."""
    found = {}
    for module, classes in PLACES[engine].items():
        path = folder / (module.replace(".", "/") + ".py")
        if not path.exists():
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in [tree, *tree.body]:
            name = "" if node is tree else getattr(node, "name", None)
            if isinstance(node, (ast.ClassDef, ast.Module)) and name in classes:
                functions = _functions(node, classes[name])
                if functions or isinstance(node, ast.ClassDef):
                    found.setdefault(module, {})[name] = functions
    return found


def _functions(owner: Union[ast.ClassDef, ast.Module], names: Optional[set]) -> dict:
    found = {}
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and (not node.name.startswith("_") if names is None else node.name in names):
            found[node.name] = [_kind(node), _arguments(node.args)]
    return found


def _kind(node: ast.FunctionDef) -> str:
    """The decorator that says how it is called; "" for a plain method."""
    for decorator in node.decorator_list:
        if ast.unparse(decorator) in ("staticmethod", "classmethod", "property", "contextmanager"):
            return ast.unparse(decorator)
    return ""


def _arguments(arguments: ast.arguments) -> str:
    for argument in arguments.posonlyargs + arguments.args + arguments.kwonlyargs + [arguments.vararg, arguments.kwarg]:
        if argument is not None:
            argument.annotation = None
    return ast.unparse(arguments)


if __name__ == "__main__":
    json.dump(read(sys.argv[1], pathlib.Path(sys.argv[2])), sys.stdout, indent=1)
    print()
