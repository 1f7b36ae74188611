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

from ... import _native
from ..._errors import RematError
from ..._torch_internals.compiler import NodeKinds
from .buffers import Buffers, Inlined
from .groups import elements, fusion_groups, shrinks

# Kernels compute in these as they store in them: what is not stored in between is not rounded otherwise.
_EXACT = {torch.float32, torch.float64, torch.complex64, torch.complex128}


@dataclass(frozen=True)
class Handover:
    """What the kernels that read of one compute again."""

    producer: int
    readers: tuple[int, ...]
    again: frozenset[fx.Node]
    #: Bytes that are neither written nor read any more.
    bytes: int


def recompute_between_kernels(graph: fx.Graph, hold_nothing_longer: bool) -> list[Handover]:
    """Changes the graph and says how. ``hold_nothing_longer``: reads only what is there until then anyway."""
    try:
        kernels = _Kernels(graph, hold_nothing_longer)
        found = [one for group in kernels.read_by_others() if (one := kernels.handover(group)) is not None]
    except (RematError, ValueError):
        return []  # sizes that nobody knows: it is left as it is
    found.sort(key=lambda one: -one.bytes)
    done = [one for one in found if kernels.apply(one)]
    kernels.erase_unread()
    return done


class _Kernels:
    """A graph, what of it are likely to be kernels, and which values these read and write."""

    def __init__(self, graph: fx.Graph, hold_nothing_longer: bool) -> None:
        self._graph, self._strict = graph, hold_nothing_longer
        self._kinds = NodeKinds(graph, info=None)
        self._groups = fusion_groups(self._kinds)
        self._buffers = Buffers(self._kinds, set(self._groups))
        self._touched = _written_to(self._kinds)
        self._place = {node: place for place, node in enumerate(graph.nodes)}
        self._members: dict[int, list[fx.Node]] = {}
        for node, group in self._groups.items():
            self._members.setdefault(group, []).append(node)
        # What kernels read now that they did not before, and what is computed again.
        self._relied: set[fx.Node] = set()
        self._gone: set[fx.Node] = set()

    def read_by_others(self) -> list[int]:
        """Groups that others read of."""
        return [group for group, members in self._members.items() if self._readers(members)]

    def _readers(self, members: list[fx.Node]) -> list[int]:
        readers = {self._groups[user] for node in members for user in node.users if user in self._groups}
        return sorted(readers - {self._groups[members[0]]})

    def handover(self, producer: int) -> Handover | None:
        """What the readers of a group best compute again, if that is fewer bytes."""
        readers = self._readers(self._members[producer])
        (found,) = json.loads(_native.between_groups(json.dumps(self._description(producer, readers))))
        again = {node for node in self._members[producer] if node.name in set(found["recomputed"])}
        if not again & self._buffers.written or not all(map(self._again_exactly, again)):
            return None
        saved = self._saved_bytes(producer, readers, again)
        return None if saved <= 0 else Handover(producer, tuple(readers), frozenset(again), saved)

    def _description(self, producer: int, readers: list[int]) -> dict[str, Any]:
        """The two sides for the planner; only what is written can be handed over."""
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
        gone: set[fx.Node] = set()
        for node in sorted(again, key=self._place.__getitem__, reverse=True):
            if all(user in gone or self._groups.get(user) in readers for user in node.users):
                gone.add(node)
        sides = {producer, *readers}
        unread = {node for node in again if all(self._groups.get(user) in sides for user in node.users)}
        now = self._traffic(producer, set(), set(), set())
        then = self._traffic(producer, set(), gone, unread)
        for reader in readers:
            now += self._traffic(reader, set(), set(), set())
            then += self._traffic(reader, again, set(), set())
        return now - then - self._effort(readers, again, gone)

    def _effort(self, readers: list[int], again: set[fx.Node], gone: set[fx.Node]) -> int:
        """What computing more often takes, in bytes that are read in that time."""
        effort = 0
        for node in again:
            worth = self._buffers.rules.heavy.get(self._kinds[node].op, 0)
            effort += worth * elements(node) * (len(readers) - (node in gone))
        return effort

    def _traffic(self, group: int, again: set[fx.Node], gone: set[fx.Node], unread: set[fx.Node]) -> int:
        """Bytes that the kernel of a group reads and writes, if it computes ``again`` itself, ``gone`` not at all, and
        others do not read ``unread``."""
        reads: set[fx.Node] = set()
        writes: set[fx.Node] = set()
        for node in self._members[group]:
            if node not in self._buffers.written or node in gone:
                continue
            reads |= self._taken(node, again).reads
            if node not in unread and any(self._groups.get(user) != group for user in node.users):
                writes.add(node)
        outside = (node for node in reads if self._groups.get(node) != group)
        return sum(self._kinds[node].bytes for node in [*outside, *writes])

    def apply(self, found: Handover) -> bool:
        """Whether the graph was changed."""
        again = set(found.again)
        users = [user for reader in found.readers for user in self._members[reader]]
        users += [user for user in self._members[found.producer] if shrinks(self._kinds, user)]
        users = [user for user in users if user not in again and not again.isdisjoint(user.all_input_nodes)]
        taken = {user: self._taken(user, again) for user in users}
        read = frozenset[fx.Node]().union(*(one.reads for one in taken.values()))
        if not self._relied.isdisjoint(again) or not self._gone.isdisjoint(read):
            return False
        if not all(map(self._stays_inlined, taken.values())):
            return False
        if self._strict and not all(self._there_until(node, max(map(self._place.__getitem__, users))) for node in read):
            return False
        for user in users:
            self._copy(user, again)
        self._relied |= read
        self._gone |= again
        return True

    def erase_unread(self) -> None:
        """What nobody reads any more."""
        for node in sorted(self._gone, key=self._place.__getitem__, reverse=True):
            if not node.users:
                self._graph.erase_node(node)

    def _taken(self, user: fx.Node, again: set[fx.Node]) -> Inlined:
        """What the op takes with it when it computes ``again`` itself."""

        def part(node: fx.Node) -> Inlined:
            if node not in again:
                return self._buffers.reading(node)
            known = Buffers.sum([part(read) for read in node.all_input_nodes])
            return Inlined(known.reads, known.ops + (not self._kinds[node].view), known.heavy)

        return Buffers.sum([part(read) for read in user.all_input_nodes])

    def _stays_inlined(self, tree: Inlined) -> bool:
        """Otherwise code generation would write what it was to compute on the way."""
        return len(tree.reads) <= self._buffers.rules.reads and tree.ops < self._buffers.rules.ops

    def _there_until(self, node: fx.Node, last: int) -> bool:
        """Whether it is in memory until then as things are."""
        return any(user.op == "output" or self._place[user] >= last for user in node.users)

    def _copy(self, user: fx.Node, again: set[fx.Node]) -> None:
        """Each copy has one user: what has several may be written."""

        def copied(node: fx.Node) -> fx.Node:
            if node not in again:
                return node
            with self._graph.inserting_before(user):
                return self._graph.node_copy(node, copied)

        user.args = fx.map_arg(user.args, copied)
        user.kwargs = fx.map_arg(user.kwargs, copied)


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
