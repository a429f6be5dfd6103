# SPDX-License-Identifier: Apache-2.0
"""Which storages objects hold."""
import collections
import collections.abc
import dataclasses
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

import torch

_SERIES = (list, tuple, set, frozenset, collections.deque)
_HOLDERS = (torch.Tensor, torch.UntypedStorage, torch.nn.Module, torch.optim.Optimizer, collections.abc.Mapping,
            *_SERIES)
_NAMELESS = ("_parameters", "_buffers", "_modules")  # of a module: their keys are names of its own


@dataclasses.dataclass(frozen=True)
class Left:
    """What was left alone: where it was found, its size in bytes, and why."""
    name: str
    bytes: int
    why: str


@dataclasses.dataclass(frozen=True)
class Held:
    """A storage: the path on which it was first met, and its address."""
    name: str
    storage: torch.UntypedStorage
    address: int


def check(objects: Iterable[Any]) -> None:
    """Raises TypeError for an object that is not looked into."""
    for each in objects:
        if not isinstance(each, _HOLDERS):
            raise TypeError(f"{type(each).__name__} is not looked into: hand in its tensors, modules and optimizers, "
                            f"or lists, tuples, sets and mappings of them")


def held(objects: Iterable[Any], is_meant: Callable[[torch.device], bool]) -> Tuple[List[Held], List[Left]]:
    """Each storage with memory that the objects hold on the devices that are meant, once, and the tensors there whose
    storage PyTorch does not show."""
    storages: Dict[int, Held] = {}
    hidden = []
    for name, thing in _walk(objects):
        try:
            storage = thing if isinstance(thing, torch.UntypedStorage) else thing.untyped_storage()
            if is_meant(storage.device) and storage.device.type != "meta" and storage.nbytes() > 0:
                storages.setdefault(storage._cdata, Held(name, storage, storage.data_ptr()))
        except RuntimeError:
            if is_meant(thing.device):
                hidden.append(Left(name, thing.numel() * thing.element_size(), "this kind of tensor hides its storage"))
    return list(storages.values()), hidden


def _walk(objects: Iterable[Any]) -> Iterator[Tuple[str, Any]]:
    """The storages, and the tensors that have one of their own."""
    met: Dict[int, Any] = {}  # keeps what it met: the id of what is gone may be given again
    ahead = [(type(each).__name__, each) for each in objects][::-1]
    while ahead:
        name, thing = ahead.pop()
        if id(thing) in met:
            continue
        met[id(thing)] = thing
        if isinstance(thing, torch.Tensor):
            parts = list(_of_tensor(name, thing))
            if not _inside(thing):
                yield name, thing
        elif isinstance(thing, torch.UntypedStorage):
            parts = []
            yield name, thing
        else:
            parts = list(_of_holder(name, thing))
        ahead += [part for part in parts if isinstance(part[1], _HOLDERS)][::-1]


def _inside(tensor: torch.Tensor) -> List[str]:
    """The attributes, or methods, that give the tensors of which a sparse tensor or a wrapper (a DTensor) consists."""
    if hasattr(tensor, "__tensor_flatten__"):
        return list(tensor.__tensor_flatten__()[0])
    if tensor.layout is torch.sparse_coo:
        return ["_indices", "_values"]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return ["crow_indices", "col_indices", "values"]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return ["ccol_indices", "row_indices", "values"]
    return []


def _of_tensor(name: str, tensor: torch.Tensor) -> Iterator[Tuple[str, Any]]:
    for part in _inside(tensor):
        inner = getattr(tensor, part)
        yield f"{name}.{part}", inner() if callable(inner) and not isinstance(inner, torch.Tensor) else inner
    if tensor.is_leaf or tensor.retains_grad:
        yield f"{name}.grad", tensor.grad
    for key, value in vars(tensor).items():  # main_grad, scales
        yield f"{name}.{key}", value


def _of_holder(name: str, thing: Any) -> Iterator[Tuple[str, Any]]:
    if isinstance(thing, torch.nn.Module):
        for key, value in vars(thing).items():
            if key in _NAMELESS:
                yield from ((f"{name}.{inner}", each) for inner, each in value.items())
            else:
                yield f"{name}.{key}", value
        if isinstance(thing, torch.jit.ScriptModule):  # its tensors lie in no attribute
            yield from ((f"{name}.{key}", each) for key, each in thing.named_parameters())
            yield from ((f"{name}.{key}", each) for key, each in thing.named_buffers())
    elif isinstance(thing, torch.optim.Optimizer):
        yield from _of_optimizer(name, thing)
    elif isinstance(thing, collections.abc.Mapping):
        for key, value in thing.items():
            yield f"{name} key", key
            yield f"{name}[{key!r}]" if isinstance(key, (str, int)) else f"{name}[...]", value
    else:
        yield from ((f"{name}[{index}]", each) for index, each in enumerate(thing))


def _of_optimizer(name: str, optimizer: torch.optim.Optimizer) -> Iterator[Tuple[str, Any]]:
    """All but the parameters, which are the model's: an optimizer alone can be parked while the model is used."""
    for index, state in enumerate(optimizer.state.values()):
        yield f"{name}.state[{index}]", state
    for group in optimizer.param_groups:
        yield from ((f"{name}.{key}", value) for key, value in group.items() if key != "params")
    for key, value in vars(optimizer).items():
        if key not in ("state", "param_groups"):
            yield f"{name}.{key}", value
