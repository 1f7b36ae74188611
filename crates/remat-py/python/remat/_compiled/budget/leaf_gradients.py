"""Copies that autograd makes of gradients as it leaves them in leaves, behind the backward pass of a compiled graph.

A leaf without a gradient takes over the tensor that it is given if nobody else has it and if it lies as the leaf does.
Otherwise autograd copies it (torch's ``AccumulateGrad`` and its Gradient Layout Contract).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Leaf:
    """A leaf among the inputs of a graph, and how it lies."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    #: Whether each of its numbers has a place of its own and there are no gaps.
    dense: bool

    def takes(self, gradient: torch.Tensor) -> bool:
        """Whether a gradient lies as one that it takes over."""
        if not self.dense:
            return gradient.is_contiguous()
        lies = zip(gradient.shape, gradient.stride(), self.stride, strict=True)
        return all(given == stride if size != 1 else given != 0 for size, given, stride in lies)


def leaves_among(inputs: Sequence[Any]) -> list[Leaf | None]:
    """The leaves among the inputs of a graph; ``None`` for what is none or has no gradient."""
    return [_leaf(value) if isinstance(value, torch.Tensor) else None for value in inputs]


def _leaf(tensor: torch.Tensor) -> Leaf | None:
    if not (tensor.requires_grad and tensor.is_leaf and tensor.layout is torch.strided):
        return None
    return Leaf(tuple(tensor.shape), tensor.stride(), _dense(tensor))


def _dense(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def copied_bytes(gradients: Sequence[Any], leaves: Sequence[Leaf | None], not_own: frozenset[int]) -> int:
    """Most bytes that copies take at once, on top of the gradients that a backward pass returned.

    ``not_own`` are the numbers of gradients that somebody else has too.
    """
    if len(gradients) != len(leaves):
        return 0  # torch put other inputs in their place
    tensors = [gradient for gradient in gradients if isinstance(gradient, torch.Tensor)]
    waiting = Counter(id(gradient) for gradient in tensors)
    in_block = Counter(_block(gradient) for gradient in {id(gradient): gradient for gradient in tensors}.values())
    stays = most = 0
    for number, (gradient, leaf) in enumerate(zip(gradients, leaves, strict=True)):
        if leaf is None or not isinstance(gradient, torch.Tensor) or tuple(gradient.shape) != leaf.size:
            continue
        waiting[id(gradient)] -= 1
        last = waiting[id(gradient)] == 0 and number not in not_own
        if last and leaf.takes(gradient):
            continue
        copy = gradient.numel() * gradient.element_size()
        # The gradient is freed once it is copied for the last leaf. Which leaf comes first is up to torch.
        alone = last and in_block[_block(gradient)] == 1
        freed = min(copy, gradient.untyped_storage().nbytes()) if alone else 0
        stays, most = stays + copy - freed, max(most, freed)
    return stays + most


def _block(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
