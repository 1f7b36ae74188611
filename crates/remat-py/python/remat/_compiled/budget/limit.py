"""A budget shared by the graphs of a compiled model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from ... import _native
from ..._errors import BudgetError
from ..._torch_internals import eager
from ..cut import Cut
from ..report.report import Report
from .forecast import Workspaces
from .search import NoRoom, Search
from .watch import Watch

#: So often are earlier graphs asked to leave more for a later one.
_TIMES = 4


class Limit:
    """Bytes that may be there at once, and what is known of how far the steps stay below them."""

    def __init__(self, budget: int, device: torch.device, report: Report) -> None:
        self._budget, self._device, self._report = budget, device, report
        #: Bytes that measured steps took beyond what was foreseen: what the program holds around its graphs.
        self._beyond = 0
        self._base = 0
        #: Bytes that each graph was foreseen to take beside what was there, and may take for the sake of later ones.
        self._foreseen: dict[int, int] = {}
        self._caps: dict[int, int] = {}
        self._times = 0
        self._workspaces = Workspaces(device)
        self._watch = Watch(budget, device, self._too_much)
        #: Called when graphs have to be compiled anew.
        self.on_change: Callable[[], Any] = lambda: None

    def search(self, number: int) -> Search:
        """For the plan of graph ``number``, beside what is resident now."""
        self._base = self._watch.resident()
        room = self._room()
        return Search(min(room, self._caps.get(number, room)), self._workspaces)

    def _room(self) -> int:
        return self._budget - self._base - self._beyond

    def settled(self, number: int, cut: Cut) -> None:
        """What was chosen for a graph."""
        if cut.foreseen_bytes is not None:
            self._foreseen[number] = cut.foreseen_bytes

    def no_room(self, no_room: NoRoom, number: int) -> None:
        """Graph ``number`` does not fit. What graphs before it hold is for them to leave: they are planned anew for the
        next step, with a warning. Raises ``BudgetError`` if there are none, or that was tried."""
        missing = no_room.smallest - self._room()
        if missing <= 0:
            return  # it is only that it can leave no more to others
        before = [other for other in self._foreseen if other < number]
        if not before or self._times >= _TIMES:
            smallest = self._budget + missing
            raise BudgetError(f"graph {number}", smallest, smallest, self._budget, eager.device_name(self._device))
        self._times += 1
        self._caps.update({other: self._foreseen[other] - missing for other in before})
        fmt = _native.format_bytes
        took = f"graph {number} will take {fmt(missing)} more than the budget of {fmt(self._budget)} leaves it"
        warnings.warn(f"{took}: graphs before it are planned anew for the next step", stacklevel=2)
        self._again()

    def watched(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """The graph, measured when it runs."""
        return self._watch.graph(compiled)

    def _too_much(self, peak: int) -> None:
        """A step took so many bytes: what was not foreseen is left free from now on."""
        self._beyond += peak - self._budget
        self._report.measured_peak = peak
        self._again()

    def _again(self) -> None:
        """The next call compiles its graphs anew."""
        self._watch.retire()
        self._watch = Watch(self._budget, self._device, self._too_much)
        self.on_change()
