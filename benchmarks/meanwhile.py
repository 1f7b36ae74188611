"""Times of the steps that run while a plan is sought.

    python benchmarks/meanwhile.py [--models NAMES] [--share 0.5] [--seed 0] [--quick]

The models are those of `full_size.py`. Each trains within a budget that leaves a share of its span, in a process of its
own, on all of torch's threads, without plans of earlier runs. All times are by the clock: seconds from the end of the
recorded step to the first plan, and to the end of the search; steps during the search without a plan, over steps before
it; and planned steps during the search, over planned steps after it. Times of steps are medians, and a step counts
where it both began and ended. The exit code is 1 if no plan was found for a model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import remat
import torch
from full_size import MIB, MODELS, QUICK
from timing import cell, heading, line

MOST_STEPS = 1000
AFTERWARDS = 8


@dataclass
class Seen:
    """Seconds of a model's steps, by what the planner did."""

    budget: int = 0
    online: list[float] = field(default_factory=list)
    """Before the search; the first two are left out."""
    searching: list[float] = field(default_factory=list)
    """During the search, before there was a plan."""
    improving: list[float] = field(default_factory=list)
    """During the search, as planned."""
    planned: list[float] = field(default_factory=list)
    """After it."""
    first: float | None = None
    end: float | None = None
    """Seconds of the search until there was a plan, and until it ended."""


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="resnet50,efficientnet,whisper", help="with commas between")
    parser.add_argument("--share", type=float, default=0.5, help="of the span, within the budget (default 0.5)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default 0)")
    parser.add_argument("--quick", action="store_true", help="a tiny model alone")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "BYTES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.models, options.share = "quick", 0.7
        MODELS["quick"] = QUICK
    names = options.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"--models {unknown[0]}: expected some of {', '.join(MODELS)}")
    if options.one:
        name, budget = options.one
        print(json.dumps(run_one(name, int(budget), options)))
        return 0
    print(f"seed {options.seed}, torch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    titles = ["model", "budget, MiB", "step, s", "plan after, s", "steps", "time", "search, s", "planned steps", "time"]
    print(heading(titles), flush=True)
    planless = []
    for name in names:
        budget = in_a_process(options, name, 0)["budget"]
        seen = Seen(**in_a_process(options, name, budget))
        print(row(MODELS[name][0], seen), flush=True)
        planless += [name] if seen.first is None else []
    for name in planless:
        print(f"{name}: no plan was found", file=sys.stderr)
    return 1 if planless else 0


def in_a_process(options: argparse.Namespace, name: str, budget: int) -> dict[str, Any]:
    """Runs a model in a process of its own. Returns times within a budget, or a budget if none is given."""
    command = [sys.executable, __file__, "--one", name, str(budget), "--seed", str(options.seed)]
    command += ["--share", str(options.share), *(["--quick"] if options.quick else [])]
    environment = {**os.environ, "REMAT_CACHE": "off"}
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return said


def run_one(name: str, budget: int, options: argparse.Namespace) -> dict[str, object]:
    """Trains a model: within a budget to see times, without one to choose it."""
    torch.manual_seed(options.seed)
    subject = MODELS[name][1]()
    optimizer = torch.optim.AdamW(subject.model.parameters(), 1e-4)

    def step(number: int) -> None:
        optimizer.zero_grad()
        subject.loss(number).backward()
        optimizer.step()

    if not budget:
        step(0)
        return {"budget": remat.measure(lambda: step(1)).fraction(options.share)}
    seen = Seen(budget)
    with remat.budget(budget) as run:
        watch(seen, step, run, 0 if options.quick else AFTERWARDS)
    return asdict(seen)


def watch(seen: Seen, step: Callable[[int], None], run: remat.Run, afterwards: int) -> None:
    """Runs steps until there is a plan, and so many planned steps after the search are seen."""
    began: float | None = None
    before = plan_of(run)
    for number in range(MOST_STEPS):
        started = perf_counter()
        step(number)
        now = perf_counter()
        after = plan_of(run)
        if began is None and after.found:
            began = now
        if seen.first is None and after.adopted:
            seen.first = now - (began or now)
        if seen.end is None and after.found and not after.under_way:
            seen.end = now - (began or now)
        if number > 1 and not after.found:
            seen.online.append(now - started)
        elif before.under_way and after.under_way and not after.adopted:
            seen.searching.append(now - started)
        elif before.under_way and after.under_way and before.steps < after.steps:
            seen.improving.append(now - started)
        elif before.adopted and not before.under_way and before.steps < after.steps:
            seen.planned.append(now - started)
        before = after
        if after.adopted and len(seen.planned) >= afterwards:
            return


def plan_of(run: remat.Run) -> remat.PlanStats:
    """Counters of plans so far."""
    plan = run.stats().plan
    assert plan is not None, "steps are planned by default"
    return plan


def row(title: str, seen: Seen) -> str:
    """A line of the table."""
    online, planned = median_of(seen.online), median_of(seen.planned)
    cells = [title, f"{seen.budget / MIB:.0f}", cell(online, ".2f"), cell(seen.first, ".1f"), str(len(seen.searching))]
    cells += [over(seen.searching, online), cell(seen.end, ".1f"), str(len(seen.improving))]
    return line([*cells, over(seen.improving, planned)])


def median_of(seconds: list[float]) -> float | None:
    """The median, if there is one."""
    return median(seconds) if seconds else None


def over(seconds: list[float], base: float | None) -> str:
    """The median over another one."""
    return f"{median(seconds) / base:.2f}" if seconds and base else ""


if __name__ == "__main__":
    sys.exit(main())
