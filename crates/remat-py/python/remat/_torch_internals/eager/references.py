"""References to the arguments of an op, to see whether its code keeps one."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS

from .tensors import tensors_of, untyped_storage, use_count


def forbids_keeping(overload: Any) -> bool:
    """Whether an op comes from ``torch.library.custom_op``: what it returns may not share memory with its arguments,
    and it tells which of them it writes to."""
    return overload._overloadname == "default" and overload._schema.name in OPDEFS


def _owners(tensor: torch.Tensor) -> int:
    """Owners of a tensor in C++; always 0 where torch does not tell."""
    count = getattr(tensor, "_use_count", None)
    return 0 if count is None else int(count())


def references(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> list[tuple[torch.UntypedStorage, int, int]]:
    """The storage of each tensor among arguments, and how many references there are to tensor and storage in C++, and
    to the tensor in Python."""
    counted = []
    for tensor in (*tensors_of(args), *tensors_of(kwargs or {})):
        try:
            storage = untyped_storage(tensor)
        except (NotImplementedError, RuntimeError):
            continue  # it has none
        counted.append((storage, _owners(tensor) + use_count(storage), sys.getrefcount(tensor)))
    return counted
