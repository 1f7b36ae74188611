"""``remat.measure``: the memory that a piece of a program takes when nothing is dropped."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from .._memory.budgets import budgets_of
from .choices import DEFAULT_POLICIES, POOLS
from .run import Run, Settings, Stats

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement(Generic[T]):
    """The run of a function without a budget."""

    #: Most bytes in use at any moment, including those that existed before.
    peak: int
    #: Bytes that existed before: parameters, data, optimizer state.
    base: int
    #: The value that the function returned.
    result: T
    #: Counters of the run.
    stats: Stats

    def fraction(self, share: float) -> int:
        """The budget in bytes that leaves ``share`` (0 to 1) of the span between ``base`` and ``peak``."""
        return self.base + int(share * (self.peak - self.base))


def measure(
    function: Callable[[], T],
    *,
    device: str | torch.device | None = None,
    trace: str | os.PathLike[str] | None = None,
) -> Measurement[T]:
    """Runs ``function`` without a budget and measures the peak of all tensor storages on a device, in bytes.

    ``device`` is by default the accelerator if one is in use, else the CPU; ``trace`` is a file to record the run in.
    Later runs in the process know the sizes, workspace and cost of the ops of this run.

    Raises ``ValueError`` for a device that is not there, :class:`remat.RematError` inside a budget.

    >>> import torch, remat
    >>> remat.measure(lambda: torch.ones(1024).add(1).sum()).peak >= 8192
    True
    """
    run = Run(budgets_of(None, device), Settings(DEFAULT_POLICIES[POOLS[0]], trace=trace))
    run._start()
    try:
        result = function()
    finally:
        run._stop()
    stats = run.stats()
    return Measurement(stats.peak, run.base, result, stats)
