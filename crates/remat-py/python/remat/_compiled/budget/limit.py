"""The budget that the graphs of a compiled model share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import _native
from ..._errors import BudgetError
from ..._torch_internals import eager
from ..capture.cut import Cut
from ..report.report import Report
from .forecast import Around, Workspaces
from .leaf_gradients import leaves_among
from .search import NoRoom, Search
from .watch import Account, Watch

#: How many times earlier graphs are planned again to leave more bytes to a later one.
_TIMES = 4


class Limit:
    """A budget in bytes, and all that is known of the bytes that each graph takes of it."""

    def __init__(self, budget: int, device: torch.device, report: Report) -> None:
        self._budget, self._device, self._report = budget, device, report
        #: Bytes that graphs took beyond their forecasts in measured steps: the program holds them meanwhile.
        self._beyond = 0
        #: By graph, bytes that the program holds between its passes, and after them.
        self._between: dict[int, int] = {}
        self._after: dict[int, int] = {}
        #: Whether nothing new was learnt from the latest step that took too much.
        self._unexplained = False
        self._base = 0
        #: By graph, the bytes of its forecast, on top of those that were resident.
        self._foreseen: dict[int, int] = {}
        #: By graph, the bytes that it may take at most, so that later graphs fit.
        self._caps: dict[int, int] = {}
        self._times = 0
        self._workspaces = Workspaces(device)
        self._watch = Watch(budget, device, self._too_much)
        #: Called when graphs have to be compiled anew.
        self.on_change: Callable[[], Any] = lambda: None

    def search(self, number: int, inputs: Sequence[Any]) -> Search:
        """The search for the plan of graph ``number``, on top of the bytes that are resident now."""
        self._watch.pause()
        self._base = self._watch.resident()
        room = self._room()
        around = Around(leaves_among(inputs), self._between.get(number, 0), self._after.get(number, 0))
        return Search(min(room, self._caps.get(number, room)), self._workspaces, around)

    def _room(self) -> int:
        return self._budget - self._base - self._beyond

    def settled(self, number: int, cut: Cut) -> None:
        """Notes the cut that was chosen for a graph."""
        if cut.foreseen_bytes is not None:
            self._foreseen[number] = cut.foreseen_bytes

    def no_room(self, no_room: NoRoom, number: int) -> None:
        """Has graphs whose backward passes come after graph ``number``, which does not fit, leave it the missing bytes.

        They are planned again for the next step with a smaller budget, and the user is warned. Raises ``BudgetError``
        if there are no such graphs, or if this was tried too often. Graphs of other shapes keep nothing meanwhile.
        """
        missing = no_room.smallest - self._room()
        if missing <= 0:
            return  # it fits, but cannot leave more to later graphs
        before = [other for other in self._watch.between_passes() if other in self._foreseen]
        if not before or self._times >= _TIMES:
            smallest = self._budget + missing
            raise BudgetError(f"graph {number}", smallest, smallest, self._budget, eager.device_name(self._device))
        self._times += 1
        self._caps.update({other: self._foreseen[other] - missing for other in before})
        fmt = _native.format_bytes
        took = f"graph {number} will take {fmt(missing)} more than the budget of {fmt(self._budget)} leaves it"
        warnings.warn(f"{took}: graphs before it are planned anew for the next step", stacklevel=2)
        self._again()

    def watched(self, compiled: Callable[..., Any], number: int) -> Callable[..., Any]:
        """The graph, wrapped so that its first runs are measured."""
        return self._watch.graph(compiled, number)

    def _too_much(self, account: Account) -> None:
        """Takes in steps that took too many bytes: from now on what the program holds around the graphs stays free."""
        before = self._beyond, dict(self._between), dict(self._after)
        for number, taken in account.inside.items():
            self._beyond = max(self._beyond, taken - self._foreseen.get(number, taken))
        for known, seen in ((self._between, account.between), (self._after, account.after)):
            known.update({number: max(taken, known.get(number, 0)) for number, taken in seen.items()})
        learnt = before != (self._beyond, self._between, self._after)
        if not learnt and self._unexplained:
            self._beyond += account.peak - self._budget
        # What is resident may have grown: it is counted anew when the graphs are compiled.
        self._unexplained = not learnt
        self._report.measured_peak = account.peak
        self._again()

    def _again(self) -> None:
        """Has the next call compile its graphs anew."""
        self._watch = self._watch.renewed()
        self.on_change()
