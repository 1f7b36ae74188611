"""A small model, made batches and the plainest of training loops."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def mlp(width: int = 64, depth: int = 10, *extra: Callable[[], nn.Module]) -> nn.Sequential:
    """`depth` linear layers with tanh and the extra modules between."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh(), *(make() for make in extra)]
    return nn.Sequential(*layers)


def batches(steps: int, rows: int = 512, width: int = 64) -> list[tuple[Tensor, Tensor]]:
    """Made input and target per step."""
    return [(torch.randn(rows, width), torch.randn(rows, width)) for _ in range(steps)]


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: list[tuple[Tensor, Tensor]],
    before_step: Callable[[], None] | None = None,
) -> list[Tensor]:
    """The plainest of training loops."""
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if before_step:
            before_step()
        optimizer.step()
        losses.append(loss.detach())
    return losses
