"""``remat.measure``: the memory that a piece of a program takes when nothing is dropped."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import torch

from .._memory.budgets import budgets_of
from .._outputs import absolute
from .choices import DEFAULT_POLICIES, POOLS
from .floor import Floor, floor_of
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
    #: The device that was measured.
    device: str = "cpu"
    #: The recording that the floor is sought in; ``None`` if there were too many ops.
    _recorded: bytes | None = field(default=None, repr=False, compare=False)

    @cached_property
    def _floor(self) -> Floor:
        return floor_of(self._recorded)

    @property
    def floor(self) -> int:
        """The smallest budget in bytes that the function gets through, found by the engine in what was recorded.

        It covers another run of the function in this process, where the workspace of ops is known. A process that has
        not seen the ops yet may need more: ``remat measure`` tells the floor of such a run. It is sought when it is
        first asked for, which takes as long as some runs of the engine without the ops.

        Raises :class:`remat.RematError` if the function ran more than 2^20 ops.
        """
        return self._floor.needed if self._floor.works is None else self._floor.works

    def fraction(self, share: float) -> int:
        """The budget in bytes that leaves ``share`` (0 to 1) of the span between ``base`` and ``peak``.

        Raises ``ValueError`` for what is no such number, :class:`remat.BudgetError` for a budget that is certain to be
        refused when the function runs again: where what cannot be dropped (parameters, gradients, state) and what one
        op needs beside it are more. It names the floor.
        """
        if not isinstance(share, (int, float)) or not 0 <= share < math.inf:
            raise ValueError(f"fraction({share!r}): expected a number from 0, such as 0.5")
        budget = self.base + int(share * (self.peak - self.base))
        if self._recorded is not None:
            self._floor.refuse(budget, self.device)
        return budget


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
    budgets = budgets_of(None, device)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.trace.zst") if trace is None else absolute(trace)
        run = Run(budgets, Settings(DEFAULT_POLICIES[POOLS[0]], trace=path))
        run._start()
        if trace is None:
            run._mode.trace_floor("taken")
        try:
            result = function()
        finally:
            run._stop()
        recorded = None
        if os.path.isfile(path):
            with open(path, "rb") as file:
                recorded = file.read()
    stats = run.stats()
    return Measurement(stats.peak, run.base, result, stats, budgets[0].name, recorded)
