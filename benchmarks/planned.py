"""Training within a budget, online and with planned steps, against plain eager.

    python benchmarks/planned.py [--models NAMES] [--percent LIST] [--rounds N] [--json FILE]

Each model trains from the same start: plainly, within a budget decided online, and within it as planned. Steps are
timed once a plan was adopted. A budget of p% is the bytes before a step and p% of what a step adds to them. The exit
code is 1 if a loss differs in one bit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import remat
import small_models
import torch
import workloads

#: Steps before those that are timed, and times as many where a plan takes longer.
STEPS, MOST = 40, 4
#: Steps after the last plan was made and before those that are timed: a plan that saves little is tried meanwhile.
SETTLED = 30

#: The examples' models, larger than the small ones: few ops a step, and each takes long.
LARGE: dict[str, Callable[[], workloads.Workload]] = {
    "resnet20": lambda: workloads.resnet("cpu", batch=64, depth=3, width=16),
    "gpt": lambda: workloads.gpt("cpu", batch=16, depth=4, width=128, context=128),
}


@dataclass
class Row:
    """A model, trained in one way."""

    model: str
    percent: int
    way: str
    ms: float
    ratio: float
    recomputed: float
    recomputing: float
    steps_planned: int
    overhead: float | None
    planned_overhead: float | None
    least_overhead: float | None


def main() -> int:
    """Measures, prints, and answers with the exit code."""
    args = arguments()
    if args.quick:
        args.models, args.percent, args.rounds = "perceptron", "60", 1
    torch.set_num_threads(args.threads)
    # Plans of earlier runs would be followed, and none made.
    os.environ["REMAT_CACHE"] = "off"
    rows: list[Row] = []
    different = False
    print(
        f"{'model':12} {'budget':>6} {'way':7} {'ms':>7} {'/eager':>6} {'ops again':>9} {'ms of it':>7}"
        f" {'time':>6} {'plan':>6} {'bound':>6}"
    )
    for name in args.models.split(","):
        losses, eager = plain(name, args.rounds)
        for percent in [int(percent) for percent in args.percent.split(",")]:
            for way in ("online", "planned"):
                try:
                    row, found = budgeted(name, percent, way, eager, args.rounds)
                except remat.BudgetError as error:
                    print(f"{name:12} {percent:>5}% {way:7} refused: {error}", flush=True)
                    continue
                rows.append(row)
                different |= found != losses[: len(found)]
                print(text(row), flush=True)
    if args.json:
        args.json.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    if different:
        print("a loss differs from plain eager's", file=sys.stderr)
    return int(different)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="perceptron,gru,bert,gpt2,llama,mamba,whisper,resnet20,gpt")
    parser.add_argument("--percent", default="70,50,30", help="budgets, in percent of the span (default: 70,50,30)")
    parser.add_argument("--rounds", type=int, default=15, help="timed steps (default: 15)")
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads")
    parser.add_argument("--quick", action="store_true", help="one model, one budget, one timed step: no measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row as a line of JSON")
    return parser.parse_args()


def model(name: str) -> Callable[[], float]:
    """A model from the same start each time, after a step: the optimizer's state exists."""
    torch.manual_seed(0)
    if name in LARGE:
        work = LARGE[name]()
        work.reset()
        return lambda: work.step(work.model)
    step: Callable[[], float] = getattr(small_models, name)()
    step()
    return step


def plain(name: str, rounds: int) -> tuple[list[float], float]:
    """Losses without a budget, and the median of milliseconds."""
    step = model(name)
    losses = [step() for _ in range(MOST * STEPS + SETTLED + rounds)]
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return losses, statistics.median(times) * 1e3


def budgeted(name: str, percent: int, way: str, eager: float, rounds: int) -> tuple[Row, list[float]]:
    """A model trained within a budget, and its losses."""
    step = model(name)
    # What earlier models left behind would count as memory that the program holds.
    gc.collect()
    span = remat.measure(step)
    del step
    gc.collect()
    step = model(name)
    plan: Literal["off", "auto"] = "auto" if way == "planned" else "off"
    losses, times = [], []
    with remat.budget(span.base + (span.peak - span.base) * percent // 100, plan=plan) as run:
        for _ in range(STEPS):
            losses.append(step())
            # The thread that plans finds time, as it does in longer runs.
            time.sleep(0.02)
        while plan == "auto" and (found := run.stats().plan) and found.under_way and len(losses) < MOST * STEPS:
            losses.append(step())
        losses += [step() for _ in range(SETTLED)]
        before = run.stats()
        for _ in range(rounds):
            started = time.perf_counter()
            losses.append(step())
            times.append(time.perf_counter() - started)
        after = run.stats()
    ms = statistics.median(times) * 1e3
    planned = after.plan
    again = (after.recompute_seconds - before.recompute_seconds) / rounds * 1e3
    row = Row(
        model=name,
        percent=percent,
        way=way,
        ms=ms,
        ratio=ms / eager,
        recomputed=(after.recomputed - before.recomputed) / rounds,
        recomputing=again,
        steps_planned=planned.steps if planned else 0,
        overhead=planned.overhead if planned else None,
        planned_overhead=planned.planned_overhead if planned else None,
        least_overhead=planned.least_overhead if planned else None,
    )
    return row, losses


def text(row: Row) -> str:
    """A line of the table."""
    parts = f"{row.model:12} {row.percent:>5}% {row.way:7} {row.ms:7.1f} {row.ratio:6.2f} {row.recomputed:9.0f}"
    if row.planned_overhead is None or row.least_overhead is None or row.overhead is None:
        return f"{parts} {row.recomputing:7.2f}"
    return f"{parts} {row.recomputing:7.2f} {row.overhead:6.1%} {row.planned_overhead:6.1%} {row.least_overhead:6.1%}"


if __name__ == "__main__":
    sys.exit(main())
