"""What Remat raises."""

from __future__ import annotations

from . import _native


class RematError(RuntimeError):
    """Something that Remat cannot do; the message says what and how to go on."""


class BudgetError(RematError, MemoryError):
    """No order of evictions and replays fits the budget.

    Every tensor is intact: raise the budget (``run.set_budget``) and go on, or start anew with ``smallest``.
    """

    def __init__(self, op: str, needed: int, smallest: int, budget: int, device: str = "cpu") -> None:
        #: The op that does not fit.
        self.op = op
        #: Bytes that must be there at once for the op: inputs, outputs, workspace and all that cannot be dropped.
        self.needed = needed
        #: The smallest budget, in bytes, known to work for this op from here.
        self.smallest = smallest
        #: The budget in force, in bytes.
        self.budget = budget
        #: The device it is of.
        self.device = device
        fmt = _native.format_bytes
        why = (
            f"it needs {fmt(needed)} at once and the budget is {fmt(budget)}"
            if needed > budget
            else f"no order of replays tried brings back what it reads within the budget of {fmt(budget)}"
        )
        super().__init__(
            f"{op} does not fit on {device}: {why}; "
            f"the smallest budget known to work here is {fmt(smallest)} ({smallest} bytes)"
        )

    def __reduce__(self) -> tuple[type[BudgetError], tuple[str, int, int, int, str]]:
        return (BudgetError, (self.op, self.needed, self.smallest, self.budget, self.device))
