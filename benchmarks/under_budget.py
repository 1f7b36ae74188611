"""Time against memory: plain eager, a checkpoint per block, and Remat under shares of the activation peak."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import remat
from overhead import PassThrough
from timing import in_turn, timed
from torch import nn
from true_peak import resident_bytes, true_peak
from workloads import Workload

Observation = Callable[[Workload, "Contender", str, "Schedule"], object]

# Share of the activation peak given as budget -> the most time, over plain eager's, that the project allows.
TIME_RATIO_LIMITS = {0.7: 1.10, 0.5: 1.25, 0.3: 1.50}


@dataclass(frozen=True)
class Schedule:
    """How often things run: turns of every peer, and in each turn steps before and steps under the clock."""

    rounds: int
    warmup: int
    steps: int


@dataclass
class Contender:
    """One way to run a workload, and what was seen of it."""

    label: str
    model: nn.Module
    budget: int | None = None
    policy: str | None = None
    ratio_limit: float | None = None
    peak: int | None = None
    seconds: list[float] = field(default_factory=list)
    losses: list[list[str]] = field(default_factory=list)
    stats: remat.Stats | None = None
    failure: str | None = None
    bare: bool = False


@dataclass
class BudgetRow:
    """The measurements of one contender; peaks and budgets in bytes, shares of the time in the budget."""

    workload: str
    label: str
    base: int
    budget: int | None
    peak: int | None
    peak_over_budget: float | None
    ms_per_step: float | None
    time_ratio: float | None
    time_ratio_limit: float | None
    evictions_per_step: float | None
    recomputed_per_step: float | None
    recomputing_share: float | None
    deciding_share: float | None
    same_losses: bool
    failure: str | None

    def broken(self) -> str | None:
        """The promise of Remat that was broken here, if any."""
        if self.failure:
            return self.failure
        if not self.same_losses:
            return "the losses differ from plain eager's"
        if self.peak_over_budget and self.peak_over_budget > 1:
            return f"the peak is {self.peak_over_budget:.4f} of the budget"
        return None


def measure_budgets(work: Workload, device: str, schedule: Schedule, policies: Sequence[str | None]) -> list[BudgetRow]:
    """A row for each contender, plain eager first; Remat with each of the policies."""
    work.reset()
    base = resident_bytes(device)
    plain = Contender("plain eager", work.model)
    peak = observe_peak(work, plain, device, schedule)
    contenders = [
        plain,
        Contender("checkpoint per block", work.twin),
        Contender("bare dispatch mode", work.model, bare=True),
    ]
    for policy in policies:
        ample = "remat ample" + (f" {policy}" if len(policies) > 1 else "")
        contenders.append(Contender(ample, work.model, 2 * peak, policy))
        for share, limit in TIME_RATIO_LIMITS.items():
            label = f"remat {share:.0%}" + (f" {policy}" if len(policies) > 1 else "")
            budget = base + int(share * (peak - base))
            contenders.append(Contender(label, work.model, budget, policy, limit))
    for contender in contenders[1:]:
        attempt(observe_peak, work, contender, device, schedule)
    for turn in range(schedule.rounds):
        for contender in in_turn(contenders, turn):
            attempt(observe_time, work, contender, device, schedule)
    return [row(work, contender, plain, base) for contender in contenders]


def attempt(observe: Observation, work: Workload, contender: Contender, device: str, schedule: Schedule) -> None:
    """One observation, unless this contender's budget has proved too small, now or before."""
    if contender.failure:
        return
    try:
        observe(work, contender, device, schedule)
    except remat.BudgetError as error:
        contender.failure = f"BudgetError: {error}".splitlines()[0]


def observe_peak(work: Workload, contender: Contender, device: str, schedule: Schedule) -> int:
    """The allocator's peak, once the same steps have been run without the profiler."""

    def steps() -> None:
        run_steps(work, contender, device, schedule.warmup + 1)

    work.reset()
    steps()
    work.reset()
    contender.peak = true_peak(steps, device)
    return contender.peak


def observe_time(work: Workload, contender: Contender, device: str, schedule: Schedule) -> None:
    """The median time of a step after warm-up."""
    work.reset()
    gc.collect()
    seconds = run_steps(work, contender, device, schedule.warmup + schedule.steps)
    contender.seconds.append(median(seconds[schedule.warmup :]))


def run_steps(work: Workload, contender: Contender, device: str, steps: int) -> list[float]:
    """Seconds of every step from the start of the workload; entering and leaving a budget is not timed."""
    losses: list[str] = []
    contender.losses.append(losses)

    def step() -> None:
        losses.append(work.step(contender.model).hex())

    if contender.bare:
        with PassThrough():
            return timed(step, device, warmup=0, repeats=steps)
    if contender.budget is None:
        return timed(step, device, warmup=0, repeats=steps)
    with remat.budget(contender.budget, policy=contender.policy, device=device) as run:
        seconds = timed(step, device, warmup=0, repeats=steps)
    contender.stats = run.stats()
    return seconds


def same_losses(contender: Contender, plain: Contender) -> bool:
    """Whether every run's losses are the first losses of plain eager's longest run, bit for bit."""
    reference = max(plain.losses, key=len)
    return all(losses == reference[: len(losses)] for losses in contender.losses)


def row(work: Workload, contender: Contender, plain: Contender, base: int) -> BudgetRow:
    """The row of a contender."""
    stats, budget, peak = contender.stats, contender.budget, contender.peak
    steps = len(contender.losses[-1])
    ratios = [mine / eager for mine, eager in zip(contender.seconds, plain.seconds, strict=False)]
    return BudgetRow(
        workload=work.name,
        label=contender.label,
        base=base,
        budget=budget,
        peak=peak,
        peak_over_budget=peak / budget if peak and budget else None,
        ms_per_step=1e3 * median(contender.seconds) if ratios else None,
        time_ratio=median(ratios) if ratios else None,
        time_ratio_limit=contender.ratio_limit,
        evictions_per_step=stats.evictions / steps if stats else None,
        recomputed_per_step=stats.recomputed / steps if stats else None,
        recomputing_share=stats.recompute_seconds / stats.seconds if stats else None,
        deciding_share=stats.decide_seconds / stats.seconds if stats else None,
        same_losses=same_losses(contender, plain),
        failure=contender.failure,
    )
