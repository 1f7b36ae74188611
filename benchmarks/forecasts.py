"""Forecasts of what a compiled step takes, compared with the allocator: the small architectures of the tests."""

from __future__ import annotations

import gc
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import remat
import torch
from speed import table
from torch import Tensor
from true_peak import resident_bytes, true_peak

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from architectures import ARCHITECTURES

MIB = 1 << 20
#: Between the peak of nothing running again and the smallest that is named, the share that a tight budget allows.
SHARE = 0.5
#: Off by more than this share, a forecast is a failure.
TOLERANCE = 0.05


@dataclass
class ForecastRow:
    """One architecture within one budget: bytes on top of those that were resident."""

    model: str
    budget: int
    foreseen: int
    measured: int
    kernels_again: int

    @property
    def off(self) -> float:
        """The share by which the forecast is too large."""
        return self.foreseen / self.measured - 1

    def broken(self) -> str | None:
        """The fault of the row, if it has one."""
        return f"the forecast is off by {self.off:.1%}" if abs(self.off) > TOLERANCE else None


def forecast_rows(names: list[str]) -> list[ForecastRow]:
    """Two budgets for each architecture: an ample one, and one between that need and the smallest that is named."""
    rows = []
    for name in names:
        ample = _row(name, 1 << 40)
        smallest = _smallest(name)
        tight = _row(name, int(smallest + SHARE * (ample.budget - smallest)))
        rows += [ample, tight]
        for row in (ample, tight):
            print(f"{name}: {row.foreseen} foreseen, {row.measured} measured", file=sys.stderr, flush=True)
    return rows


def _row(name: str, budget: int) -> ForecastRow:
    run, x, model, base = _compiled(name, budget)
    for _ in range(2):
        _step(run, x, model)
    gc.collect()
    measured = true_peak(lambda: _step(run, x, model)) - base
    (cut,) = run.report().cuts
    assert cut.foreseen_bytes is not None
    return ForecastRow(name, min(budget, base + cut.foreseen_bytes), cut.foreseen_bytes, measured, cut.kernels_again)


def _smallest(name: str) -> int:
    run, x, _, base = _compiled(name, resident_bytes() + 1)
    try:
        run(x)
    except remat.BudgetError as refused:
        return refused.smallest
    raise AssertionError(f"{name} runs in {base} bytes")


def _compiled(name: str, budget: int):  # type: ignore[no-untyped-def]
    torch._dynamo.reset()
    gc.collect()
    torch.manual_seed(1)
    model, x = ARCHITECTURES[name][1]()
    model.train()
    return remat.compile(model, budget=budget), x, model, resident_bytes()


def _step(run: torch.nn.Module, x: Tensor, model: torch.nn.Module) -> None:
    # The sum's gradient is a view of one number: around the graph there is next to nothing.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(x).sum().backward()
    model.zero_grad()


def forecast_table(rows: list[ForecastRow]) -> str:
    """Forecasts and measured peaks."""
    header = ["model", "budget MiB", "forecast MiB", "measured MiB", "forecast / measured", "runs again"]
    cells = [
        [
            row.model,
            f"{row.budget / MIB:.2f}",
            f"{row.foreseen / MIB:.2f}",
            f"{row.measured / MIB:.2f}",
            f"{row.foreseen / row.measured:.4f}",
            str(row.kernels_again),
        ]
        for row in rows
    ]
    return table(header, cells)
