"""The largest batch whose step stays within a fixed budget, by way of running it."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import remat
import torch
from compiled_steps import MIB, OURS, Program, unbudgeted
from joint_models import first
from torch import Tensor
from true_peak import true_peak


@dataclass
class BatchRow:
    """The batch that fits of one program, run one way, its true peak, and that of the next batch looked at."""

    program: str
    label: str
    budget: int
    batch: int
    peak: int
    too_large: int


def batch_rows(program: Program, share: float) -> list[BatchRow]:
    """The budget is that share of the peak of eager code at the batch of the program."""
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 128
    torch._dynamo.config.automatic_dynamic_shapes = False
    own = len(program.inputs[0])
    budget = int(share * _peak(program, program.model, own))
    return [_row(program, label, fits, budget) for label, fits in _ways(program, budget)]


#: From a batch to the true peak of a step; ``None`` where a budget is refused.
Fits = Callable[[int], int | None]


def _ways(program: Program, budget: int) -> Iterator[tuple[str, Fits]]:
    for label, model in unbudgeted(program):
        if label != OURS:
            yield label, lambda batch, model=model: _peak(program, model, batch)  # type: ignore[misc]

    def within(batch: int) -> int | None:
        torch._dynamo.reset()
        try:
            return _peak(program, remat.compile(program.twin(), budget=budget, dynamic=False), batch)
        except remat.BudgetError:
            return None

    yield f"{OURS}, within the budget", within


def _row(program: Program, label: str, fits: Fits, budget: int) -> BatchRow:
    """By doubling, then by bisection, to an eighth of the batch of the program."""
    unit = max(1, len(program.inputs[0]) // 8)
    peaks: dict[int, int] = {}

    def fit(units: int) -> bool:
        print(f"{program.name}: {label}: {units * unit}", file=sys.stderr, flush=True)
        found = fits(units * unit)
        if found is None or found > budget:
            return False
        peaks[units] = found
        return True

    low, high = 0, 4
    while fit(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit(middle) else (low, middle)
    peak = peaks.get(low, 0)
    return BatchRow(program.name, label, budget, low * unit, peak, high * unit)


def _peak(program: Program, model: Any, batch: int) -> int:
    """Of a step that has been compiled."""
    inputs = tuple(_resized(tensor, batch) for tensor in program.inputs)

    def step() -> None:
        for parameter in program.model.parameters():
            parameter.grad = None
        first(model(*inputs)).square().mean().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            step()
    for parameter in program.model.parameters():
        parameter.grad = None
    gc.collect()
    return true_peak(step)


def _resized(tensor: Tensor, batch: int) -> Tensor:
    return tensor[torch.arange(batch) % len(tensor)]


def batch_table(rows: list[BatchRow]) -> tuple[list[str], list[list[str]]]:
    """Header and rows."""
    header = ["run", "budget MiB", "largest batch", "true peak MiB", "over torch.compile"]
    torchs = next(row.batch for row in rows if row.label == "torch.compile")
    cells = [
        [row.label, f"{row.budget / MIB:.1f}", str(row.batch), f"{row.peak / MIB:.1f}", f"{row.batch / torchs:.2f}"]
        for row in rows
    ]
    return header, cells
