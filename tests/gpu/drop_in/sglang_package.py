# SPDX-License-Identifier: Apache-2.0
"""SGLang's own modules, those that the runner took out of its package, without the rest of it: whatever else they import
is stood in for, by as little as will do for one rank on one device."""
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types

import torch

NOT_NEEDED = ("sglang", "msgspec", "zmq", "pydantic")  # packages that are stood in for where they are not found


class StandIn:
    """An object of a class that is not there: holds what it is given by name, answers no."""

    def __init__(self, *_arguments, **named):
        self.__dict__.update(named)

    def __init_subclass__(cls, **_named):
        pass

    def __bool__(self):
        return False


def parallel():
    """One rank, with a real process group, whose barriers are SGLang's own calls."""
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    sizes = {name: 1 for name in ("tp_size", "attn_tp_size", "moe_tp_size", "moe_ep_size")}
    ranks = {name: 0 for name in ("tp_rank", "attn_tp_rank", "moe_tp_rank", "moe_ep_rank")}
    return types.SimpleNamespace(tp_group=types.SimpleNamespace(cpu_group=torch.distributed.group.WORLD), **sizes, **ranks)


FUNCTIONS = {"get_parallel": parallel, "is_pin_memory_available": lambda: False, "unwrap_lora_layer": lambda layer: layer,
             "get_layer_id": lambda name: None, "get_model": lambda: types.SimpleNamespace(weight_cache_mode="off")}


def missing(name):
    """A module's attribute that it does not have."""
    if name.startswith("__"):
        raise AttributeError(name)
    return FUNCTIONS.get(name) or type(name, (StandIn,), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.split(".")[0] in NOT_NEEDED:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = missing
        return module

    def exec_module(self, module):
        pass


def open_sglang(saver_package):
    """From now on `sglang` is what the runner took out, over `saver_package` for torch_memory_saver."""
    sys.modules["torch_memory_saver"] = saver_package
    sys.path.append(os.environ["DROP_IN_SGLANG"])
    sys.meta_path.append(Finder())
    for folder in ("sglang.srt.utils", "sglang.srt.lora", "sglang.srt.managers"):  # whose __init__ was left where it is
        importlib.import_module(folder).__getattr__ = missing
    from sglang.srt.utils.torch_memory_saver_adapter import TorchMemorySaverAdapter
    return TorchMemorySaverAdapter
