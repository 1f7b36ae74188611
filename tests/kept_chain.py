"""A chain of small ops whose results are all kept for the backward pass."""

from __future__ import annotations

import torch

#: Of each result.
BYTES = 64 << 10


def weight_of(numbers: int = BYTES // 4) -> torch.Tensor:
    return torch.full((numbers,), 1.01)


def chain(length: int, weight: torch.Tensor) -> torch.Tensor:
    """The gradient of a chain of ops of one form."""
    state = torch.ones_like(weight, requires_grad=True)
    kept = state
    for _ in range(length):
        kept = torch.tanh(kept * weight)
    kept.sum().backward()
    assert state.grad is not None
    return state.grad
