"""Main memory that is kept for the next tensors, within the budget."""

from __future__ import annotations

import functools
import os

from .. import _native
from .._memory.budgets import DeviceBudget
from .._torch_internals import eager
from .._warnings import warn

#: Has torch's own allocator serve within budgets too, if it is ``off``.
VARIABLE = "REMAT_CACHING"


class Caching:
    """The caching allocator of a run: it serves tensors of main memory, if that has a budget."""

    def __init__(self, budgets: list[DeviceBudget]) -> None:
        chosen = os.environ.get(VARIABLE, "on")
        if chosen not in ("on", "off"):
            raise ValueError(f"{VARIABLE}={chosen}: expected 'on' or 'off'")
        sizes = [budget.bytes for budget in budgets if budget.name == "cpu"]
        self._limit = sizes[0] if sizes and chosen == "on" else None
        self._entered = False

    def enter(self) -> None:
        """Has it serve from here on."""
        if self._limit is None:
            return
        with eager.as_usual():
            reason = eager.prepare_caching()
        if reason is None:
            self._entered = _native.enter_caching(self._limit)
        elif eager.CACHING_PLATFORM:
            _warn_once(reason)

    def leave(self) -> None:
        """Has torch's own serve again, and gives back what is kept."""
        if self._entered:
            self._entered = False
            _native.leave_caching()

    def most(self) -> int | None:
        """The most bytes that tensors took, or freed blocks that were kept."""
        read = _native.read_caching() if self._entered else None
        return None if read is None else read[2]


@functools.cache
def _warn_once(reason: str) -> None:
    warn(
        f"remat: freed main memory is left to torch and the C library, so the process may hold more of it than the "
        f"budget: {reason}; {VARIABLE}=off silences this",
    )
