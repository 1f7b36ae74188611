"""The kinds of pressure under which a program runs: none, drops at its moments, drops before every op, and the smallest
budget that is not refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import remat
from torch.utils._python_dispatch import TorchDispatchMode

Moment = Callable[[], None]
"""Called by a program before its op, around backward, and before its results are read."""
Program = Callable[[Moment], Any]

AT_FIRST = 1 << 19
"""Below a MiB, an op of few bytes is replayed as any other."""
AMPLE = 1 << 32
REFUSALS = 200
SMALL_STEPS = 40
"""After so many refusals, each further budget is larger by at least a hundredth."""


def nothing() -> None:
    """The moment of a program without pressure."""


def drop_all(run: remat.Run) -> None:
    """Evicts whatever can be evicted, and then has room for it again."""
    try:
        run.set_budget(1)
    except remat.BudgetError as refused:
        run.set_budget(refused.smallest)
    run.set_budget(AMPLE)


class BeforeEveryOp(TorchDispatchMode):
    """Drops everything before each op that reaches the budget."""

    def __init__(self, run: remat.Run) -> None:
        super().__init__()
        self._run = run

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drop_all(self._run)
        return func(*args, **(kwargs or {}))


class PassThrough(TorchDispatchMode):
    """Does nothing: torch takes other ways as soon as any mode is there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def _ample() -> Iterator[remat.Run]:
    """A budget in which small storages are replayed, too, and that refuses nothing."""
    try:
        budget = remat.budget(AT_FIRST, policy="lru")
        run = budget.__enter__()
    except remat.BudgetError as refused:
        budget = remat.budget(refused.smallest + AT_FIRST, policy="lru")
        run = budget.__enter__()
    try:
        run.set_budget(AMPLE)
        yield run
    finally:
        budget.__exit__(None, None, None)


@contextmanager
def at_moments() -> Iterator[tuple[remat.Run, Moment]]:
    """Drops everything at the program's moments."""
    with _ample() as run:
        yield run, lambda: drop_all(run)


@contextmanager
def before_every_op() -> Iterator[tuple[remat.Run, Moment]]:
    """Drops everything before every op, and at the program's moments."""
    with _ample() as run, BeforeEveryOp(run):
        yield run, lambda: drop_all(run)


PRESSURES = {"at moments": at_moments, "before every op": before_every_op}
