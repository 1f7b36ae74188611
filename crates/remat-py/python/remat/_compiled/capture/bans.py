"""Torch's marks on single nodes: ops that must never run again, and nodes that no rule applies to.

The planner owns the rules themselves, those of torch's partitioner among them (``remat._native.plan_cut``).
"""

from __future__ import annotations

from torch import fx

from ..._torch_internals.compiler import NodeKinds


def run_once(kinds: NodeKinds) -> dict[fx.Node, str]:
    """Nodes of the forward pass that must never be recomputed, each with the reason."""
    return {node: reason for node in kinds.nodes() if (reason := _reason(kinds, node))}


def bannable(kinds: NodeKinds, node: fx.Node) -> bool:
    """Whether there is an op that a ban could be of; views, sizes and items of tuples cost nothing."""
    kind = kinds[node]
    free = kind.view or kind.symbol or kind.op == "getitem" or kind.must_recompute
    return node.op == "call_function" and kinds.in_forward(node) and not free


def _reason(kinds: NodeKinds, node: fx.Node) -> str | None:
    kind = kinds[node]
    read = any(user.op != "output" for user in node.users)
    if not read or not kinds.in_forward(node) or node.op != "call_function":
        return None
    if kind.must_save:
        return "told to be saved"
    return "not known to be pure" if kind.once else None
