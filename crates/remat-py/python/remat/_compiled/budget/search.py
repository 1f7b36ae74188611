"""The search for the fastest plan of a graph whose generated code fits into the room that is left."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from ..._errors import RematError
from ..._torch_internals import compiled
from ..._torch_internals.compiled import NotTakenApart
from ..._torch_internals.compiler import Generated, NodeKinds
from ..capture.cut import Cut, plans
from ..capture.joint_graph import flat_graph
from ..schedule.scheduling import Plan, Schedule
from .forecast import Around, Forecast, Workspaces

#: Cuts of a graph whose code is generated, at most. Each takes about half as long as compiling the graph.
_TRIES = 8
#: A cut that uses this share of the room ends the search.
_FULL = 0.98
#: The planner's account of a cut is off by this share at most, or nearly so.
_OFF = 0.1


class NoRoom(RematError):
    """No plan fits; ``smallest`` bytes of room would be enough."""

    def __init__(self, smallest: int) -> None:
        super().__init__(f"{smallest} bytes of room are needed")
        self.smallest = smallest


@dataclass
class Search:
    """The search among the plans of one graph: cuts, and the minimum cut with kernels that run again."""

    #: Bytes that the graph may take on top of resident ones.
    room: int
    workspaces: Workspaces
    around: Around = field(default_factory=Around)
    _graph: str = ""
    _plans: list[Cut] = field(default_factory=list)
    _at: int = -1
    #: By number of the cut, the forecast of its code in bytes.
    _foreseen: dict[int, int] = field(default_factory=dict)
    #: By number of the cut, the code of its forward and backward pass.
    _code: dict[int, list[Generated]] = field(default_factory=dict)
    #: The minimum cut's kernels, and the plan by which they run if no cut is as good.
    _schedule: Schedule | None = None
    _plan: Plan | None = None

    def choice(self, kinds: NodeKinds, forward_outputs: list[Any], backward_outputs: list[Any]) -> list[fx.Node]:
        """The values that torch's partitioner saves in the plan under way."""
        flat = flat_graph(kinds, forward_outputs, backward_outputs, self.workspaces.of_node)
        described = flat.json()
        if not self._plans:
            self._graph, self._plans = described, plans(flat)
            self._at = self._last
        elif described != self._graph:
            raise RematError("torch traced the same graph in two ways: a budget cannot be kept; please report it")
        return self._plans[self._at].nodes(kinds)

    @property
    def _last(self) -> int:
        """The minimum cut."""
        return len(self._plans) - 1

    @property
    def cut(self) -> Cut | None:
        """The chosen cut; ``None`` for a graph without a backward pass."""
        if not self._plans:
            return None
        cut = self._plans[self._at]
        if self._plan is None:
            return replace(cut, foreseen_bytes=self._foreseen.get(self._at))
        return replace(
            cut,
            foreseen_bytes=self._plan.foreseen_bytes,
            kernels_again=self._plan.runs_again,
            recompute_ns=cut.recompute_ns + self._plan.recompute_ns,
        )

    def identity(self) -> bytes:
        """Bytes that differ between plans with different code."""
        return repr((self.cut and self.cut.saved, [compiled.digest(source) for source in self._chosen()])).encode()

    def extra(self) -> int:
        """How many tensors the backward pass is handed beyond the saved values."""
        return 0 if self._plan is None else self._plan.code.extra

    def rewrite(self) -> Callable[[bool, str], str] | None:
        """From the code of a pass to the code that the forecast is of; ``None`` where there is no forecast.

        So a forecast holds whatever Inductor would generate the next time.
        """
        passes = self._chosen()
        return (lambda backward, source: compiled.replaced_by(source, passes[backward])) if passes else None

    def _chosen(self) -> list[str]:
        """The code of both passes; empty where none was looked at."""
        if self._plan is not None:
            return [self._plan.code.forward, self._plan.code.backward]
        return [generated.source for generated in self._code.get(self._at, [])]

    def run(self, generate: Callable[[Callable[[Generated], None]], None]) -> None:
        """Generates the code of plans and settles on one.

        Raises :class:`NoRoom` if none fits; the search has then settled on the smallest.
        """
        self._look(generate)
        if not self._plans or self._last not in self._foreseen:
            return
        if self._foreseen[self._last] <= self.room:
            return
        self._schedule = _schedule(self._code.get(self._last, []), self.workspaces, self.around)
        plan = self._schedule.within(self.room) if self._schedule is not None else None
        first = 0 if plan is None else self._first_faster(plan)
        for _ in range(1, _TRIES):
            following = self._next(first, sure=self._schedule is None)
            if following is None:
                break
            self._at = following
            self._look(generate)
            if following not in self._foreseen:
                return
        fitting = [at for at, peak in self._foreseen.items() if peak <= self.room]
        if fitting:
            self._at = max(fitting)
        elif plan is not None:
            self._at, self._plan = self._last, plan
        else:
            self._refuse(generate)

    def _look(self, generate: Callable[[Callable[[Generated], None]], None]) -> None:
        """Generates the code of the cut under way and notes its forecast, if there is one."""
        forecast, code = Forecast(self.workspaces, self.around), list[Generated]()

        def seen(generated: Generated) -> None:
            code.append(generated)
            forecast.seen(generated)

        generate(seen)
        if forecast.unknown is not None:
            why = str(forecast.unknown).strip().partition("\n")[0][:200]
            warnings.warn(f"what a graph takes is only estimated, and measured when it runs: {why}", stacklevel=3)
        peak = forecast.peak()
        if self._plans and peak is not None:
            self._foreseen[self._at] = peak
            if len(code) == 2:
                self._code[self._at] = sorted(code, key=lambda one: one.backward)

    def _refuse(self, generate: Callable[[Callable[[Generated], None]], None]) -> None:
        """Settles on the smallest of three plans that do not depend on the budget, so that none names another need."""
        beyond = self._foreseen[self._last] - self._plans[self._last].peak_bytes
        runs_again = None if self._schedule is None else self._schedule.smallest().foreseen_bytes
        worth = runs_again is None or self._plans[0].peak_bytes + beyond <= runs_again * (1 + _OFF)
        if 0 not in self._foreseen and worth:
            self._at = 0
            self._look(generate)
        known = [at for at in (self._last, 0) if at in self._foreseen]
        self._at = min(known, key=self._foreseen.__getitem__)
        smallest = self._foreseen[self._at]
        if self._schedule is not None and runs_again is not None and runs_again < smallest:
            self._at, self._plan, smallest = self._last, self._schedule.smallest(), runs_again
        if smallest > self.room:
            raise NoRoom(smallest)

    def _first_faster(self, plan: Plan) -> int:
        """The first of the cuts that take less time than running kernels again by a plan."""
        time = self._plans[self._last].recompute_ns + plan.recompute_ns
        return next((at for at, cut in enumerate(self._plans) if cut.recompute_ns < time), self._last)

    def _next(self, first: int, *, sure: bool) -> int | None:
        """The next cut, from ``first`` on, whose code to generate; ``None`` once the search can settle.

        Unless ``sure`` that a cut is needed, those that are much too large by the planner's account are left out.
        """
        fitting = [at for at, peak in self._foreseen.items() if peak <= self.room]
        low = max(fitting, default=first - 1)
        high = min((at for at in self._foreseen if at > low), default=len(self._plans))
        if fitting and self._foreseen[low] >= _FULL * self.room:
            return None
        between = range(low + 1, high)
        # Bytes that the planner did not know of; plans that are alike share them.
        beyond = self._foreseen[self._at] - self._plans[self._at].peak_bytes
        if not sure:
            most = self.room * (1 + _OFF) - beyond
            between = range(
                between.start, max((at + 1 for at in between if self._plans[at].peak_bytes <= most), default=0)
            )
        if not between:
            return None
        if len(self._foreseen) > 2:
            return between[len(between) // 2]
        return self._fastest_within(self.room - beyond, between)

    def _fastest_within(self, room: int, among: range) -> int:
        return max((at for at in among if self._plans[at].peak_bytes <= room), default=among[0])


def _schedule(code: list[Generated], workspaces: Workspaces, around: Around) -> Schedule | None:
    """The kernels of a graph; ``None`` for code that cannot be taken apart, whose kernels do not run again."""
    if not code:
        return None
    forward, backward = code
    try:
        return Schedule(forward, backward, workspaces, around)
    except NotTakenApart:
        return None
