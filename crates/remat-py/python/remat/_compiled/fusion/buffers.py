"""Which values of kernels are written to memory, and from which of them the others are computed on the way.

It follows the rules by which Inductor's lowering decides that, op by op.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from ..._torch_internals.compiler import LoweringRules, NodeKinds
from .groups import shrinks


@dataclass(frozen=True)
class Inlined:
    """What it takes to compute a value that is not written."""

    #: Values that are there or written.
    reads: frozenset[fx.Node] = frozenset()
    ops: int = 0
    heavy: bool = False


class Buffers:
    """Of a graph whose ops in kernels are ``inside``."""

    def __init__(self, kinds: NodeKinds, inside: set[fx.Node]) -> None:
        self._kinds, self._inside = kinds, inside
        self.rules = LoweringRules.of_inductor(kinds.on_cpu())
        #: What is written, or there from the beginning.
        self.written: set[fx.Node] = set()
        self._inlined: dict[fx.Node, Inlined] = {}
        for node in kinds.nodes():
            self._inlined[node] = self._computed(node)
            if self._is_written(node):
                self.written.add(node)

    def reading(self, node: fx.Node) -> Inlined:
        """What an op that reads the value takes with it."""
        return Inlined(frozenset([node])) if node in self.written else self._inlined[node]

    def together(self, reads: list[fx.Node]) -> Inlined:
        """What an op that reads all of these takes with it."""
        return self.sum([self.reading(read) for read in reads])

    @staticmethod
    def sum(parts: list[Inlined]) -> Inlined:
        """What it takes to compute all of these in one op."""
        reads = frozenset[fx.Node]().union(*(one.reads for one in parts))
        return Inlined(reads, sum(one.ops for one in parts), any(one.heavy for one in parts))

    def _computed(self, node: fx.Node) -> Inlined:
        kind = self._kinds[node]
        if node not in self._inside:
            return Inlined()
        known = self.together(node.all_input_nodes)
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
