"""A budget shared by the graphs of a compiled model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _torch_seam as seam
from ._compile_watch import Watch
from ._cut import NoRoom
from ._cut_report import Report
from ._errors import BudgetError


class Limit:
    """Bytes that may be there at once, and what is known of how far the steps stay below them."""

    def __init__(self, budget: int, device: torch.device, report: Report) -> None:
        self._budget, self._device, self._report = budget, device, report
        #: Bytes that measured steps took beyond what was planned: workspace, copies that code generation adds.
        self._beyond = 0
        self._base = 0
        # Plans tried although none was seen to fit: the minimum cut, then that of the smallest planned peak.
        self._tried = 0
        self._trying = False
        #: The lowest peak of steps that took too much.
        self._lowest: int | None = None
        self._watch = Watch(budget, device, self._too_much)
        #: Called when graphs have to be compiled anew.
        self.on_change: Callable[[], Any] = lambda: None

    def room(self) -> int:
        """Bytes for the next graph, beside what is resident now."""
        self._base = self._watch.resident()
        return self._budget - self._base - self._beyond

    @property
    def state(self) -> tuple[int, int]:
        """What plans depend on beside the graph and its room."""
        return self._beyond, self._tried

    def refused(self, refusal: NoRoom) -> int | None:
        """How to plan where no plan is seen to fit. Planned peaks count values that fused kernels never write, so the
        two plans that are likeliest to fit are run and measured before a budget is refused. Raises the refusal then,
        and at once where not even the gradients fit."""
        if self._tried > 1 or refusal.least > self._budget - self._base:
            raise refusal
        self._trying = True
        return refusal.smallest if self._tried else None

    def compiled(self, compile_graph: Callable[[], Any], number: int) -> Any:
        """The graph, compiled and watched. Raises ``BudgetError`` where it does not fit."""
        try:
            return self._watch.graph(compile_graph())
        except Exception as error:
            refusal = _cause(error)
            if refusal is None:
                raise
            smallest = refusal.smallest + self._base + self._beyond
            if self._lowest is not None:
                smallest = min(smallest, self._lowest)
            smallest = max(smallest, self._budget + 1)
            name = seam.device_name(self._device)
            raise BudgetError(f"graph {number}", smallest, smallest, self._budget, name) from None

    def _too_much(self, peak: int) -> None:
        """A step took so many bytes: what was not foreseen is left free from now on, what was tried is not again."""
        self._lowest = peak if self._lowest is None else min(self._lowest, peak)
        if self._trying:
            self._tried += 1
            self._trying = False
        else:
            self._beyond += peak - self._budget
        self._report.measured_peak = peak
        self._watch = Watch(self._budget, self._device, self._too_much)
        self._report.restart()
        self.on_change()


def _cause(error: BaseException | None) -> NoRoom | None:
    """What the planner said, however torch has wrapped it."""
    while error is not None:
        if isinstance(error, NoRoom):
            return error
        error = error.__cause__ or error.__context__
    return None
