"""The fastest plan of a graph whose generated code stays within the room that there is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from ..._errors import RematError
from ..._torch_internals.compiler import Generated, NodeKinds
from ..capture.joint_graph import flat_graph
from ..cut import Cut, plans
from .forecast import Forecast, Workspaces

#: Plans whose code is looked at for a graph, at most; each takes about half as long as compiling it.
_TRIES = 8
#: Room used up to this share is used well enough.
_FULL = 0.98


class NoRoom(RematError):
    """No plan fits; ``smallest`` bytes of room would do."""

    def __init__(self, smallest: int) -> None:
        super().__init__(f"{smallest} bytes of room are needed")
        self.smallest = smallest


@dataclass
class Search:
    """Of one graph: which of its plans to compile."""

    #: Bytes beside what is resident anyway.
    room: int
    workspaces: Workspaces
    _graph: str = ""
    _plans: list[Cut] = field(default_factory=list)
    _at: int = -1
    #: What the code of each plan that was looked at will take, by number.
    _foreseen: dict[int, int] = field(default_factory=dict)

    def choice(self, kinds: NodeKinds, forward_outputs: list[Any], backward_outputs: list[Any]) -> list[fx.Node]:
        """What torch's partitioner is to save, this time."""
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
        """What was chosen; ``None`` for a graph without a backward pass."""
        if not self._plans:
            return None
        return replace(self._plans[self._at], foreseen_bytes=self._foreseen.get(self._at))

    def identity(self) -> bytes:
        """Different for plans that are."""
        return repr(self.cut and self.cut.saved).encode()

    def run(self, generate: Callable[[Callable[[Generated], None]], None]) -> None:
        """Looks at the code of plans, and settles on one. Raises :class:`NoRoom` if none fits, and has settled on the
        smallest then."""
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
        """As planned, the fastest that fits; the smallest if none does."""
        return self._fastest_within(self.room, range(len(self._plans)))

    def _fastest_within(self, room: int, among: range) -> int:
        return max((at for at in among if self._plans[at].peak_bytes <= room), default=among[0])

    def _next(self) -> int | None:
        """The plan to look at now; ``None`` if what was seen suffices."""
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
        # What planning did not know of, the same for plans that are alike.
        beyond = self._foreseen[self._at] - self._plans[self._at].peak_bytes
        return self._fastest_within(self.room - beyond, between)

    def _untried_extreme(self) -> int | None:
        """Nothing fits down to the plan that should take least: the minimum cut may still, its kernels fuse most."""
        last = len(self._plans) - 1
        return None if last in self._foreseen else last
