"""Forecasts of what a compiled step takes, compared with the allocator: the small architectures of the tests."""

from __future__ import annotations

import gc
import sys
import time
import warnings
from collections.abc import Iterator
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
    #: ``None`` for an ample one.
    budget: int | None
    foreseen: int
    measured: int
    kernels_again: int

    @property
    def off(self) -> float:
        """The share by which the forecast is too large."""
        return self.foreseen / self.measured - 1

    @property
    def told(self) -> str:
        """The row in words."""
        return f"{self.foreseen} foreseen, {self.measured} measured, {self.kernels_again} run again"

    def broken(self) -> str | None:
        """The fault of the row, if it has one."""
        return f"the forecast is off by {self.off:.1%}" if abs(self.off) > TOLERANCE else None


def forecast_rows(names: list[str]) -> Iterator[ForecastRow]:
    """Two budgets for each architecture: an ample one, and one between that need and the smallest that is named."""
    for at, name in enumerate(names, 1):
        _say(f"{at} of {len(names)}: {name}")
        ample = _row(name, _AMPLE)
        _say(f"    ample: {ample.told}")
        yield ample
        smallest = _smallest(name)
        _say(f"    the smallest need that is named is {smallest}")
        if smallest < ample.foreseen:
            between = _row(name, int(smallest + SHARE * (ample.foreseen - smallest)))
            _say(f"    between: {between.told}")
            yield between


def _say(what: str) -> None:
    print(f"{time.perf_counter() - _BEGAN:7.0f} s  {what}", file=sys.stderr, flush=True)


_BEGAN = time.perf_counter()


#: More than any of the models takes.
_AMPLE = 1 << 40


def _row(name: str, room: int) -> ForecastRow:
    run, x, model, _ = _compiled(name, room)
    for _ in range(2):
        _step(run, x, model)
    gc.collect()
    base = resident_bytes()
    measured = true_peak(lambda: _step(run, x, model)) - base
    (cut,) = run.report().cuts
    assert cut.foreseen_bytes is not None
    return ForecastRow(name, None if room == _AMPLE else room, cut.foreseen_bytes, measured, cut.kernels_again)


def _smallest(name: str) -> int:
    """The smallest need that a refusal names, on top of what is resident."""
    run, x, _, base = _compiled(name, 1)
    try:
        run(x)
    except remat.BudgetError as refused:
        return refused.smallest - base
    raise AssertionError(f"{name} takes no bytes")


def _compiled(name: str, room: int):  # type: ignore[no-untyped-def]
    torch._dynamo.reset()
    gc.collect()
    torch.manual_seed(1)
    model, x = ARCHITECTURES[name][1]()
    model.train()
    base = resident_bytes()
    return remat.compile(model, budget=base + room), x, model, base


def _step(run: torch.nn.Module, x: Tensor, model: torch.nn.Module) -> None:
    # A forecast counts the results of the forward pass and their gradients to the end: the program may hold them.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = run(x)
        results.backward(torch.ones_like(results))
    model.zero_grad()


def forecast_table(rows: list[ForecastRow]) -> str:
    """Forecasts and measured peaks."""
    header = ["model", "budget MiB", "forecast MiB", "measured MiB", "forecast / measured", "runs again"]
    cells = [
        [
            row.model,
            "ample" if row.budget is None else f"{row.budget / MIB:.3f}",
            f"{row.foreseen / MIB:.3f}",
            f"{row.measured / MIB:.3f}",
            f"{row.foreseen / row.measured:.4f}",
            str(row.kernels_again),
        ]
        for row in rows
    ]
    return table(header, cells)
