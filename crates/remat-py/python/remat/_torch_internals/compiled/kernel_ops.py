"""Calls of kernels and of ops in generated code, and the values that they read and make."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from .generated_code import Call


class NotTakenApart(Exception):
    """Code of a form that is not known here; the message says which."""


@dataclass(frozen=True)
class Value:
    """The content of a block of memory from one write to the next."""

    number: int
    bytes: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    #: The name of an input of the forward pass, which the program holds; ``None`` for what is made.
    given: str | None = None


def tensor_of(value: Value | None) -> torch.Tensor:
    """A tensor without memory of the form of a value; an empty one for ``None``."""
    with FakeTensorMode():
        if value is None:
            return torch.empty(0, dtype=torch.uint8)
        return torch.empty_strided(value.size, value.stride, dtype=value.dtype)


@dataclass(frozen=True)
class Seen:
    """The tensor that a name stands for: a value, or a view of it."""

    value: Value
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def whole(self) -> bool:
        """Whether it is the value itself and no view."""
        return self.offset == 0 and self.size == self.value.size and self.stride == self.value.stride


@dataclass
class KernelOp:
    """A call of a kernel or of an op of ATen, with the statements that take its results."""

    name: str
    backward: bool
    statements: list[ast.stmt]
    #: The values that it reads, and those that it makes in memory of their own.
    reads: list[Value] = field(default_factory=list)
    makes: list[Value] = field(default_factory=list)
    #: Pairs of an old and a new value in the same block.
    writes: list[tuple[Value, Value]] = field(default_factory=list)
    #: Small inputs of the step that it writes to: the old value, the new one, and a copy of the old one for later runs.
    restores: list[tuple[Value, Value, Value]] = field(default_factory=list)
    #: Whether a block is one that other names stand for after the op, too.
    fixed: bool = False
    #: Makes that the call allocates itself.
    returned: set[Value] = field(default_factory=set)
    #: The tensors that the names in its statements stand for; of written ones the new value.
    names: dict[str, Seen] = field(default_factory=dict)
    #: Names of results that are no tensors, such as tuples.
    tuples: set[str] = field(default_factory=set)
    once: bool = False
    #: The ops of ATen that it calls, and what the call returns, without memory.
    calls: list[Call] = field(default_factory=list)
    result: Any = None


@dataclass
class Pass:
    """The forward or the backward pass of a compiled graph."""

    backward: bool
    source: str
    function: ast.FunctionDef
    inputs: list[str]
    #: Of the inputs, the tensors that they are.
    given: dict[str, Seen]
    ops: list[KernelOp]
    #: Results: an expression, and the tensor if it is one.
    results: list[tuple[ast.expr, Seen | None]]
