"""Tensors in values and in the whole program, and the bytes of the storages under them."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch

from .. import _native
from .._torch_internals import eager


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in order; tuples, lists, dicts and registered classes are looked into."""
    return [leaf for leaf in eager.flatten_tree(value)[0] if isinstance(leaf, torch.Tensor)]


def live_tensors() -> list[torch.Tensor]:
    """Every tensor with a storage that Python can reach, gradients included.

    Of sparse tensors these are their parts, and of what ``vmap`` or ``grad`` wrapped the tensors inside.
    """
    found = []
    for value in _native.instances(gc.get_objects(), torch.Tensor):
        if eager.classify(type(value)) not in (0, 3):
            continue
        found.append(value)
        if value.is_leaf and value.grad is not None:
            found.append(value.grad)
    there = (eager.unwrapped(tensor) for tensor in found if tensor.device.type != "meta")
    return [part for t in there for part in ([t] if t.layout == torch.strided else eager.parts(t))]


def distinct_bytes(values: Iterable[torch.Tensor], besides: Iterable[torch.Tensor] = ()) -> int:
    """Bytes that the allocator gave out for the storages of ``values``.

    Each storage counts once; storages of ``besides`` do not count.
    """
    sizes = {eager.storage_id(tensor): allocated_bytes(tensor) for tensor in values}
    for tensor in besides:
        sizes.pop(eager.storage_id(tensor), None)
    return sum(sizes.values())


def allocated_bytes(tensor: torch.Tensor) -> int:
    """Bytes that the allocator gave out for a tensor's storage, in whole blocks: CUDA's are of 512 bytes."""
    size, block = int(eager.TensorBase.untyped_storage(tensor).nbytes()), eager.block_size(tensor.device)
    return -(-size // block) * block


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.UntypedStorage]:
    """The storages of what an optimizer keeps from step to step, each by its parameter or otherwise."""
    kept = [list(state.values()) if isinstance(state, Mapping) else [state] for state in optimizer.state.values()]
    return storages_of(value for values in kept for value in values if isinstance(value, torch.Tensor))


def storages_of(tensors: Iterable[torch.Tensor]) -> list[torch.UntypedStorage]:
    """The storages of tensors that have one of their own, with memory."""
    found = []
    for tensor in tensors:
        if tensor.layout == torch.strided and tensor.device.type != "meta":
            with suppress(NotImplementedError, RuntimeError, TypeError):  # a subclass may have none
                found.append(eager.TensorBase.untyped_storage(tensor))
    return found
