"""The cut of a compiled graph: the values that its forward pass saves for its backward pass."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import fx

from ... import _native
from ..._errors import RematError
from ..._torch_internals.compiler import Choice, NodeKinds
from .joint_graph import FlatGraph, flat_graph


@dataclass(frozen=True)
class Cut:
    """One joint graph and its cut."""

    #: Names of the values that the backward pass is handed, parameters and inputs among them.
    saved: list[str]
    #: Names of ops that both passes run.
    recomputed: list[str]
    #: Names of all ops that the backward pass runs although the forward pass could.
    late: list[str]
    #: Names of those among them that were banned and that the budget recomputes all the same.
    lifted: list[str]
    #: Names of ops that must not be recomputed, each with the reason.
    banned: dict[str, str]
    #: Bytes that the backward pass would read of the forward pass if it recomputed nothing.
    bytes_before: int
    #: Bytes that it reads with this cut. Parameters and inputs that outlive the step count in neither number.
    bytes_after: int
    #: Most bytes of the step at once, on top of resident ones, by the planner's account.
    peak_bytes: int
    #: Nanoseconds, about, of the ops that a budget recomputes beyond those that fused kernels compute on their way.
    recompute_ns: int
    #: Bytes written and read for the saved values (section 3.3 of Yu and He).
    cost: int
    #: Seconds that the solver took, and that the whole choice took.
    solver_seconds: float
    seconds: float
    #: The graph that was cut.
    graph: dict[str, Any] = field(repr=False)
    #: Most bytes of the step at once by a dry run of the generated code; ``None`` if there was none.
    foreseen_bytes: int | None = None
    #: Calls of the cut's kernels and other ops that run again by a plan of the step planner.
    kernels_again: int = 0

    @cached_property
    def _bytes(self) -> dict[str, int]:
        return {node["name"]: node["bytes"] for node in self.graph["nodes"]}

    def nodes(self, kinds: NodeKinds) -> list[fx.Node]:
        """The saved values, as nodes of the graph that was cut."""
        saved = set(self.saved)
        return [node for node in kinds.nodes() if node.name in saved]

    def bytes_of(self, name: str) -> int:
        """Bytes of a value; 0 for parameters and other inputs that are there anyway."""
        return self._bytes[name]


def choose(done: Callable[[Cut], None]) -> Choice:
    """The choice of torch's partitioner: the minimum cut. ``done`` is called with every cut."""

    def chosen(kinds: NodeKinds, forward_outputs: list[Any], backward_outputs: list[Any]) -> list[fx.Node]:
        start = time.perf_counter()
        flat = flat_graph(kinds, forward_outputs, backward_outputs)
        answer = _planned(flat)
        cut = _cut(flat, answer, start)
        done(cut)
        return cut.nodes(kinds)

    return chosen


def plans(flat: FlatGraph) -> list[Cut]:
    """Plans of which none takes both less time and less memory than another; the slowest comes first."""
    start = time.perf_counter()
    answer = _planned(flat, frontier=True)
    alike = {"banned": answer["banned"], "seconds": answer["seconds"]}
    return [_cut(flat, {**plan, **alike}, start) for plan in answer["frontier"]]


def _planned(flat: FlatGraph, *, frontier: bool = False) -> dict[str, Any]:
    """The planner's answer; with ``frontier`` it holds all plans that :func:`plans` is about."""
    try:
        text = _native.plan_cut(flat.json(), allow=flat.allowed, frontier=frontier)
    except ValueError as error:
        raise RematError(f"the graph cannot be cut: {error}") from error
    answer: dict[str, Any] = json.loads(text)
    return answer


def _cut(flat: FlatGraph, answer: dict[str, Any], start: float) -> Cut:
    # The planner counts inputs, which are resident anyway.
    nodes = {node["name"]: node for node in flat.description["nodes"]}
    given = sum(nodes[name]["bytes"] for name in flat.description["inputs"])
    return Cut(
        saved=answer["saved"],
        recomputed=[name for name in answer["recomputed"] if name in flat.forward],
        late=answer["recomputed"],
        lifted=[name for name in answer["lifted"] if name in flat.forward],
        banned={**answer["banned"], **flat.banned},
        bytes_before=_bytes_held(flat, flat.crossing),
        bytes_after=_bytes_held(flat, answer["saved"]),
        peak_bytes=answer["peak_bytes"] - given,
        recompute_ns=answer["recompute_ns"],
        cost=answer["cost"],
        solver_seconds=answer["seconds"],
        seconds=time.perf_counter() - start,
        graph=flat.description,
    )


def _bytes_held(flat: FlatGraph, names: Collection[str]) -> int:
    """Bytes that these values keep in memory: a view keeps its base, unless a kernel writes the view by itself."""
    nodes = {node["name"]: node for node in flat.description["nodes"]}
    held: dict[str, int] = {}
    for name in names:
        base = nodes[name]
        while "view_of" in base:
            base = nodes[base["view_of"]]
        own = held.get(base["name"], 0) + nodes[name]["bytes"]
        held[base["name"]] = min(own, base["bytes"]) if base["fusible"] else base["bytes"]
    return sum(held.values())
