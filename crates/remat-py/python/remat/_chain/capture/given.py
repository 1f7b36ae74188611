"""The inputs that a recorded forward pass is valid for: their shapes and numbers are part of the recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..._memory.tensors import tensors
from ..._torch_internals import eager
from ..stage.state import Autocast


@dataclass(frozen=True)
class Given:
    """The kind of an input: its structure, numbers and shapes without the contents of tensors; and autocast."""

    form: str
    leaves: tuple[Any, ...]
    autocast: Autocast

    @staticmethod
    def of(value: Any) -> Given:
        """The kind of an input under the present autocast state."""
        leaves, form = eager.flatten_tree(value)
        device = next((tensor.device for tensor in tensors(value)), torch.device("cpu"))
        return Given(str(form), tuple(map(_leaf, leaves)), Autocast.now(device))

    def differs(self, other: Given) -> str | None:
        """The difference from another kind of input in words, ``None`` where there is none."""
        if self.form != other.form:
            return "an input of another structure"
        for one, two in zip(self.leaves, other.leaves, strict=True):
            if one != two:
                return f"{_words(one)}, not {_words(two)}"
        return None if self.autocast == other.autocast else "another autocast state"


def _leaf(leaf: Any) -> Any:
    """A tensor's shape, dtype, device and strides. Strides of dimensions of size 1 mean nothing and are left out."""
    if not isinstance(leaf, torch.Tensor):
        return (type(leaf), leaf)
    steps = tuple(step for size, step in zip(leaf.shape, leaf.stride(), strict=True) if size != 1)
    return (tuple(leaf.shape), leaf.dtype, leaf.device, steps)


def _words(leaf: tuple[Any, ...]) -> str:
    if len(leaf) == 2:
        return repr(leaf[1])
    shape, dtype, device, steps = leaf
    return f"a tensor {shape} of {dtype} on {device} with strides {steps}"
