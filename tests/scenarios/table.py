"""The table of scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Outcome = Any


@dataclass(frozen=True)
class Scenario:
    """One training run; `evicts`: most of its peak can be recomputed, so half of it must force evictions."""

    name: str
    run: Callable[[], Outcome]
    evicts: bool = True


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, evicts: bool = True, name: str | None = None
) -> Callable[[Callable[[], Outcome]], Callable[[], Outcome]]:
    """Enters a function into the table."""

    def enter(run: Callable[[], Outcome]) -> Callable[[], Outcome]:
        called = name or run.__name__
        assert called not in SCENARIOS, called
        SCENARIOS[called] = Scenario(called, run, evicts)
        return run

    return enter


def outcome(
    losses: Any, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, **more: Any
) -> dict[str, Any]:
    """The state that a training run leaves behind."""
    return {
        "losses": losses,
        "weights": model.state_dict(),
        "gradients": [p.grad for p in model.parameters()],
        "optimizer": optimizer.state_dict()["state"] if optimizer else None,
        **more,
    }
