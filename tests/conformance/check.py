"""The check of one item: plain eager twice, each kind of pressure, and the true peak at the smallest budget."""

from __future__ import annotations

import ctypes
import gc
from dataclasses import dataclass, field
from enum import Enum

import remat
import torch
from true_peak import true_peak

from .comparison import Outcome, difference, outcome
from .databases import programs
from .item import Item
from .pressure import PRESSURES, REFUSALS, SMALL_STEPS, PassThrough, Program, nothing

SEED = 1234
PERTURB = -6
"""glibc's M_PERTURB: memory that is handed out is filled with a byte, so that a read of it shows."""
LEAST = 64
"""The first budget tried. Where all tensors are empty, torch makes tensors of single numbers still."""


class State(Enum):
    """The result of an item."""

    IDENTICAL = "identical"
    FAILING = "failing"
    PLAIN_FAILS = "fails in plain eager"
    UNREPEATABLE = "not repeatable in plain eager"
    ANY_MODE = "other under any dispatch mode"
    SKIPPED = "skipped"


@dataclass
class Verdict:
    """The finding on one item."""

    item: str
    state: State
    reason: str = ""
    samples: int = 0
    evictions: int = 0
    recomputed: int = 0
    seconds: float = 0.0


@dataclass
class _Counts:
    """Evictions and replays of all runs of an item."""

    evictions: int = 0
    recomputed: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, run: remat.Run) -> None:
        stats = run.stats()
        self.evictions += stats.evictions
        self.recomputed += stats.recomputed


class Unlike(Exception):
    """A run under pressure that does not do what plain eager does."""


def perturb(byte: int) -> None:
    """Has the allocator fill the memory that it hands out from here on."""
    ctypes.CDLL(None).mallopt(PERTURB, byte)


def _plain(program: Program, byte: int) -> Outcome:
    perturb(byte)
    torch.manual_seed(SEED)
    return outcome(program(nothing))


def _any_mode(program: Program) -> Outcome | str:
    torch.manual_seed(SEED)
    try:
        with PassThrough():
            found = program(nothing)
        return outcome(found)
    except Exception as error:
        return type(error).__name__


def _references(program: Program) -> tuple[Outcome, bool]:
    """The outcome in plain eager, and whether two runs agree. The first of a process may take other kernels."""
    once, again = _plain(program, 0x5A), _plain(program, 0xC3)
    if difference(once, again):
        once, again = again, _plain(program, 0x5A)
    return once, not difference(once, again)


def _pressed(program: Program, kind: str, counts: _Counts) -> Outcome | str:
    """The outcome under a kind of pressure, or the error that it ends with."""
    torch.manual_seed(SEED)
    try:
        with PRESSURES[kind]() as (run, moment):
            result = program(moment)
            moment()
            found = outcome(result)
            counts.add(run)
        return found
    except Exception as error:
        return _said(error)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:300]


def _check_pressure(program: Program, expected: Outcome, kind: str, counts: _Counts) -> None:
    found = _pressed(program, kind, counts)
    wrong = found if isinstance(found, str) else difference(expected, found)
    if not wrong:
        return
    other = _any_mode(program)
    alike = found.startswith(other) if isinstance(found, str) and isinstance(other, str) else False
    if isinstance(found, list) and isinstance(other, list):
        alike = not difference(other, found)
    if alike:
        counts.notes.append(f"{kind}: {wrong}")
        return
    raise Unlike(f"{kind}: {wrong}")


def _check_smallest(program: Program, expected: Outcome, counts: _Counts) -> None:
    """At the smallest budget that is not refused: the same bits, and no byte above it."""
    asked, refusals = LEAST, 0
    while True:
        gc.collect()
        try:
            _in_budget(program, asked, counts, profiled=False)
            found, highest = _in_budget(program, asked, counts, profiled=True)
            break
        except remat.BudgetError as refused:
            refusals += 1
            if refused.smallest <= asked or refusals > REFUSALS:
                raise Unlike(f"smallest budget: {refusals} refusals, the last: {_said(refused)}") from None
            asked = max(refused.smallest, asked + asked // 100 if refusals > SMALL_STEPS else 0)
    if highest > asked:
        raise Unlike(f"smallest budget: the allocator saw {highest - asked} bytes more than {asked}")
    wrong = difference(expected, found)
    if wrong and (isinstance(other := _any_mode(program), str) or difference(other, found)):
        raise Unlike(f"smallest budget: {wrong}")


def _in_budget(program: Program, asked: int, counts: _Counts, profiled: bool) -> tuple[Outcome, int]:
    """Remat learns workspaces in a run without a profiler; one with it sees the true peak."""
    torch.manual_seed(SEED)
    highest = 0
    with remat.budget(asked, policy="lru") as run:
        if profiled:
            with true_peak() as peak:
                result = program(nothing)
            highest = peak.highest
        else:
            result = program(nothing)
        counts.add(run)
        if run.stats().peak > asked:
            raise Unlike(f"smallest budget: by its own account {run.stats().peak} bytes above {asked}")
    return outcome(result), highest


def _check_sample(program: Program, expected: Outcome, counts: _Counts) -> None:
    for kind in PRESSURES:
        _check_pressure(program, expected, kind, counts)
    try:
        _check_smallest(program, expected, counts)
    except Unlike:
        raise
    except Exception as error:
        if not counts.notes:
            raise Unlike(f"smallest budget: {_said(error)}") from None


#: Items whose results are what the memory happens to hold, which two plain runs may find the same.
UNWRITTEN = ("op:empty_strided:",)


def check(item: Item, samples: int) -> Verdict:
    """Checks an item with as many samples as are asked for, if the database has so many that run in plain eager."""
    counts, checked, reason = _Counts(), 0, "no sample"
    state = State.PLAIN_FAILS

    def verdict(state: State, reason: str = "") -> Verdict:
        return Verdict(item.name, state, reason, checked, counts.evictions, counts.recomputed)

    try:
        for program in programs(item):
            gc.collect()
            try:
                expected, repeatable = _references(program)
            except Exception as error:
                reason = _said(error) if state is State.PLAIN_FAILS else reason
                continue
            if not repeatable or item.name.startswith(UNWRITTEN):
                state, reason = State.UNREPEATABLE, "two plain runs differ, or may"
                continue
            checked += 1
            _check_sample(program, expected, counts)
            if checked == samples:
                break
    except Unlike as wrong:
        return verdict(State.FAILING, str(wrong))
    if not checked:
        return verdict(state, reason)
    if counts.notes:
        return verdict(State.ANY_MODE, counts.notes[0])
    return verdict(State.IDENTICAL)
