"""Values that a kernel computes again rather than read from another kernel (section 3.7 of Yu and He).

The change is made to the forward and to the backward graph, once both exist, where it saves bytes. Ops and inputs are
the same as before, so bits do not change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ... import _native
from ..._errors import RematError
from ..._torch_internals.compiler import NodeKinds
from .buffers import Buffers, Inlined
from .groups import elements, fusion_groups, shrinks

# Types in which kernels both compute and store: a value that is no longer stored in between is rounded as before.
_EXACT = {torch.float32, torch.float64, torch.complex64, torch.complex128}


@dataclass(frozen=True)
class Handover:
    """Values of one kernel that the kernels which read them compute again."""

    producer: int
    readers: tuple[int, ...]
    again: frozenset[fx.Node]
    #: Bytes that are no longer written or read.
    bytes: int


def recompute_between_kernels(graph: fx.Graph, *, hold_nothing_longer: bool) -> list[Handover]:
    """Changes the graph and returns the changes.

    With ``hold_nothing_longer``, kernels read only values that stay in memory until then anyway.
    """
    try:
        kernels = _Kernels(graph, hold_nothing_longer=hold_nothing_longer)
        found = [one for group in kernels.read_by_others() if (one := kernels.handover(group)) is not None]
    except (RematError, ValueError):
        return []  # sizes that nobody knows: the graph stays as it is
    found.sort(key=lambda one: -one.bytes)
    done = [one for one in found if kernels.apply(one)]
    kernels.erase_unread()
    return done


class _Kernels:
    """A graph, the groups of its ops that are likely to be kernels, and the values that these read and write."""

    def __init__(self, graph: fx.Graph, *, hold_nothing_longer: bool) -> None:
        self._graph, self._strict = graph, hold_nothing_longer
        self._kinds = NodeKinds(graph, info=None)
        self._groups = fusion_groups(self._kinds)
        self._buffers = Buffers(self._kinds, set(self._groups))
        self._touched = _written_to(self._kinds)
        self._place = {node: place for place, node in enumerate(graph.nodes)}
        self._members: dict[int, list[fx.Node]] = {}
        for node, group in self._groups.items():
            self._members.setdefault(group, []).append(node)
        # Values that kernels have begun to read, and values that their readers compute again.
        self._relied: set[fx.Node] = set()
        self._recomputed: set[fx.Node] = set()
        # Ops that changes have put into the graph: each has one reader and is never written.
        self._copies: set[fx.Node] = set()

    def read_by_others(self) -> list[int]:
        """Groups whose values other groups read."""
        return [group for group, members in self._members.items() if self._readers(members)]

    def _readers(self, members: list[fx.Node]) -> list[int]:
        readers = {self._groups[user] for node in members for user in node.users if user in self._groups}
        return sorted(readers - {self._groups[members[0]]})

    def handover(self, producer: int) -> Handover | None:
        """The values of a group that its readers best compute again; ``None`` where that saves no bytes."""
        readers = self._readers(self._members[producer])
        (found,) = json.loads(_native.between_groups(json.dumps(self._description(producer, readers))))
        again = {node for node in self._members[producer] if node.name in set(found["recomputed"])}
        if not again & self._buffers.written or not all(map(self._again_exactly, again)):
            return None
        saved = self._saved_bytes(producer, readers, again)
        return None if saved <= 0 else Handover(producer, tuple(readers), frozenset(again), saved)

    def _description(self, producer: int, readers: list[int]) -> dict[str, Any]:
        """Producer and readers as a graph for the planner; only values that are written can be handed over."""
        sides = {node: 0 for node in self._members[producer]}
        sides.update({node: 1 for reader in readers for node in self._members[reader]})
        given = {read for node in sides for read in node.all_input_nodes}.difference(sides)
        nodes = sorted([*given, *sides], key=self._place.__getitem__)
        return {
            "nodes": [self._described(node, sides) for node in nodes],
            "inputs": [node.name for node in nodes if node in given],
            "tangents": [],
            "forward_outputs": [node.name for node in sides if any(user not in sides for user in node.users)],
            "backward_outputs": [],
        }

    def _described(self, node: fx.Node, sides: dict[fx.Node, int]) -> dict[str, Any]:
        kind, inside = self._kinds[node], node in sides
        inlined = inside and node not in self._buffers.written
        entry = {
            "name": node.name,
            "bytes": kind.bytes,
            "inputs": [read.name for read in node.all_input_nodes] if inside else [],
            "op": kind.op,
            "fusible": inside,
            "recomputable": inlined or self._again_exactly(node),
            "savable": not inlined and not isinstance(node.meta.get("val"), (list, tuple)),
        }
        return {**entry, "group": sides[node]} if inside else entry

    def _again_exactly(self, node: fx.Node) -> bool:
        return node in self._groups and _again(self._kinds, node, self._touched)

    def _saved_bytes(self, producer: int, readers: list[int], again: set[fx.Node]) -> int:
        """Bytes that these kernels read and write less if the readers compute this again."""
        removed: set[fx.Node] = set()
        for node in sorted(again, key=self._place.__getitem__, reverse=True):
            if all(user in removed or self._groups.get(user) in readers for user in node.users):
                removed.add(node)
        sides = {producer, *readers}
        unread = {node for node in again if all(self._groups.get(user) in sides for user in node.users)}
        now = self._traffic(producer, set(), set(), set())
        then = self._traffic(producer, set(), removed, unread)
        for reader in readers:
            now += self._traffic(reader, set(), set(), set())
            then += self._traffic(reader, again, set(), set())
        return now - then - self._effort(readers, again, removed)

    def _effort(self, readers: list[int], again: set[fx.Node], removed: set[fx.Node]) -> int:
        """The time that computing more often takes, as the bytes that are read in that time."""
        effort = 0
        for node in again:
            bytes_read = self._buffers.rules.heavy.get(self._kinds[node].op, 0)  # in the time of one element
            effort += bytes_read * elements(node) * (len(readers) - (node in removed))
        return effort

    def _traffic(self, group: int, again: set[fx.Node], removed: set[fx.Node], unread: set[fx.Node]) -> int:
        """Bytes that the kernel of a group reads and writes.

        It computes ``again`` itself and ``removed`` not at all, and no other kernel reads ``unread``.
        """
        reads: set[fx.Node] = set()
        writes: set[fx.Node] = set()
        for node in self._members[group]:
            if node not in self._buffers.written or node in removed:
                continue
            reads |= self._taken(node, again).reads
            if node not in unread and any(self._groups.get(user) != group for user in node.users):
                writes.add(node)
        outside = (node for node in reads if self._groups.get(node) != group)
        return sum(self._kinds[node].bytes for node in [*outside, *writes])

    def apply(self, found: Handover) -> bool:
        """Makes a change to the graph; ``False`` where earlier changes rule it out."""
        again = set(found.again)
        if any(not self._copies.isdisjoint(node.all_input_nodes) for node in again):
            return False  # it reads other values than those that the bytes were counted by
        users = [user for reader in found.readers for user in self._members[reader]]
        users += [user for user in self._members[found.producer] if shrinks(self._kinds, user)]
        users = [user for user in users if user not in again and not again.isdisjoint(user.all_input_nodes)]
        taken = {user: self._taken(user, again) for user in users}
        read = frozenset[fx.Node]().union(*(one.reads for one in taken.values()))
        if not self._relied.isdisjoint(again) or not self._recomputed.isdisjoint(read):
            return False
        if not all(map(self._stays_inlined, taken.values())):
            return False
        if self._strict and not all(self._there_until(node, max(map(self._place.__getitem__, users))) for node in read):
            return False
        for user in users:
            self._copy(user, again)
        self._relied |= read
        self._recomputed |= again
        return True

    def erase_unread(self) -> None:
        """Removes nodes that nothing reads any more."""
        for node in sorted(self._recomputed, key=self._place.__getitem__, reverse=True):
            if not node.users:
                self._graph.erase_node(node)

    def _taken(self, user: fx.Node, again: set[fx.Node]) -> Inlined:
        """The values and ops that the op takes in when it computes ``again`` itself."""

        def part(node: fx.Node) -> Inlined:
            if node not in again and node not in self._copies:
                return self._buffers.reading(node)
            known = Buffers.sum([part(read) for read in node.all_input_nodes])
            return Inlined(known.reads, known.ops + (not self._kinds[node].view), known.heavy)

        return Buffers.sum([part(read) for read in user.all_input_nodes])

    def _stays_inlined(self, tree: Inlined) -> bool:
        """Whether code generation computes it on the way; above its limits it would write the values."""
        return len(tree.reads) <= self._buffers.rules.reads and tree.ops < self._buffers.rules.ops

    def _there_until(self, node: fx.Node, last: int) -> bool:
        """Whether the value is in memory until ``last`` without the change."""
        return any(user.op == "output" or self._place[user] >= last for user in node.users)

    def _copy(self, user: fx.Node, again: set[fx.Node]) -> None:
        """Copies ``again`` for one user: code generation might write a value that has several."""

        def copied(node: fx.Node) -> fx.Node:
            if node not in again:
                return node
            with self._graph.inserting_before(user):
                copy = self._graph.node_copy(node, copied)
            self._copies.add(copy)
            self._place[copy] = self._place[user]
            return copy

        user.args = fx.map_arg(user.args, copied)
        user.kwargs = fx.map_arg(user.kwargs, copied)


def _written_to(kinds: NodeKinds) -> set[fx.Node]:
    """Values that an op of the graph may write to, and views of them: read at another time they may differ."""
    touched = {read for node in kinds.nodes() if kinds[node].once for read in node.all_input_nodes}
    for node in kinds.nodes():
        if kinds[node].view and not touched.isdisjoint(node.all_input_nodes):
            touched.add(node)
    return touched


def _again(kinds: NodeKinds, node: fx.Node, touched: set[fx.Node]) -> bool:
    """Whether any kernel can compute it again, to the same bits."""
    kind = kinds[node]
    if kind.random or kind.once or kind.long or not kind.cheap or not touched.isdisjoint(node.all_input_nodes):
        return False
    if kind.view:
        return True
    value = node.meta.get("val")
    exact = isinstance(value, torch.Tensor) and (value.dtype in _EXACT or not value.dtype.is_floating_point)
    return exact and not shrinks(kinds, node)
