"""A budget shared by the graphs of a compiled model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _torch_seam as seam
from ._compile_forecast import Workspaces
from ._compile_search import NoRoom, Search
from ._compile_watch import Watch
from ._cut_report import Report
from ._errors import BudgetError


class Limit:
    """Bytes that may be there at once, and what is known of how far the steps stay below them."""

    def __init__(self, budget: int, device: torch.device, report: Report) -> None:
        self._budget, self._device, self._report = budget, device, report
        #: Bytes that measured steps took beyond what was foreseen: what the program holds around its graphs.
        self._beyond = 0
        self._base = 0
        self._workspaces = Workspaces(device)
        self._watch = Watch(budget, device, self._too_much)
        #: Called when graphs have to be compiled anew.
        self.on_change: Callable[[], Any] = lambda: None

    def search(self) -> Search:
        """For the plan of the next graph, beside what is resident now."""
        self._base = self._watch.resident()
        return Search(self._budget - self._base - self._beyond, self._workspaces)

    def refusal(self, no_room: NoRoom, number: int) -> BudgetError:
        """What is raised where graph ``number`` does not fit."""
        smallest = no_room.smallest + self._base + self._beyond
        return BudgetError(f"graph {number}", smallest, smallest, self._budget, seam.device_name(self._device))

    def watched(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The graph, measured when it runs."""
        return self._watch.graph(compiled)

    def _too_much(self, peak: int) -> None:
        """A step took so many bytes: what was not foreseen is left free from now on."""
        self._beyond += peak - self._budget
        self._report.measured_peak = peak
        self._watch = Watch(self._budget, self._device, self._too_much)
        self._report.restart()
        self.on_change()
