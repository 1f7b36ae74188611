"""The input that a recorded forward pass is good for: its shapes and numbers are written into the recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..._memory.tensors import tensors
from ..._torch_internals import eager
from ..stage.state import Autocast


@dataclass(frozen=True)
class Given:
    """An input without the contents of its tensors, and autocast."""

    form: str
    leaves: tuple[Any, ...]
    autocast: Autocast

    @staticmethod
    def of(value: Any) -> Given:
        """What is known of an input now."""
        leaves, form = eager.flatten_tree(value)
        device = next((tensor.device for tensor in tensors(value)), torch.device("cpu"))
        return Given(str(form), tuple(map(_leaf, leaves)), Autocast.now(device))

    def differs(self, other: Given) -> str | None:
        """In what another input differs, in words."""
        if self.form != other.form:
            return "an input of another structure"
        for one, two in zip(self.leaves, other.leaves, strict=True):
            if one != two:
                return f"{_words(one)}, not {_words(two)}"
        return None if self.autocast == other.autocast else "another autocast state"


def _leaf(leaf: Any) -> Any:
    """A tensor's shape, dtype, device and layout: where a dimension is of size 1, its stride says nothing."""
    if not isinstance(leaf, torch.Tensor):
        return (type(leaf), leaf)
    steps = tuple(step for size, step in zip(leaf.shape, leaf.stride(), strict=True) if size != 1)
    return (tuple(leaf.shape), leaf.dtype, leaf.device, steps)


def _words(leaf: tuple[Any, ...]) -> str:
    if len(leaf) == 2:
        return repr(leaf[1])
    shape, dtype, device, steps = leaf
    return f"a tensor {shape} of {dtype} on {device} with strides {steps}"
