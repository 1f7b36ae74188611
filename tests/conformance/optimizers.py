"""The optimizers of torch's database: some steps with each of their settings and implementations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .pressure import Moment, Program

STEPS = 3
"""One only where a step runs its closure many times."""
ROWS, COLUMNS = 24, 16


def claimed(info: Any, dtype: torch.dtype) -> list[str]:
    """The implementations that the database claims of an optimizer with a dtype."""
    if dtype is torch.int64 or (dtype.is_complex and not info.supports_complex):
        return []
    fused = ["fused"] if "cpu" in info.supports_fused_on and not dtype.is_complex else []
    foreach = ["foreach"] if "foreach" in info.supported_impls else []
    return ["for_loop", *foreach, *fused]


def programs(info: Any, dtype: torch.dtype, variant: str) -> Iterator[Program]:
    """A program for each of the optimizer's settings."""
    known = inspect.signature(info.optim_cls).parameters
    flags = {"foreach": variant == "foreach", "fused": variant == "fused"}
    chosen = {name: value for name, value in flags.items() if name in known}
    for settings in info.optim_inputs_func(device="cpu"):
        if not settings.kwargs.keys() & {"capturable", "differentiable", "foreach", "fused"}:
            kwargs = {**settings.kwargs, **chosen}
            yield lambda moment, kwargs=kwargs: _trained(info, dtype, kwargs, moment)


def _trained(info: Any, dtype: torch.dtype, kwargs: dict[str, Any], moment: Moment) -> Any:
    weights = [torch.nn.Parameter(torch.randn(ROWS, COLUMNS, dtype=dtype)) for _ in range(2)]
    fresh = {name: value.clone() if isinstance(value, Tensor) else value for name, value in kwargs.items()}
    optimizer = info.optim_cls(weights, **fresh)
    data = torch.randn(COLUMNS, ROWS, dtype=dtype)

    def closure() -> Tensor:
        optimizer.zero_grad()
        if info.only_supports_sparse_grads:
            for weight in weights:
                weight.grad = (data.t() * weight.detach()).to_sparse()
            return data.sum().detach()
        loss: Tensor = sum(((data @ weight).abs() ** 2).sum() for weight in weights)  # type: ignore[assignment]
        moment()
        loss.backward()
        return loss

    losses = []
    for _ in range(1 if info.step_requires_closure else STEPS):
        moment()
        losses.append(optimizer.step(closure).detach())
    moment()
    return [losses, [weight.detach() for weight in weights], optimizer.state_dict()["state"]]
