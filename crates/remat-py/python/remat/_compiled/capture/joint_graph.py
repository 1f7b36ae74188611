"""From the joint graph that torch traced to the flat graph that the planner reads (``remat._native.plan_cut``)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import fx

from ..._errors import RematError
from ..._torch_internals.compiler import Kind, LoweringRules, NodeKinds, Rules
from .bans import bannable, run_once

#: A tangent of no bytes: an op that writes in the backward pass and reads no tangent is given it, to place it there.
_BACKWARD = "(backward)"


@dataclass(frozen=True)
class FlatGraph:
    """The planner's GRAPH.json, and the rules for its nodes."""

    description: dict[str, Any]
    #: Ops that must never be recomputed, whatever the budget: name and reason.
    banned: dict[str, str]
    #: Ops that may be recomputed whatever the planner's rules say.
    allowed: list[str]
    #: Ops that the forward pass runs: the backward pass would *re*compute them.
    forward: set[str]
    #: Values that the backward pass would be handed if it recomputed nothing.
    crossing: set[str]

    def json(self) -> str:
        """The description as the planner reads it."""
        return json.dumps(self.description)


def flat_graph(
    kinds: NodeKinds,
    forward_outputs: Iterable[Any],
    backward_outputs: Iterable[Any],
    workspace: Callable[[fx.Node], int] | None = None,
) -> FlatGraph:
    """The joint graph, flat.

    ``workspace`` gives the bytes that a long op takes while it runs. Planning for a budget needs them, and the times of
    ops, which are left out without it.

    Raises ``RematError`` that names the node of a graph which cannot be cut.
    """
    rules = Rules.of_torch()
    reasons = run_once(kinds)
    nodes = [_node(kinds, node, rules) for node in kinds.nodes()]
    for entry, node in zip(nodes, kinds.nodes(), strict=True):
        if node in reasons:
            entry.update(recomputable=False, compute_bound=True)
        entry["cost"] = kinds.nanoseconds(node) if workspace is not None else 0
        if workspace is not None and kinds[node].long:
            entry["workspace"] = workspace(node)
    inputs = {node.name for node in kinds.inputs()}
    tangents = [node.name for node in kinds.nodes() if node.op == "placeholder" and node.name not in inputs]
    if any(_BACKWARD in node["inputs"] for node in nodes):
        nodes.insert(0, {"name": _BACKWARD, "bytes": 0, "inputs": [], "op": "placeholder", "fusible": False})
        tangents.append(_BACKWARD)
    description = {
        "nodes": nodes,
        "inputs": sorted(inputs),
        "tangents": tangents,
        # Torch itself replaces outputs of the forward pass that only the backward pass could make.
        "forward_outputs": [node.name for node in _real(forward_outputs) if not kinds.in_backward(node)],
        "backward_outputs": [node.name for node in _real(backward_outputs)],
        "shared_reads": LoweringRules.of_inductor(kinds.on_cpu()).reads_shared,
        "fusion_rules": rules.of_fusion(),
    }
    banned = {node.name: reason for node, reason in reasons.items()}
    allowed = [node.name for node in kinds.nodes() if _allowed(kinds, node) and node.name not in banned]
    forward = {node.name for node in kinds.nodes() if bannable(kinds, node) or kinds[node].must_recompute}
    return FlatGraph(description, banned, allowed, forward, _crossing(kinds, backward_outputs))


def _crossing(kinds: NodeKinds, backward_outputs: Iterable[Any]) -> set[str]:
    """Values of the forward pass that are read by ops which only the backward pass needs."""
    read = set(_real(backward_outputs))
    for node in kinds.nodes():
        if not kinds.in_forward(node) and node.op == "call_function":
            read.update(node.all_input_nodes)
    return {node.name for node in read if kinds.in_forward(node) and kinds[node].savable and not kinds[node].symbol}


def _real(outputs: Iterable[Any]) -> list[fx.Node]:
    return [node for node in outputs if isinstance(node, fx.Node) and node.op != "output"]


def _allowed(kinds: NodeKinds, node: fx.Node) -> bool:
    """Whether the backward pass may run it: it costs nothing, or the forward pass does not run it."""
    return node.op in ("call_function", "get_attr") and not kinds.in_backward(node) and not bannable(kinds, node)


def _node(kinds: NodeKinds, node: fx.Node, rules: Rules) -> dict[str, Any]:
    kind = kinds[node]
    judged = bannable(kinds, node)
    shared = _shared(kinds, node)
    return {
        **({"view_of": shared.name} if shared is not None else {}),
        "name": node.name,
        "bytes": _weight(kinds, node, kind),
        "inputs": _inputs(kinds, node),
        "op": kind.op,
        "fusible": kind.fusible,
        **({"heavy": True} if kind.heavy else {}),
        "compute_bound": judged and _dear(kind, rules),
        "random": judged and kind.random,
        **(_sizes(kinds, node) if judged and rules.reductions else {}),
        "forward": kinds.in_forward(node),
        **({} if judged else {"free": True}),
        **({"fuses_as_reader": True} if kinds.gathers(node) else {}),
        "savable": kind.savable and not kind.must_recompute,
    }


def _shared(kinds: NodeKinds, node: fx.Node) -> fx.Node | None:
    """The node that it is a view of; ``None`` for a tensor of its own."""
    base = node.args[0] if node.args else None
    if not isinstance(base, fx.Node) or node.op != "call_function":
        return None
    of_view = kinds[node].op == "getitem" and kinds[base].view
    return base if kinds[node].view or of_view else None


def _dear(kind: Kind, rules: Rules) -> bool:
    """Whether it takes long, or may: only ops that torch lists as cheap run twice for the sake of bytes."""
    return kind.long or (rules.known_only and not kind.cheap)


def _weight(kinds: NodeKinds, node: fx.Node, kind: Kind) -> int:
    """Bytes that saving it takes; 0 for values that are there anyway."""
    if kinds.free(node) or not kind.savable:
        return 0
    return kind.bytes


def _sizes(kinds: NodeKinds, node: fx.Node) -> dict[str, Any]:
    """Bytes by which the planner sees a reduction (section 3.4 of Yu and He); the weight is 0 for other reasons too."""
    read = sum(kinds[argument].bytes for argument in node.args if isinstance(argument, fx.Node))
    return {"reduction": True, "operand_bytes": read, "result_bytes": kinds[node].bytes}


def _inputs(kinds: NodeKinds, node: fx.Node) -> list[str]:
    reads = node.all_input_nodes
    if not kinds.in_backward(node):
        for read in reads:
            if kinds.in_backward(read):
                raise RematError(
                    f"{node.name} is of the forward pass and reads {read.name}, which only the backward pass can "
                    "make: such graphs cannot be cut; compile it with torch.compile"
                )
        return [read.name for read in reads]
    names = [read.name for read in reads]
    if node.op == "call_function" and not any(kinds.in_backward(read) for read in reads):
        names.append(_BACKWARD)
    return names
