"""Residual bodies stacked ten deep, so that activations outweigh the weights by far."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .table import SCENARIOS, Outcome, Scenario

Body = Callable[[Tensor, Tensor], Tensor]

ROWS, WIDTH, DEPTH = 512, 64, 10


def deep(body: Body, *, depth: int = DEPTH, rows: int = ROWS, width: int = WIDTH, steps: int = 2) -> Outcome:
    """Trains `depth` weights through ``h = h + body(h, w)``."""
    weights = [(torch.randn(width, width) / width**0.5).requires_grad_() for _ in range(depth)]
    data = torch.randn(rows, width)
    losses = []
    for _ in range(steps):
        hidden = data
        for weight in weights:
            hidden = hidden + body(hidden, weight)
        loss = hidden.square().mean()
        loss.backward()
        losses.append(loss.detach())
        with torch.no_grad():
            for weight in weights:
                assert weight.grad is not None
                weight -= 0.01 * weight.grad
                if len(losses) < steps:
                    weight.grad = None
    return {"losses": losses, "weights": weights, "gradients": [w.grad for w in weights], "last": hidden}


def op_family(body: Body) -> Body:
    """Enters a residual body into the table under its own name."""
    SCENARIOS[body.__name__] = Scenario(body.__name__, lambda: deep(body))
    return body
