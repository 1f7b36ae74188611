"""The report of ``remat.compile`` on each graph."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ... import _native
from ..._errors import RematError
from ..._memory.step_peak import step_peak
from ..capture.cut import Cut
from .picture import picture

_LARGEST = 12
_CACHED = " before; found in torch's compile cache"
_UNKNOWN = (
    "found in torch's compile cache, which was filled without a report; "
    "to have it cut here, set TORCHINDUCTOR_FORCE_DISABLE_CACHES=1"
)


@dataclass(frozen=True)
class _Graph:
    """The report's entry for one graph."""

    cut: Cut | None = None
    #: Whether torch had it in its compile cache.
    cached: bool = False
    #: Whether anything is known of it. If so, a compiled graph without a cut has no backward pass.
    known: bool = True
    #: Whether it was refused, or an error ended its compilation.
    refused: bool = False

    def facts(self) -> dict[str, Any]:
        """The entry as plain data for JSON."""
        if self.refused:
            return {"cut": False, "from_cache": False, "refused": True}
        facts = {"cut": self.cut is not None, "from_cache": self.cached}
        return facts if self.cut is None else {**facts, **_facts(self.cut)}

    def words(self) -> str:
        """The entry in words."""
        if self.refused:
            return "refused, and not compiled"
        if self.cut is not None:
            return _words(self.cut, cached=self.cached)
        return "no backward pass" if self.known else _UNKNOWN


@dataclass
class Report:
    """Graphs in the order in which they were compiled; ``print`` shows them in words.

    For a graph from torch's compile cache the report shows the cut that was chosen when the cache was filled.
    """

    _graphs: dict[int, _Graph] = field(default_factory=dict)
    #: Most bytes resident in the step that was measured; ``None`` if none was.
    measured_peak: int | None = None

    def __call__(self, step: Callable[[], Any] | None = None) -> Report:
        """Returns the report; first runs ``step``, a training step of the compiled model, and measures its peak."""
        if step is not None:
            self.measured_peak = step_peak(step)
        return self

    def started(self) -> int:
        """Begins the entry of a graph that is about to be compiled; returns its number."""
        number = len(self._graphs)
        self._graphs[number] = _Graph()
        return number

    def copy(self) -> Report:
        """A copy that later changes of this one do not reach."""
        return Report(dict(self._graphs), self.measured_peak)

    def restart(self) -> None:
        """Forgets all graphs: they are compiled anew."""
        self._graphs.clear()

    def add(self, number: int, cut: Cut) -> None:
        """Notes the cut of a graph."""
        self._graphs[number] = _Graph(cut)

    def refused(self, number: int) -> None:
        """Notes a graph of which the compilation was refused, or ended by another error."""
        self._graphs[number] = _Graph(refused=True)

    def found(self, number: int, cut: Cut | None, *, known: bool) -> None:
        """Notes a graph from torch's compile cache; ``cut`` was kept there, unless nothing is ``known``."""
        self._graphs[number] = _Graph(cut, cached=True, known=known)

    def cut(self, number: int) -> Cut | None:
        """The cut of a graph; ``None`` if there is none."""
        return self._graphs[number].cut

    @property
    def cuts(self) -> list[Cut]:
        """The cuts of all graphs that have one."""
        return [graph.cut for graph in self._graphs.values() if graph.cut is not None]

    def json(self) -> str:
        """The report as JSON: an object for each graph, and the measured peak in bytes."""
        graphs = [{"graph": number, **graph.facts()} for number, graph in self._graphs.items()]
        return json.dumps({"graphs": graphs, "measured_peak_bytes": self.measured_peak}, indent=1)

    def svg(self, path: str | os.PathLike[str], graph: int = 0) -> None:
        """Draws a graph with its cut as SVG: forward pass left, backward pass right, saved values between them.

        Raises :class:`remat.RematError` for a graph without a cut.
        """
        drawn = self._graphs.get(graph)
        if drawn is None or drawn.cut is None:
            known = ", ".join(str(number) for number, one in self._graphs.items() if one.cut is not None)
            raise RematError(f"nothing is known of a cut of graph {graph}: there are {known or 'none'}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture(drawn.cut))

    def __str__(self) -> str:
        parts = [f"graph {number}: {graph.words()}" for number, graph in self._graphs.items()]
        parts = parts or ["nothing was compiled yet"]
        if self.measured_peak is not None:
            parts.append(f"measured peak of the step: {_native.format_bytes(self.measured_peak)}")
        return "\n".join(parts)


def _facts(cut: Cut) -> dict[str, Any]:
    return {
        "saved": [{"name": name, "bytes": cut.bytes_of(name)} for name in cut.saved],
        "recomputed": cut.recomputed,
        "banned": cut.banned,
        "bytes_before": cut.bytes_before,
        "bytes_after": cut.bytes_after,
        "planned_peak_bytes": cut.peak_bytes,
        "predicted_peak_bytes": cut.peak_bytes if cut.foreseen_bytes is None else cut.foreseen_bytes,
        "lifted": cut.lifted,
        "kernels_again": cut.kernels_again,
        "traffic_bytes": cut.cost,
        "solver_seconds": cut.solver_seconds,
        "seconds": cut.seconds,
    }


def _words(cut: Cut, *, cached: bool) -> str:
    fmt = _native.format_bytes
    counts = Counter(cut.banned.values()).most_common()
    largest = sorted(cut.saved, key=cut.bytes_of, reverse=True)
    lines = [
        f"{len(cut.graph['nodes'])} nodes, cut in {cut.seconds * 1e3:.1f} ms{cached * _CACHED}",
        f"  saved       {fmt(cut.bytes_after)} in {len(cut.saved)} values; {fmt(cut.bytes_before)} without recomputing",
        _peak(cut),
        f"  recomputed  {len(cut.recomputed)} ops" + (f", {len(cut.lifted)} for the budget" if cut.lifted else ""),
        *([f"  run again   {cut.kernels_again} kernels and ops, in the backward pass"] if cut.kernels_again else []),
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
