"""The search for the fastest plan of a graph whose generated code fits into the room that is left."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from ..._errors import RematError
from ..._torch_internals.compiler import Generated, NodeKinds
from ..capture.cut import Cut, plans
from ..capture.joint_graph import flat_graph
from .forecast import Forecast, Workspaces

#: Plans of a graph whose code is generated, at most. Each takes about half as long as compiling the graph.
_TRIES = 8
#: A plan that uses this share of the room ends the search.
_FULL = 0.98


class NoRoom(RematError):
    """No plan fits; ``smallest`` bytes of room would be enough."""

    def __init__(self, smallest: int) -> None:
        super().__init__(f"{smallest} bytes of room are needed")
        self.smallest = smallest


@dataclass
class Search:
    """The search among the plans of one graph."""

    #: Bytes that the graph may take on top of resident ones.
    room: int
    workspaces: Workspaces
    _graph: str = ""
    _plans: list[Cut] = field(default_factory=list)
    _at: int = -1
    #: By number of the plan, the forecast of its code in bytes.
    _foreseen: dict[int, int] = field(default_factory=dict)

    def choice(self, kinds: NodeKinds, forward_outputs: list[Any], backward_outputs: list[Any]) -> list[fx.Node]:
        """The values that torch's partitioner saves in the plan under way."""
        flat = flat_graph(kinds, forward_outputs, backward_outputs, self.workspaces.of_node)
        described = flat.json()
        if not self._plans:
            self._graph, self._plans = described, plans(flat)
            self._at = self._first()
        elif described != self._graph:
            raise RematError("torch traced the same graph in two ways: a budget cannot be kept; please report it")
        return self._plans[self._at].nodes(kinds)

    @property
    def cut(self) -> Cut | None:
        """The chosen cut; ``None`` for a graph without a backward pass."""
        if not self._plans:
            return None
        return replace(self._plans[self._at], foreseen_bytes=self._foreseen.get(self._at))

    def identity(self) -> bytes:
        """Bytes that differ between plans that save different values."""
        return repr(self.cut and self.cut.saved).encode()

    def run(self, generate: Callable[[Callable[[Generated], None]], None]) -> None:
        """Generates the code of plans and settles on one.

        Raises :class:`NoRoom` if none fits; the search has then settled on the smallest.
        """
        for _ in range(_TRIES):
            forecast = Forecast(self.workspaces)
            generate(forecast.seen)
            peak = forecast.peak()
            if forecast.unknown is not None:
                why = str(forecast.unknown).strip().partition("\n")[0][:200]
                warnings.warn(f"what a graph takes is only estimated, and measured when it runs: {why}", stacklevel=2)
            if not self._plans or peak is None:
                return
            self._foreseen[self._at] = peak
            following = self._next()
            if following is None:
                break
            self._at = following
        fitting = [at for at, peak in self._foreseen.items() if peak <= self.room]
        if not fitting:
            self._at = min(self._foreseen, key=self._foreseen.__getitem__)
            raise NoRoom(self._foreseen[self._at])
        self._at = max(fitting)

    def _first(self) -> int:
        """The fastest plan that fits by the planner's account; the smallest if none does."""
        return self._fastest_within(self.room, range(len(self._plans)))

    def _fastest_within(self, room: int, among: range) -> int:
        return max((at for at in among if self._plans[at].peak_bytes <= room), default=among[0])

    def _next(self) -> int | None:
        """The next plan whose code to generate; ``None`` once the search can settle."""
        fitting = [at for at, peak in self._foreseen.items() if peak <= self.room]
        low = max(fitting, default=-1)
        high = min((at for at in self._foreseen if at > low), default=len(self._plans))
        if fitting and self._foreseen[low] >= _FULL * self.room:
            return None
        between = range(low + 1, high)
        if not between:
            return self._untried_extreme() if not fitting else None
        if len(self._foreseen) > 2:
            return between[len(between) // 2]
        # Bytes that the planner did not know of; plans that are alike share them.
        beyond = self._foreseen[self._at] - self._plans[self._at].peak_bytes
        return self._fastest_within(self.room - beyond, between)

    def _untried_extreme(self) -> int | None:
        """The minimum cut, where not even the smallest plan fits: its kernels fuse most, so it may still fit."""
        last = len(self._plans) - 1
        return None if last in self._foreseen else last
