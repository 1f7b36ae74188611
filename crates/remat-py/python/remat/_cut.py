"""What a compiled graph saves between its forward and its backward pass: the choice, and what is told of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import fx

from . import _native
from ._compile_seam import Choice, NodeKinds
from ._errors import RematError
from ._joint_graph import FlatGraph, flat_graph


@dataclass(frozen=True)
class Cut:
    """One joint graph and where it was cut."""

    #: Names of what the backward pass is handed, parameters and inputs among it.
    saved: list[str]
    #: Names of ops that both passes run.
    recomputed: list[str]
    #: Names of all that the backward pass computes although the forward pass could.
    late: list[str]
    #: Of these, names of what was banned from it and had to be to stay within the budget.
    lifted: list[str]
    #: Names of what was not to be recomputed, each with the reason.
    banned: dict[str, str]
    #: Bytes that the backward pass would read of the forward pass if nothing were recomputed.
    bytes_before: int
    #: Bytes that it reads now; parameters and inputs that outlive the step are not counted in either.
    bytes_after: int
    #: Most bytes of the step at once, as planned, beside what is resident anyway.
    peak_bytes: int
    #: Nanoseconds that recomputing takes, about, where a budget asks for more than fused kernels do on their way.
    recompute_ns: int
    #: Bytes written and read for what is saved (section 3.3).
    cost: int
    #: Seconds: in the solver, and in all of the choice.
    solver_seconds: float
    seconds: float
    #: The graph that was cut.
    graph: dict[str, Any] = field(repr=False)

    @cached_property
    def _bytes(self) -> dict[str, int]:
        return {node["name"]: node["bytes"] for node in self.graph["nodes"]}

    def bytes_of(self, name: str) -> int:
        """Bytes of a value; 0 for parameters and other inputs that are there anyway."""
        return self._bytes[name]


def choose(
    done: Callable[[Cut], None], room: int | None = None, refused: Callable[[NoRoom], int | None] | None = None
) -> Choice:
    """What torch's partitioner is to save; ``done`` is called with every cut.

    ``room``: bytes that the step may take at its highest beside what is resident anyway. Where no plan fits,
    ``refused`` says for how many bytes to plan all the same, ``None`` for the minimum cut, or raises.
    """

    def chosen(kinds: NodeKinds, forward_outputs: list[Any], backward_outputs: list[Any]) -> list[fx.Node]:
        start = time.perf_counter()
        flat = flat_graph(kinds, forward_outputs, backward_outputs, timed=room is not None)
        try:
            cut = _cut(flat, room, start)
        except NoRoom as refusal:
            if refused is None:
                raise
            cut = _cut(flat, refused(refusal), start)
        done(cut)
        saved = set(cut.saved)
        return [node for node in kinds.nodes() if node.name in saved]

    return chosen


class NoRoom(RematError):
    """No plan is seen to fit; ``smallest`` bytes of room would do. Gradients alone take ``least``."""

    def __init__(self, message: str, smallest: int, least: int) -> None:
        super().__init__(message)
        self.smallest, self.least = smallest, least


def _cut(flat: FlatGraph, room: int | None, start: float) -> Cut:
    # Inputs are resident anyway: the planner counts them, so it is given their bytes beside the room.
    nodes = {node["name"]: node for node in flat.description["nodes"]}
    given = sum(nodes[name]["bytes"] for name in flat.description["inputs"])
    budget = None if room is None else max(0, room + given)
    try:
        answer = json.loads(_native.plan_cut(flat.json(), budget=budget, ban=flat.fixed, allow=flat.allowed))
    except ValueError as error:
        if len(error.args) == 2:
            made = set(flat.description["backward_outputs"]) - set(flat.description["inputs"])
            least = sum(nodes[name]["bytes"] for name in made if "view_of" not in nodes[name])
            raise NoRoom(error.args[0], error.args[1] - given, least) from error
        raise RematError(f"the graph cannot be cut: {error}") from error
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
    """Bytes that these values keep: a view keeps what it is a view of, unless a kernel writes it by itself."""
    nodes = {node["name"]: node for node in flat.description["nodes"]}
    held: dict[str, int] = {}
    for name in names:
        base = nodes[name]
        while "view_of" in base:
            base = nodes[base["view_of"]]
        own = held.get(base["name"], 0) + nodes[name]["bytes"]
        held[base["name"]] = min(own, base["bytes"]) if base["fusible"] else base["bytes"]
    return sum(held.values())
