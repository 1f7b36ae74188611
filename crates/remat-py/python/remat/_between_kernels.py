"""What a kernel computes again because that is fewer bytes than reading it from another (section 3.7 of Yu and He).

Runs on the forward and on the backward graph when both are made. The ops are the same, and so are their inputs: bits do
not change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from . import _native
from ._compile_seam import NodeKinds
from ._fusion_groups import fusion_groups, shrinks

# Kernels compute in these as they store in them: what is not stored in between is not rounded otherwise.
_EXACT = {torch.float32, torch.float64, torch.complex64, torch.complex128}


@dataclass(frozen=True)
class Handover:
    """What a group of ops computes again of another."""

    recomputed: list[str]
    #: What it reads for that.
    read: list[str]
    #: Bytes that are neither written nor read any more.
    bytes: int


def recompute_between_kernels(graph: fx.Graph, hold_nothing_longer: bool) -> list[Handover]:
    """Changes the graph and says how. ``hold_nothing_longer``: reads only what is there until then anyway."""
    kinds = NodeKinds(graph, info=None)
    groups = fusion_groups(kinds)
    found = json.loads(_native.between_groups(json.dumps(_description(kinds, groups))))
    worth = [one for one in found if one["cost"] < one["plain_cost"]]
    worth.sort(key=lambda one: one["cost"] - one["plain_cost"])
    change = _Change(graph, groups, hold_nothing_longer)
    return [Handover(one["recomputed"], one["read"], saved) for one in worth if (saved := change.apply(one))]


def _description(kinds: NodeKinds, groups: dict[fx.Node, int]) -> dict[str, Any]:
    touched = _written_to(kinds)
    nodes = []
    for node in kinds.nodes():
        kind = kinds[node]
        entry = {
            "name": node.name,
            "bytes": kind.bytes,
            "inputs": [read.name for read in node.all_input_nodes],
            "op": kind.op,
            "fusible": node in groups,
            "recomputable": node in groups and _again(kinds, node, touched),
            "savable": not isinstance(node.meta.get("val"), (list, tuple)),
        }
        nodes.append(entry if node not in groups else {**entry, "group": groups[node]})
    (output,) = kinds.graph.find_nodes(op="output")
    return {
        "nodes": nodes,
        "inputs": [node.name for node in kinds.nodes() if node.op == "placeholder"],
        "tangents": [],
        "forward_outputs": [node.name for node in output.all_input_nodes],
        "backward_outputs": [],
    }


def _written_to(kinds: NodeKinds) -> set[fx.Node]:
    """What some op of the graph may write to, with its views: read at another time it may be something else."""
    touched = {read for node in kinds.nodes() if kinds[node].once for read in node.all_input_nodes}
    for node in kinds.nodes():
        if kinds[node].view and not touched.isdisjoint(node.all_input_nodes):
            touched.add(node)
    return touched


def _again(kinds: NodeKinds, node: fx.Node, touched: set[fx.Node]) -> bool:
    """Whether it can be computed again as part of any kernel, to the same bits."""
    kind = kinds[node]
    if kind.random or kind.once or kind.long or not kind.cheap or not touched.isdisjoint(node.all_input_nodes):
        return False
    if kind.view:
        return True
    value = node.meta.get("val")
    exact = isinstance(value, torch.Tensor) and (value.dtype in _EXACT or not value.dtype.is_floating_point)
    return exact and not shrinks(kinds, node)


class _Change:
    """Applies one handover after another, if those before allow it."""

    def __init__(self, graph: fx.Graph, groups: dict[fx.Node, int], hold_nothing_longer: bool) -> None:
        self._graph, self._groups, self._strict = graph, groups, hold_nothing_longer
        self._nodes = {node.name: node for node in graph.nodes}
        self._place = {node: place for place, node in enumerate(graph.nodes)}
        # What groups read now that they did not before, and what need not be written any more.
        self._relied: set[str] = set()
        self._gone: set[str] = set()

    def apply(self, found: dict[str, Any]) -> int:
        """Bytes saved; 0 where the graph was left as it is."""
        again = [self._nodes[name] for name in found["recomputed"]]
        again.sort(key=self._place.__getitem__)
        users = self._users(again, found["consumer"])
        if not users or not self._relied.isdisjoint(found["recomputed"]) or not self._gone.isdisjoint(found["read"]):
            return 0
        if self._strict and not all(self._there_until(self._nodes[name], users, again) for name in found["read"]):
            return 0
        self._copy(again, users)
        self._relied.update(found["read"])
        self._gone.update(found["recomputed"])
        return int(found["plain_cost"] - found["cost"])

    def _users(self, again: list[fx.Node], consumer: int) -> list[fx.Node]:
        users = {user for node in again for user in node.users if self._groups.get(user) == consumer}
        return sorted(users, key=self._place.__getitem__)

    def _there_until(self, read: fx.Node, users: list[fx.Node], again: list[fx.Node]) -> bool:
        """Whether it is in memory when the last of them runs, whatever they read."""
        last = self._place[users[-1]]
        return any(user.op == "output" or (user not in again and self._place[user] >= last) for user in read.users)

    def _copy(self, again: list[fx.Node], users: list[fx.Node]) -> None:
        copies: dict[fx.Node, fx.Node] = {}
        with self._graph.inserting_before(users[0]):
            for node in again:
                copies[node] = self._graph.node_copy(node, lambda read: copies.get(read, read))
        for user in users:
            for node in again:
                user.replace_input_with(node, copies[node])
        for node in reversed(again):
            for unused in (copies[node], node):
                if not unused.users:
                    self._graph.erase_node(unused)
