"""The values that kernels write to memory; kernels compute all other values on the way from written ones.

The rules are those of Inductor's lowering, which decides op by op.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from ..._torch_internals.compiler import LoweringRules, NodeKinds
from .groups import shrinks


@dataclass(frozen=True)
class Inlined:
    """The reads and ops that compute a value which is not written."""

    #: Values in memory that it is computed from.
    reads: frozenset[fx.Node] = frozenset()
    ops: int = 0
    heavy: bool = False


class Buffers:
    """The written values of a graph whose ops in kernels are ``inside``."""

    def __init__(self, kinds: NodeKinds, inside: set[fx.Node]) -> None:
        self._kinds, self._inside = kinds, inside
        self.rules = LoweringRules.of_inductor(kinds.on_cpu())
        #: Values that are written, or in memory from the beginning.
        self.written: set[fx.Node] = set()
        self._inlined: dict[fx.Node, Inlined] = {}
        for node in kinds.nodes():
            self._inlined[node] = self._computed(node)
            if self._is_written(node):
                self.written.add(node)

    def reading(self, node: fx.Node) -> Inlined:
        """The reads and ops that an op takes in when it reads the value."""
        return Inlined(frozenset([node])) if node in self.written else self._inlined[node]

    def reading_all(self, reads: list[fx.Node]) -> Inlined:
        """The reads and ops that an op takes in when it reads all of these values."""
        return self.sum([self.reading(read) for read in reads])

    @staticmethod
    def sum(parts: list[Inlined]) -> Inlined:
        """The reads and ops of several values together."""
        reads = frozenset[fx.Node]().union(*(one.reads for one in parts))
        return Inlined(reads, sum(one.ops for one in parts), any(one.heavy for one in parts))

    def _computed(self, node: fx.Node) -> Inlined:
        kind = self._kinds[node]
        if node not in self._inside:
            return Inlined()
        known = self.reading_all(node.all_input_nodes)
        return Inlined(known.reads, known.ops + (not kind.view), known.heavy or kind.op in self.rules.heavy)

    def _is_written(self, node: fx.Node) -> bool:
        kind = self._kinds[node]
        if node not in self._inside:
            return not kind.symbol
        if kind.random or shrinks(self._kinds, node) or kind.op == "getitem":
            return True
        if any(user not in self._inside for user in node.users):
            return True
        found = self._inlined[node]
        if len(found.reads) > self.rules.reads or found.ops > self.rules.ops:
            return True
        return len(node.users) > 1 and (found.heavy or len(found.reads) > self.rules.reads_shared)
