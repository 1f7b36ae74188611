"""``remat.measure``: what a piece of a program needs when nothing is dropped."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from .budget import Run, Stats, _budgets

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement(Generic[T]):
    """The unconstrained run of a function."""

    #: Most bytes in use at any moment, what existed before included.
    peak: int
    #: Bytes that existed before: parameters, data, optimizer state.
    base: int
    #: What the function returned.
    result: T
    #: Counters of the run.
    stats: Stats

    def fraction(self, share: float) -> int:
        """The budget that leaves ``share`` of the span between ``base`` and ``peak``."""
        return self.base + int(share * (self.peak - self.base))


def measure(
    function: Callable[[], T],
    *,
    device: str | torch.device | None = None,
    trace: str | os.PathLike[str] | None = None,
) -> Measurement[T]:
    """Runs ``function`` without a budget and tells the peak of all tensor storages on a device.

    The run also teaches Remat the sizes, workspace and cost of the ops it sees, for later runs in the process.

    >>> import torch, remat
    >>> remat.measure(lambda: torch.ones(1024).add(1).sum()).peak >= 8192
    True
    """
    run = Run(_budgets(None, device), "dtr-anc", 0, None, trace, False)
    run._start()
    try:
        result = function()
    finally:
        run._stop()
    stats = run.stats()
    return Measurement(stats.peak, run.base, result, stats)
