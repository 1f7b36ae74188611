"""Time that a budget adds to training steps of small models, with ops natively and through Python.

    python benchmarks/dispatch.py [--models perceptron,bert] [--budgets ample,70,45] [--plan auto] [--pool arena]

The way `passing` is the part of `native` that is torch's own: each op comes to the fallback, boxed, and passes it.
Remat learns nothing of the op, so no budget holds; it shows what watching would take if Remat's part took no time.

The way `recorded` is `native` with a record of every op (`REMAT_RECORD=always`).

All ways run in one process and take turns, in an order that is reversed every round; times are processor time on one
thread, medians of the rounds, and ratios are to plain eager. A budget of 70 is the bytes at rest and 70% of the span
from there to the peak. With `--plan auto`, the default of users, steps are timed once a plan of them is followed and
its trial is over. With `--pool arena` the budgets are arenas, and all ways, plain eager too, have the arena's allocator
preloaded. The exit code is 1 if a loss differs from plain eager's in one bit.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import remat
import torch
from remat import _native
from remat._online.arena import start_preloaded
from remat._online.choices import POOLS
from small_models import MODELS
from timing import cell, heading, keep_freed_blocks, line

#: Steps of a turn before time is taken: by then workspaces are measured and costs are frozen.
WARMUP = 14

#: Steps as planned before time is taken: by then it is known whether the plan stays.
PLANNED = 30
#: Steps after which nobody waits for a plan any more.
PATIENCE = 600


@dataclass(frozen=True)
class Choices:
    """The choices that all budgets have in common."""

    plan: str
    pool: str


@dataclass(frozen=True)
class Turn:
    """Some steps in one way."""

    way: str
    ms: float
    recomputing_ms: float
    deciding_ms: float
    ops: int
    recomputed: float
    losses: list[float]


def turn(model: str, way: str, budget: int | None, steps: int, choices: Choices) -> Turn:
    """Trains anew from the same seed."""
    torch.manual_seed(0)
    step = MODELS[model]()
    if way == "plain":
        losses = [step() for _ in range(WARMUP)]
        ms, more = timed(step, steps)
        return Turn(way, ms, 0.0, 0.0, 0, 0.0, losses + more)
    os.environ["REMAT_DISPATCH"] = "python" if way == "python" else "native"
    os.environ["REMAT_RECORD"] = "always" if way == "recorded" else "1024"
    with remat.budget(1 << 30 if budget is None else budget, **asdict(choices)) as run, passing(way):
        losses = [step() for _ in range(WARMUP)]
        if choices.plan == "auto" and budget is not None:
            losses += planned(run, step)
        before = run.stats()
        ms, more = timed(step, steps)
        after = run.stats()
    seconds = after.recompute_seconds - before.recompute_seconds, after.decide_seconds - before.decide_seconds
    recomputing, deciding = (value / steps * 1e3 for value in seconds)
    recomputed = (after.recomputed - before.recomputed) / steps
    return Turn(way, ms, recomputing, deciding, (after.ops - before.ops) // steps, recomputed, losses + more)


def planned(run: remat.Run, step: Callable[[], float]) -> list[float]:
    """Steps until a plan was followed for a while, or given up. The losses."""
    losses: list[float] = []
    while len(losses) < PATIENCE:
        losses.append(step())
        plan = run.stats().plan
        if plan is None:
            break
        # The thread that plans goes on while a first plan is followed, and its time would count as that of the steps.
        if not plan.under_way and (plan.steps >= PLANNED or plan.given_up or plan.hopeless):
            break
    return losses


@contextlib.contextmanager
def passing(way: str) -> Iterator[None]:
    """In the way `passing`, ops of this thread pass the fallback."""
    paused = _native.pause_native(way == "passing")
    try:
        yield
    finally:
        _native.pause_native(paused)


def timed(step: object, steps: int) -> tuple[float, list[float]]:
    """Milliseconds a step, and the losses."""
    gc.collect()
    started = time.process_time()
    losses = [step() for _ in range(steps)]  # type: ignore[operator]
    return (time.process_time() - started) / steps * 1e3, losses


@dataclass(frozen=True)
class Row:
    """One way with one budget, beside plain eager."""

    model: str
    budget: str
    way: str
    ops: int
    plain_ms: float
    ms: float | None
    ratio: float | None
    added_us_per_op: float | None
    #: Without the time of recomputing.
    watching_ratio: float | None
    recomputed: float | None
    deciding_share: float | None
    same_losses: bool
    refused: str | None


def rows(model: str, budget: str, rounds: int, steps: int, ways: list[str], choices: Choices) -> Iterator[Row]:
    """Both ways with one budget."""
    given = None
    refused: dict[str, str] = {}
    if budget != "ample":
        torch.manual_seed(0)
        step = MODELS[model]()
        step()
        try:
            given = remat.measure(step).fraction(int(budget) / 100)
        except remat.BudgetError as error:
            refused = dict.fromkeys(ways, str(error))
        del step
    taken: dict[str, list[Turn]] = {way: [] for way in ("plain", *ways)}
    for number in range(rounds):
        order = list(taken) if number % 2 == 0 else list(taken)[::-1]
        for way in order:
            if way not in refused:
                try:
                    taken[way].append(turn(model, way, given, steps, choices))
                except remat.BudgetError as error:
                    refused[way] = str(error)
    plain = taken["plain"]
    plain_ms = statistics.median(one.ms for one in plain)
    for way in ways:
        turns = taken[way]
        if way in refused or not turns:
            none = (None,) * 6
            yield Row(model, budget, way, 0, plain_ms, *none, same_losses=True, refused=refused.get(way))
            continue
        pairs = list(zip(turns, plain, strict=True))
        # Where ops pass, nobody counts them.
        ops = max(one.ops for turns in taken.values() for one in turns)
        ms = statistics.median(one.ms for one in turns)
        yield Row(
            model,
            budget,
            way,
            ops,
            plain_ms,
            ms,
            statistics.median(one.ms / base.ms for one, base in pairs),
            statistics.median((one.ms - base.ms) / max(ops, 1) * 1e3 for one, base in pairs),
            statistics.median((one.ms - one.recomputing_ms) / base.ms for one, base in pairs),
            statistics.median(one.recomputed for one in turns),
            statistics.median(one.deciding_ms / one.ms for one in turns),
            # Until a plan is followed there are more steps than plain ones.
            all(one.losses[: len(base.losses)] == base.losses for one, base in pairs),
            None,
        )


HEADER = ["model", "budget", "way", "ops", "plain ms", "ms", "time / plain", "added us an op", "without recomputing"]
HEADER += ["recomputed", "deciding", "losses"]


def cells(row: Row) -> list[str]:
    """A line of the table."""
    losses = "refused" if row.refused else "same bits" if row.same_losses else "DIFFERENT"
    return [
        row.model,
        row.budget if row.budget == "ample" else f"{row.budget}%",
        row.way,
        str(row.ops or ""),
        f"{row.plain_ms:.2f}",
        cell(row.ms, ".2f"),
        cell(row.ratio, ".2f"),
        cell(row.added_us_per_op, ".2f"),
        cell(row.watching_ratio, ".2f"),
        cell(row.recomputed, ".0f"),
        cell(row.deciding_share, ".1%"),
        losses,
    ]


def main() -> int:
    """Measures and prints line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="perceptron", help=f"of {','.join(MODELS)}, or all (default perceptron)")
    parser.add_argument("--budgets", default="ample", help="ample, or percents such as 70,45 (default ample)")
    parser.add_argument(
        "--ways", default="python,native", help="of python,native,recorded,passing (default the first two)"
    )
    parser.add_argument("--plan", default="off", choices=("off", "auto"), help="follow plans of steps (default off)")
    parser.add_argument("--pool", default="fungible", choices=POOLS, help="the way to bound memory (default fungible)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each way (default 3)")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of a turn (default 20)")
    parser.add_argument("--quick", action="store_true", help="one round of two steps")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each row")
    asked = parser.parse_args()
    models = list(MODELS) if asked.models == "all" else asked.models.split(",")
    unknown = [model for model in models if model not in MODELS]
    if unknown:
        parser.error(f"--models {unknown[0]}: expected {', '.join(MODELS)} or all")
    if asked.pool == "arena":
        start_preloaded()
    choices = Choices(asked.plan, asked.pool)
    keep_freed_blocks()
    torch.set_num_threads(1)
    rounds, steps = (1, 2) if asked.quick else (asked.rounds, asked.steps)
    if not asked.json:
        print(heading(HEADER, texts=3), flush=True)
    same = True
    for model in models:
        for budget in asked.budgets.split(","):
            for row in rows(model, budget, rounds, steps, asked.ways.split(","), choices):
                same &= row.same_losses
                print(json.dumps(asdict(row)) if asked.json else line(cells(row)), flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
