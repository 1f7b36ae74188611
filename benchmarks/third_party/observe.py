"""A program without Remat and inside budgets, in this process."""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from time import process_time, time_ns
from typing import Any

import numpy
import remat
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from true_peak import cpu_memory_events, highest_sum, resident_bytes, resident_storages, true_peak

from .catalogue import Program

#: Parts of the span between the most that is there while an optimizer steps and the peak.
SHARES = (0.70, 0.45)

#: Budgets tried after a refusal, each the one that the refusal suggests.
RAISES = 6


@dataclass(frozen=True)
class Plain:
    """A program without Remat; bytes, and seconds of the processor."""

    digest: str
    #: Whether a second run has the same bits.
    repeats: bool
    seconds: float
    #: Most bytes of tensors at once, by the allocator's events, above those of the process before it.
    peak: int
    #: Most bytes at once while an optimizer steps: parameters, gradients, state and what it computes with, which no
    #: order of replays makes less. Where its step runs the model, as by L-BFGS: right after a step.
    at_rest: int

    def budget(self, share: float) -> int:
        """Bytes within which so much of the span is left."""
        return self.at_rest + int(share * (self.peak - self.at_rest))


@dataclass
class Budgeted:
    """A program inside a budget."""

    budget: int
    same: bool | None = None
    #: The true peak in parts of the budget.
    peak: float | None = None
    #: Seconds of the processor in parts of those without Remat.
    time: float | None = None
    #: Steps that ran as planned in the run that was timed.
    planned: int | None = None
    #: The one line of the refusal or error, if it ended so.
    failure: str | None = None
    #: Budgets that were refused, in parts of the span, and the one after them that was not.
    refused: list[float] = field(default_factory=list)
    runs_at: float | None = None
    #: Whether a refused budget holds once the workspace of every op is known; `None` if it was not refused.
    holds_once_seen: bool | None = None
    #: What the op that does not fit even then needs at once, in parts of the budget.
    needs: float | None = None


def seed() -> None:
    """Starts every generator that a program may ask."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def digest(value: Any) -> str:
    """A hash of every bit of a program's results."""
    found = hashlib.sha256()
    for part in _parts(value):
        found.update(part)
    return found.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        yield f"{value.dtype}{tuple(value.shape)}".encode()
        yield flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key).encode()
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        yield f"[{len(value)}".encode()
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()


def once(program: Program) -> str:
    """Runs the program as a script would; returns its digest."""
    seed()
    return digest(program.run())


def plain(program: Program) -> Plain:
    """Three runs without Remat: the first in the process, one that is timed, one whose memory is followed."""
    first = once(program)
    gc.collect()
    # What packages made as they were loaded is there to the end. Otherwise each collection and each look for tensors
    # goes through it: half of the time of a small program.
    gc.freeze()
    began = process_time()
    second = once(program)
    seconds = process_time() - began
    gc.collect()
    before, rests = resident_bytes(), [0]
    began_at: list[int] = []
    steps: list[tuple[int, int]] = []

    def begins(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        runs_the_model = any(callable(value) for value in (*args, *kwargs.values()))
        began_at.append(0 if runs_the_model else time_ns())

    def ends(*_: Any) -> None:
        if began := began_at.pop():
            steps.append((began, time_ns()))
        else:
            rests.append(resident_bytes() - before)

    hooks = [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)]
    try:
        log = cpu_memory_events(lambda: once(program))
    finally:
        for hook in hooks:
            hook.remove()
    held = 0
    for when, taken in log:
        held += taken
        if any(began <= when <= ended for began, ended in steps):
            rests.append(held)
    return Plain(first, first == second, seconds, highest_sum(log), max(rests))


def budgeted(program: Program, usual: Plain, share: float) -> Budgeted:
    """The program inside a share of its span, at first sight; once more for its true peak, and for its time.

    Its first run has no profiler around it: torch has but one, so Remat could measure no op and would go by estimates.
    """
    gc.collect()
    there = resident_storages()
    before = sum(there.values())
    found = Budgeted(before + usual.budget(share))
    results: list[str] = []

    def run() -> None:
        with remat.budget(found.budget) as inside:
            results.append(once(program))
            plan = inside.stats().plan
        found.planned = plan.steps if plan else 0

    try:
        run()
        peak = true_peak(run)
        gc.collect()
        # The allocator's log does not say when bytes of before were given back.
        left = resident_storages()
        peak -= sum(size for address, size in there.items() if address not in left)
        began = process_time()
        run()
        found.time = (process_time() - began) / usual.seconds
        found.peak = peak / found.budget
        found.same = all(result == usual.digest for result in results)
    except remat.BudgetError as error:
        found.failure = _one_line(error)
        found.refused = [share]
        suggested = error.suggested
    except Exception as error:  # any error of a program that runs without Remat is a finding
        found.failure = _one_line(error)
    # Within the handler the refused program's frames would live on, and their tensors with them.
    if found.refused:
        _raise_until_it_runs(run, found, usual, before, suggested)
        _try_once_seen(program, run, found)
    return found


def _try_once_seen(program: Program, run: Callable[[], None], found: Budgeted) -> None:
    """Runs the program without a budget, and then once more within the one that was refused."""
    gc.collect()
    remat.measure(lambda: once(program))
    gc.collect()
    try:
        run()
    except remat.BudgetError as error:
        found.holds_once_seen, found.needs = False, error.needed / error.budget
    else:
        found.holds_once_seen = True


def _raise_until_it_runs(run: Callable[[], None], found: Budgeted, usual: Plain, before: int, suggested: int) -> None:
    given, span = found.budget, max(1, usual.peak - usual.at_rest)
    for _ in range(RAISES):
        found.budget = suggested
        share = (suggested - before - usual.at_rest) / span
        gc.collect()
        try:
            run()
        except remat.BudgetError as error:
            found.refused.append(share)
            suggested = error.suggested
        except Exception as error:
            found.failure = _one_line(error)
            break
        else:
            found.runs_at = share
            break
    found.budget = given


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
