"""References to the arguments of an op, to see whether its code keeps one."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from .tensors import tensors_of, untyped_storage


def forbids_keeping(overload: Any) -> bool:
    """Whether an op comes from ``torch.library.custom_op``: what it returns may not share memory with its arguments,
    and it tells which of them it writes to."""
    return overload._overloadname == "default" and overload._schema.name in OPDEFS


def references(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[tuple[torch.UntypedStorage, int]]:
    """The storage of each tensor among arguments, and how many references there are to the two."""
    counted = []
    for tensor in (*tensors_of(args), *tensors_of(kwargs or {})):
        try:
            storage = untyped_storage(tensor)
        except (NotImplementedError, RuntimeError):
            continue  # it has none
        counted.append((storage, sys.getrefcount(tensor) + torch._C._storage_Use_Count(storage._cdata)))
    return counted
