"""The programs by name, and what many of them have in common.

A program is a function that trains for a few steps and returns the losses, or whatever else tells its bits apart. It
may print. It is run more than once in a process, so it makes its model anew each time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

#: Steps of most programs: the first sees every op for the first time, from the third on plans may be followed. Set
#: before the programs are loaded.
STEPS = 4

#: Parts of the span that the budgets of settled steps leave, by name; the ample one is twice the peak.
SHARES = {"ample": None, "70%": 0.70, "45%": 0.45}


@dataclass(frozen=True)
class Program:
    """A program of a package."""

    name: str
    package: str
    run: Callable[[], Any]
    #: Whether it takes a second or so and needs only what the tests install: the short test runs it.
    small: bool = False


PROGRAMS: dict[str, Program] = {}

#: Modules with programs.
MODULES = ("vision", "image_models", "language", "sound_and_time", "trainers", "graphs", "probabilistic", "science")


def program(package: str, *, small: bool = False) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Enters a function into the table."""

    def enter(run: Callable[[], Any]) -> Callable[[], Any]:
        add(package, run.__name__, run, small=small)
        return run

    return enter


def add(package: str, name: str, run: Callable[[], Any], *, small: bool = False) -> None:
    """Enters a program into the table by the name ``package/name``."""
    full = f"{package}/{name}"
    if full in PROGRAMS:
        raise ValueError(f"two programs are called {full}")
    PROGRAMS[full] = Program(full, package, run, small)


def load() -> dict[str, Program]:
    """All programs. Packages are imported by the programs that need them, when they run."""
    for module in MODULES:
        importlib.import_module(f"{__package__}.{module}")
    return PROGRAMS


def fit(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    steps: int | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> list[float]:
    """Trains the usual way, `STEPS` steps unless told otherwise; returns the losses."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for _ in range(steps or STEPS):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def classify(model: nn.Module, images: Tensor, classes: int = 10, **how: Any) -> list[float]:
    """Trains a classifier of images on random labels."""
    labels = torch.randint(0, classes, (len(images),))
    return fit(model, lambda: nn.functional.cross_entropy(logits_of(model(images)), labels), **how)


def logits_of(answer: Any) -> Tensor:
    """The one tensor that matters in a model's answer."""
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, dict):
        return logits_of(next(iter(answer.values())))
    if isinstance(answer, Iterable):
        return logits_of(next(iter(answer)))
    return logits_of(answer.logits)
