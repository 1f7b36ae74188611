"""How long the steps of a program take once they have settled, without Remat and inside budgets, in this process."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import thread_time
from typing import Any

import remat
from torch.optim.optimizer import register_optimizer_step_post_hook
from true_peak import resident_storages

from . import observe
from .catalogue import SHARES, Program

#: Most steps of one run, those that it takes at least if it lasts, and the fewest that tell of steps that have settled.
MOST_STEPS, USUAL_STEPS, FEWEST_STEPS = 400, 24, 12

#: Steps after which a program's memory is known.
SEEN = 5


class Enough(Exception):
    """Ends a program after a step."""


@dataclass(frozen=True)
class Settled:
    """Steps of an optimizer in the last third of a run, on the average."""

    #: Seconds of the thread that trains.
    seconds: float
    #: Parts of them that went into recomputing and deciding; parts of the steps that ran as planned.
    recomputing: float
    deciding: float
    planned: float
    #: Ops, those run again, and calls that Python took.
    ops: float
    recomputed: float
    through_python: float


def row_of(program: Program, seconds: float) -> dict[str, Any]:
    """Steps without Remat for so many seconds, and as many within each budget; times are in parts of the plain ones."""
    few = Program(program.name, program.package, lambda: _until(program, lambda at: at >= SEEN), program.small)
    usual = observe.plain(few)
    gc.collect()
    plain = _timed(program, lambda times: _is_enough(times, seconds))
    row: dict[str, Any] = {"program": program.name, "package": program.package, "steps": len(plain) - 1, "within": {}}
    if len(plain) <= FEWEST_STEPS:
        return row | {"failure": f"{len(plain) - 1} steps of an optimizer, and {FEWEST_STEPS} are needed"}
    row |= {"seconds": _late(plain), "peak": usual.peak, "at_rest": usual.at_rest}
    for name, share in SHARES.items():
        gc.collect()
        before = sum(resident_storages().values())
        budget = 2 * usual.peak if share is None else usual.budget(share)
        try:
            found = _within(program, before + budget, len(plain) - 1)
        except remat.BudgetError:
            row["within"][name] = None
        else:
            row["within"][name] = vars(found) | {"time": found.seconds / row["seconds"]}
    return row


def _is_enough(times: list[float], seconds: float) -> bool:
    steps = len(times) - 1
    return steps >= MOST_STEPS or (steps >= USUAL_STEPS and times[-1] - times[0] > seconds)


def _within(program: Program, budget: int, steps: int) -> Settled:
    """The last third of so many steps inside a budget."""
    marks: list[Any] = []
    with remat.budget(budget) as inside:

        def enough(times: list[float]) -> bool:
            if len(times) - 1 in (steps - _third(steps), steps):
                marks.append(inside.stats())
            return len(times) > steps

        times = _timed(program, enough)
    first, last = marks
    whole = last.seconds - first.seconds
    late = _third(steps)
    planned = [mark.plan.steps if mark.plan else 0 for mark in marks]
    return Settled(
        _late(times),
        (last.recompute_seconds - first.recompute_seconds) / whole,
        (last.decide_seconds - first.decide_seconds) / whole,
        (planned[1] - planned[0]) / late,
        (last.ops - first.ops) / late,
        (last.recomputed - first.recomputed) / late,
        (last.through_python - first.through_python) / late,
    )


def _third(steps: int) -> int:
    return max(1, steps // 3)


def _late(times: list[float]) -> float:
    late = _third(len(times) - 1)
    return (times[-1] - times[-1 - late]) / late


def _timed(program: Program, enough: Callable[[list[float]], bool]) -> list[float]:
    """When the program began and when each step of an optimizer ended, until there are enough."""
    times = [thread_time()]

    def ended(_: int) -> bool:
        times.append(thread_time())
        return enough(times)

    _until(program, ended)
    return times


def _until(program: Program, ended: Callable[[int], bool]) -> None:
    """Runs the program until this says so of a step, whose number it is told."""
    with _after_each_step(ended), contextlib.suppress(Enough):
        observe.once(program)


@contextlib.contextmanager
def _after_each_step(ended: Callable[[int], bool]) -> Iterator[None]:
    count = 0

    def after(*_: Any) -> None:
        nonlocal count
        count += 1
        if ended(count):
            raise Enough

    hook = register_optimizer_step_post_hook(after)
    try:
        yield
    finally:
        hook.remove()
