"""Checks of `remat.measure(...).floor`, each in a process of its own: what other tests left alive, and what of it is
freed meanwhile, would count.

    python tests/floors.py perceptron
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest
import remat
import torch
import torch.nn.functional as F
from remat import _native
from torch import nn


def perceptron() -> float:
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.Tanh())))
    return trained(model, torch.optim.Adam(model.parameters(), foreach=False), (512, 64))


def convolutions() -> float:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(5)]
    model = nn.Sequential(*blocks)
    return trained(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), (8, 8, 24, 24))


def attention() -> float:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return trained(model, torch.optim.AdamW(model.parameters()), (8, 64, 32))


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, shape: tuple[int, ...]) -> float:
    for _ in range(3):
        loss = model(torch.randn(shape)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def runs_again(train: Callable[[], float]) -> None:
    """A function runs again in its floor, and is refused below what it needs."""
    measured = remat.measure(train)
    gc.collect()
    assert measured.base < measured.floor < measured.peak
    with remat.budget(measured.floor) as run:
        assert train() == measured.result
    assert run.stats().evictions > 0
    gc.collect()
    needed = measured._floor.needed
    with pytest.raises(remat.BudgetError), remat.budget(needed - needed // 50):
        train()


def fraction() -> None:
    """Gradients and state are more than half of what the first step adds: a fraction of it is refused at once."""
    weight = torch.randn(512, 512, requires_grad=True)
    optimizer = torch.optim.Adam([weight], foreach=False)

    def step() -> None:
        F.linear(torch.randn(64, 512), weight).square().mean().backward()
        optimizer.step()

    measured = remat.measure(step)
    with pytest.raises(remat.BudgetError) as refused:
        measured.fraction(0.2)
    assert refused.value.smallest == measured.floor > 4 * weight.nbytes
    assert f"the smallest budget known to work here is {_native.format_bytes(measured.floor)}" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert measured.floor <= measured.fraction(1.0) + (1 << 20)


if __name__ == "__main__":
    if sys.argv[1] == "fraction":
        fraction()
    else:
        runs_again({"perceptron": perceptron, "convolutions": convolutions, "attention": attention}[sys.argv[1]])
    print("as told")
