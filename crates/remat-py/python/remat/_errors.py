"""The errors that Remat raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from . import _native


class RematError(RuntimeError):
    """Remat cannot do something; the message names it and says how to go on."""


_INTERPRETED = "The following operation failed in the TorchScript interpreter."
_Arguments = tuple[str, int, int, int, str, str | None, int | None]
_latest: _Arguments | None = None
_kept: ContextVar[list[BudgetError] | None] = ContextVar("remat_refusals", default=None)


class BudgetError(RematError, MemoryError):
    """No order of evictions and replays fits the budget.

    Every tensor is intact: raise the budget (``run.set_budget``) and go on, or start anew with ``suggested``.
    """

    def __init__(
        self,
        op: str,
        needed: int,
        smallest: int,
        budget: int,
        device: str = "cpu",
        why: str | None = None,
        suggested: int | None = None,
    ) -> None:
        #: The op that does not fit.
        self.op = op
        #: Bytes that must be there at once for the op: inputs, outputs, workspace and all that cannot be dropped.
        self.needed = needed
        #: The smallest budget, in bytes, known to work for this op from here.
        self.smallest = smallest
        #: A budget, in bytes, to start anew with: later ops, of which nothing is known yet, may need more.
        self.suggested = smallest if suggested is None else suggested
        #: The budget in force, in bytes.
        self.budget = budget
        #: The device it is of.
        self.device = device
        self._why = why
        fmt = _native.format_bytes
        in_arena = why is not None
        why = why or (
            f"it needs {fmt(needed)} at once and the budget is {fmt(budget)}"
            if needed > budget
            else f"no order of replays tried brings back what it reads within the budget of {fmt(budget)}"
        )
        way_out = (
            "an arena that has room for it here is one of" if in_arena else "the smallest budget known to work here is"
        )
        more = "" if suggested is None else f"; later ops may need more, {fmt(suggested)} leaves room for them"
        super().__init__(f"{op} does not fit on {device}: {why}; {way_out} {fmt(smallest)} ({smallest} bytes){more}")
        global _latest
        _latest = self.__reduce__()[1]
        kept = _kept.get()
        if kept is not None:
            kept.append(self)

    @classmethod
    def of_arena(cls, op: str, wanted: int, capacity: int, free: int, largest: int) -> BudgetError:
        """The error where no block of an arena holds an op's allocation and nothing more can be evicted."""
        fmt = _native.format_bytes
        smallest = capacity + wanted  # an arena that is larger at its end
        why = (
            f"no block of the arena of {fmt(capacity)} holds what it allocates ({fmt(free)} are free, "
            f"{fmt(largest)} in one piece) and nothing more can be evicted"
        )
        return cls(op, capacity - free + wanted, smallest, capacity, "cpu", why)

    def __reduce__(self) -> tuple[type[BudgetError], _Arguments]:
        suggested = self.suggested if self.suggested > self.smallest else None
        told = (self.op, self.needed, self.smallest, self.budget, self.device, self._why, suggested)
        return (BudgetError, told)


def reraise_interrupt(error: BaseException) -> None:
    """Raises what a handler of a signal raised, where Python made another error of it, which is about to be dropped.

    Up to Python 3.11 a ``RuntimeError`` replaces whatever is raised in ``__set_name__``. Modules that torch imports
    while it works out a shape define many classes.
    """
    cause: BaseException | None = error
    while cause is not None:
        if not isinstance(cause, Exception):
            raise cause
        cause = cause.__cause__


@contextmanager
def refusals_reraised() -> Iterator[None]:
    """Raises a ``BudgetError`` again that the body turned into the text of another error."""
    kept: list[BudgetError] = []
    token = _kept.set(kept)
    try:
        yield
    except RuntimeError as error:
        swallowed = next((refusal for refusal in kept if str(refusal) in str(error)), None)
        if swallowed is None or isinstance(error, BudgetError):
            raise
        raise swallowed from error
    finally:
        _kept.reset(token)
        kept.clear()


def refusals_forgotten() -> None:
    """A run begins: refusals of earlier ones explain no error of it."""
    global _latest
    _latest = None


def refusal_behind(error: BaseException | None) -> BudgetError | None:
    """The refusal that TorchScript's interpreter turned into an error of its own.

    Torch takes some ops apart in it, in forward mode. The text of the refusal is lost where a dispatch mode raised it.
    """
    if type(error) is not RuntimeError or _latest is None:
        return None
    told, refusal = str(error), BudgetError(*_latest)
    behind = told.endswith("\nRuntimeError: \n") or f"\nRuntimeError: BudgetError: {refusal}\n" in told
    return refusal if told.startswith(_INTERPRETED) and behind else None
