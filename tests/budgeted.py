"""Runs a scenario plain, measured and under budgets, and says where the bits differ."""

from __future__ import annotations

import functools
import gc
from dataclasses import dataclass
from typing import Any

import refusals
import remat
import torch
from bits import Bits, bits, differences
from scenarios import Scenario
from true_peak import Peak, true_peak

SEED = 1234
TRIES = 40


@dataclass(frozen=True)
class Reference:
    """The scenario without Remat."""

    bits: Bits
    repeatable: bool
    base: int
    peak: int
    true_peak: int

    def at(self, fraction: float) -> int:
        """The budget that leaves `fraction` of the span between what was resident before and the peak."""
        return self.base + int((self.peak - self.base) * fraction)


@dataclass(frozen=True)
class Run:
    """The scenario inside a budget."""

    bits: Bits
    budget: int
    stats: Any
    true_peak: int


@dataclass(frozen=True)
class Refusal:
    """The contents of a `BudgetError`; the error itself would keep the run's frames and tensors alive."""

    op: str
    needed: int
    smallest: int
    budget: int


def _plain(scenario: Scenario) -> tuple[Bits, int]:
    torch.manual_seed(SEED)
    with true_peak() as peak:
        result = scenario.run()
    return bits([result, torch.get_rng_state()]), peak.highest


@functools.cache
def reference(scenario: Scenario) -> Reference:
    """Two plain runs and a measured one."""
    _plain(scenario)  # the first run of a process may pick other kernels while libraries warm up
    once, highest = _plain(scenario)
    again, _ = _plain(scenario)
    gc.collect()
    torch.manual_seed(SEED)
    measured = remat.measure(scenario.run)
    seen = bits([measured.result, torch.get_rng_state()])
    repeatable = not differences(once, again)
    if repeatable:
        wrong = differences(once, seen)
        assert not wrong, f"measuring changed the bits: {wrong}"
    return Reference(once, repeatable, measured.base, measured.peak, highest)


def _attempt(scenario: Scenario, budget: int, policy: str, profiled: bool) -> Run | Refusal:
    gc.collect()
    torch.manual_seed(SEED)
    try:
        with remat.budget(budget, policy=policy, costs="bytes") as run:
            if profiled:
                with true_peak() as peak:
                    result = scenario.run()
            else:
                peak, result = Peak(), scenario.run()
            stats = run.stats()
    except remat.BudgetError as error:
        return Refusal(error.op, error.needed, error.smallest, error.budget)
    return Run(bits([result, torch.get_rng_state()]), budget, stats, peak.highest)


def under(scenario: Scenario, budget: int, policy: str = "dtr-anc") -> Run | Refusal:
    """Two runs from scratch; the bits are read after the context is left.

    Remat learns workspaces in the first one, undisturbed: it cannot while a profiler of the program's own is
    active. The profiler watches the second one.
    """
    first = _attempt(scenario, budget, policy, profiled=False)
    if isinstance(first, Refusal):
        return first
    over = first.stats.peak - budget
    assert over <= 0, f"by its own account {over} bytes above {budget}"
    second = _attempt(scenario, budget, policy, profiled=True)
    if isinstance(second, Refusal):
        return second  # what came in from outside (workers, data) was larger this time
    assert differences(first.bits, second.bits) == []
    return second


def under_feasible(scenario: Scenario, budget: int, policy: str = "dtr-anc") -> Run:
    """As `under`, following each refusal to the budget it calls sufficient for the refused op, up to a ceiling."""
    plain = reference(scenario)
    span = plain.peak - plain.base
    asked, raises = budget, 0
    while isinstance(found := under(scenario, asked, policy), Refusal):
        assert found.op, found
        assert found.budget == asked < found.smallest, found
        assert found.needed > 0, found
        asked, raises = found.smallest, raises + 1
        assert raises < TRIES, f"still refused after {TRIES} budgets between {budget} and {asked}"
    given, enough = (budget - plain.base) / span, (asked - plain.base) / span
    refusals.hold(f"{scenario.name} at {given:.2f}, {policy}", raises, given, enough)
    return found
