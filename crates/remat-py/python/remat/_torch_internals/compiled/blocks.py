"""Blocks of memory while code is followed, and the values in them."""

from __future__ import annotations

from typing import Any

import torch

from .kernel_ops import NotTakenApart, Seen, Value


class Blocks:
    """The memory of both passes of one graph. Its values have one numbering."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._kept: list[Any] = []
        #: By storage, its latest value; ``None`` for memory that nothing was written to.
        self._current: dict[int, Value | None] = {}
        self._bases: dict[int, torch.Tensor] = {}
        #: By storage of an input of the step, its name.
        self._given: dict[int, str] = {}

    def seen(self, tensor: torch.Tensor) -> Seen:
        """The value that a tensor is, or is a view of."""
        if not self.is_known(tensor):
            raise NotTakenApart(f"memory of {tuple(tensor.shape)} that no known call made")
        value = self._current[self.block(tensor)]
        if value is None:
            raise NotTakenApart(f"memory of {tuple(tensor.shape)} read before it is written")
        if value.dtype != tensor.dtype:
            raise NotTakenApart("a view of another type")
        return Seen(value, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))

    def block(self, tensor: torch.Tensor) -> int:
        """A number of the memory of a tensor."""
        return int(tensor.untyped_storage()._cdata)

    def current(self, block: int) -> Value | None:
        return self._current[block]

    def allocated(self, tensor: torch.Tensor) -> None:
        """Notes memory that nothing was written to."""
        self._kept.append(tensor)
        block = self.block(tensor)
        self._bases[block], self._current[block] = tensor, None

    def is_known(self, tensor: torch.Tensor) -> bool:
        return self.block(tensor) in self._current

    def write(self, block: int) -> Value:
        """The new value of a block."""
        base = self._bases[block]
        value = Value(
            len(self.values),
            base.untyped_storage().nbytes(),
            tuple(base.shape),
            base.stride(),
            base.dtype,
            self._given.get(block),
        )
        self.values.append(value)
        self._current[block] = value
        return value

    def copy_of(self, value: Value) -> Value:
        """A value of its own with the same form."""
        copy = Value(len(self.values), value.bytes, value.size, value.stride, value.dtype)
        self.values.append(copy)
        return copy

    def enter(self, tensor: torch.Tensor, name: str | None) -> None:
        self.allocated(tensor)
        value = Value(
            len(self.values),
            tensor.untyped_storage().nbytes(),
            tuple(tensor.shape),
            tensor.stride(),
            tensor.dtype,
            name,
        )
        self.values.append(value)
        self._current[self.block(tensor)] = value
        if name is not None:
            self._given[self.block(tensor)] = name
