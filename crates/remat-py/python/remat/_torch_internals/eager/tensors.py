"""Tensors inside arguments and results, their storages and bytes."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _functorch
from torch.utils import _pytree

TensorBase = torch._C.TensorBase
untyped_storage = TensorBase.untyped_storage


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_of(v)]
    return []


def flatten(result: Any) -> list[torch.Tensor | None]:
    """Results in order, with ``None`` for each that is no tensor."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [t for v in result for t in flatten(v)]
    return [None]


_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors that a sparse one is made of; none where torch does not show them."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in _COMPRESSED_ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _COMPRESSED_COLUMNS:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with a storage under those that transforms of ``torch.func`` put around it; itself if there are none.

    Such wrappers outlive their transform where the program keeps them.
    """
    while _functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def part_storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """The storages of a sparse tensor's parts."""
    return [untyped_storage(part) for part in parts(tensor)]


def allocated(tensor: torch.Tensor) -> int:
    try:
        return int(untyped_storage(tensor).nbytes())
    except (NotImplementedError, RuntimeError):
        return sum(int(storage.nbytes()) for storage in part_storages(tensor))


def nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


#: The most bytes that anything may be told to take. No memory has as many.
MOST = 2**63 - 1


def possible(sizes: list[int | None]) -> list[int | None] | None:
    """Sizes in bytes, if memory may have them; ``None`` where torch refuses to make such a tensor."""
    return sizes if all(size is None or 0 <= size <= MOST for size in sizes) else None


def home(args: Any, kwargs: dict[str, Any]) -> torch.device:
    device = kwargs.get("device")
    if device is not None:
        return torch.device(device)
    tensors = tensors_of(args) + tensors_of(kwargs)
    accelerated = [t.device for t in tensors if t.device.type not in ("cpu", "meta")]
    if accelerated:
        return accelerated[0]
    return tensors[0].device if tensors else torch.device("cpu")


def use_count(storage: torch.UntypedStorage) -> int:
    """Owners of a storage in C++; its Python object counts as one."""
    return int(torch._C._storage_Use_Count(storage._cdata))


flatten_tree = _pytree.tree_flatten
unflatten_tree = _pytree.tree_unflatten


def storage_id(tensor: torch.Tensor) -> int:
    """A number that no other storage has while this one lives."""
    return int(untyped_storage(tensor)._cdata)
