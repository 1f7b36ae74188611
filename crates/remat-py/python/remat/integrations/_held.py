"""A budget that is entered and left by calls, as callbacks need it."""

from __future__ import annotations

import sys
from typing import Any

from .._memory.amounts import Budget, amount_of
from .._online.budget import budget as enter
from .._online.run import Run

#: The one that is in force: a loop that ends by an error does not always tell its callbacks.
_in_force: Held | None = None


class Held:
    """A budget of a callback. Entering it leaves one that a loop forgot."""

    def __init__(self, budget: Budget | dict[str, Budget], choices: dict[str, Any]) -> None:
        for amount in budget.values() if isinstance(budget, dict) else (budget,):
            amount_of(amount)  # raises for one that makes no sense
        #: The budget, and the other arguments of `remat.budget`.
        self.arguments = budget, choices
        self._context: Any = None
        #: The run in force, or the last one.
        self.run: Run | None = None

    @property
    def in_force(self) -> bool:
        """Whether it was entered, and neither left nor taken over by another one."""
        return self._context is not None

    def enter(self) -> Run:
        """Enters the budget; returns the run. Errors are those of :func:`remat.budget`."""
        global _in_force
        if _in_force is not None:
            _in_force.leave()
        budget, choices = self.arguments
        self._context = enter(budget, **choices)
        self.run = run = self._context.__enter__()
        _in_force = self
        return run

    def leave(self) -> None:
        """Leaves the budget, if it is in force."""
        global _in_force
        context, self._context = self._context, None
        if context is not None:
            _in_force = None
            context.__exit__(*sys.exc_info())
