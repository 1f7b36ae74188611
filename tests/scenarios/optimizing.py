"""Optimizers, autocast and accumulated gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .table import Outcome, outcome, scenario
from .training import batches, fit, mlp


@scenario()
def autocast_bf16() -> Outcome:
    model = mlp(64, 8, lambda: nn.LayerNorm(64))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for x, y in batches(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model, optimizer)


@scenario()
def gradient_accumulation_and_clipping() -> Outcome:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    losses: list[Any] = []
    for number, (x, y) in enumerate(batches(4, rows=256)):
        loss = F.mse_loss(model(x), y) / 2
        loss.backward()
        losses.append(loss.item())
        if number % 2:
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01))
            nn.utils.clip_grad_value_(model.parameters(), 0.001)
            optimizer.step()
            optimizer.zero_grad()
    return outcome(losses, model, optimizer)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=False),
    "sgd_foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "adam_foreach": lambda p: torch.optim.Adam(p, amsgrad=True, foreach=True),
    "adam_fused": lambda p: torch.optim.Adam(p, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
}


def _optimized(make: Callable[[Any], torch.optim.Optimizer]) -> Outcome:
    model = mlp(48)
    optimizer = make(model.parameters())
    return outcome(fit(model, optimizer, batches(3, 512, 48)), model, optimizer)


for _name, _make in OPTIMIZERS.items():
    scenario(name=f"optimizer_{_name}")(lambda make=_make: _optimized(make))
