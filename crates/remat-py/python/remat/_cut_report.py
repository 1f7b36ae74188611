"""What ``remat.compile`` did with each graph."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import _native
from ._cut import Cut
from ._cut_picture import picture
from ._errors import RematError
from ._step_peak import step_peak

_LARGEST = 12


@dataclass
class Report:
    """Graphs in the order in which they were compiled; ``print`` says it in words.

    A graph that torch found in its compile cache, and one without a backward pass, was not cut: nothing is told of it.
    """

    _cuts: dict[int, Cut | None] = field(default_factory=dict)
    #: Most bytes resident in the step that was measured.
    measured_peak: int | None = None

    def __call__(self, step: Callable[[], Any] | None = None) -> Report:
        """The report. ``step``, a training step of the compiled model, is run and its peak measured."""
        if step is not None:
            self.measured_peak = step_peak(step)
        return self

    def started(self) -> int:
        """A graph is about to be compiled; its number."""
        number = len(self._cuts)
        self._cuts[number] = None
        return number

    def restart(self) -> None:
        """Graphs are compiled anew."""
        self._cuts.clear()

    def add(self, number: int, cut: Cut) -> None:
        """It has been cut."""
        self._cuts[number] = cut

    @property
    def cuts(self) -> list[Cut]:
        """Graphs that were cut."""
        return [cut for cut in self._cuts.values() if cut is not None]

    def json(self) -> str:
        """A list with an object a graph, and the measured peak."""
        graphs = [_facts(number, cut) for number, cut in self._cuts.items()]
        return json.dumps({"graphs": graphs, "measured_peak_bytes": self.measured_peak}, indent=1)

    def svg(self, path: str | os.PathLike[str], graph: int = 0) -> None:
        """Draws a graph with its cut: forward pass left, backward pass right, what is saved between them."""
        cut = self._cuts.get(graph)
        if cut is None:
            raise RematError(f"graph {graph} was not cut here: there are {_numbers(self._cuts)}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture(cut))

    def __str__(self) -> str:
        parts = [_words(number, cut) for number, cut in self._cuts.items()] or ["nothing was compiled yet"]
        if self.measured_peak is not None:
            parts.append(f"measured peak of the step: {_native.format_bytes(self.measured_peak)}")
        return "\n".join(parts)


def _numbers(cuts: dict[int, Cut | None]) -> str:
    return ", ".join(str(number) for number, cut in cuts.items() if cut is not None) or "none"


def _facts(number: int, cut: Cut | None) -> dict[str, Any]:
    if cut is None:
        return {"graph": number, "cut": False}
    return {
        "graph": number,
        "cut": True,
        "saved": [{"name": name, "bytes": cut.bytes_of(name)} for name in cut.saved],
        "recomputed": cut.recomputed,
        "banned": cut.banned,
        "bytes_before": cut.bytes_before,
        "bytes_after": cut.bytes_after,
        "planned_peak_bytes": cut.peak_bytes,
        "predicted_peak_bytes": cut.peak_bytes if cut.foreseen_bytes is None else cut.foreseen_bytes,
        "lifted": cut.lifted,
        "traffic_bytes": cut.cost,
        "solver_seconds": cut.solver_seconds,
        "seconds": cut.seconds,
    }


def _words(number: int, cut: Cut | None) -> str:
    if cut is None:
        return f"graph {number}: no backward pass, or from torch's compile cache"
    fmt = _native.format_bytes
    counts = Counter(cut.banned.values()).most_common()
    largest = sorted(cut.saved, key=cut.bytes_of, reverse=True)
    lines = [
        f"graph {number}: {len(cut.graph['nodes'])} nodes, cut in {cut.seconds * 1e3:.1f} ms",
        f"  saved       {fmt(cut.bytes_after)} in {len(cut.saved)} values; {fmt(cut.bytes_before)} without recomputing",
        _peak(cut),
        f"  recomputed  {len(cut.recomputed)} ops" + (f", {len(cut.lifted)} for the budget" if cut.lifted else ""),
        f"  banned      {len(cut.banned)}: " + (", ".join(f"{count} {reason}" for reason, count in counts) or "none"),
        *(f"  {fmt(cut.bytes_of(name)):>11}  {name}" for name in largest[:_LARGEST] if cut.bytes_of(name)),
    ]
    return "\n".join(lines)


def _peak(cut: Cut) -> str:
    beside = "beside what is resident anyway"
    planned = _native.format_bytes(cut.peak_bytes)
    if cut.foreseen_bytes is None:
        return f"  peak        {planned} {beside}, as planned"
    foreseen = _native.format_bytes(cut.foreseen_bytes)
    return f"  peak        {foreseen} {beside}, by the code that was generated; {planned} as planned"
