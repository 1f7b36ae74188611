"""Processes that a program under ``remat run`` starts by ``torch.multiprocessing``: each enters a budget of its own.

Those are processes for training. Others run without a budget, such as the workers of a data loader. A line says so
where they run a function of the program itself, which may be training too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from .._torch_internals import eager
from .arena import preloading, set_preload
from .launch import of_started
from .reports import Reports, log_of
from .run import leave_in_child
from .run_options import budget_of_options
from .standard_error import tell as say

#: Whether processes that are started enter budgets.
_in_force = False


class WithinBudget:
    """A function for a started process, which runs it inside the budget that ``remat run`` was asked for.

    Processes that are not forked get it by pickle.
    """

    def __init__(self, function: Callable[..., object], options: argparse.Namespace) -> None:
        self._function = function
        self._options = options
        self._preload = os.environ.get("LD_PRELOAD")

    def __call__(self, number: int, *args: Any) -> None:
        set_preload(self._preload)
        leave_in_child()  # a forked process, which has its parent's budget
        own = of_started(self._options, number)
        context = budget_of_options(own)
        run = context.__enter__()
        with each_within_budget(self._options), Reports(run, log_of(os.environ), own.report, own.argv):
            try:
                self._function(number, *args)
            finally:
                context.__exit__(*sys.exc_info())


@contextmanager
def each_within_budget(options: argparse.Namespace) -> Iterator[None]:
    """While this is active, what the program starts by ``torch.multiprocessing`` enters budgets by these options.

    A forked process finds it active, as its parent left it.
    """
    global _in_force
    if _in_force:
        yield
        return

    def start(function: Callable[..., object], started: Callable[[Callable[..., object]], Any]) -> Any:
        work = WithinBudget(function, options)
        if options.pool != "arena":
            return started(work)
        with preloading():
            return started(work)

    tell = _once(
        "runs without a budget, in a process that the program starts for it: "
        "start it with torch.multiprocessing.spawn, or enter `remat.budget` in it"
    )
    with eager.started_processes(start), _told_of_own_functions(tell):
        _in_force = True
        try:
            yield
        finally:
            _in_force = False


@contextmanager
def processes_told_of() -> Iterator[None]:
    """While this is active, a line says once that what the program starts in processes is not measured."""
    tell = _once("is not measured, in a process that the program starts for it: measure a program that calls it itself")

    def start(function: Callable[..., object], started: Callable[[Callable[..., object]], Any]) -> Any:
        tell(function)
        return started(function)

    with eager.started_processes(start), _told_of_own_functions(tell):
        yield


def _once(fact: str) -> Callable[[object], None]:
    """Tells a fact of the first function that it is called with."""
    told = log_of(os.environ) == "off"

    def tell(function: object) -> None:
        nonlocal told
        if not told:
            told = True
            say(f"remat: {getattr(function, '__qualname__', type(function).__qualname__)} {fact}\n")

    return tell


@contextmanager
def _told_of_own_functions(tell: Callable[[object], None]) -> Iterator[None]:
    """While this is active, ``tell`` hears of functions of the main module that processes are started for."""
    start = BaseProcess.start

    def started(process: BaseProcess) -> None:
        runs = getattr(process, "_target", None) or type(process)
        if getattr(runs, "__module__", None) == "__main__":
            tell(runs)
        start(process)

    BaseProcess.start = started  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        BaseProcess.start = start  # type: ignore[method-assign]
