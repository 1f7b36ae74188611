"""Fusion groups: ops of a graph that code generation is likely to put into one kernel.

The groups are an estimate, since Inductor decides only when it lowers the graph. Where two groups become one kernel,
Inductor's elimination of common subexpressions removes ops that both compute.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import fx

from ..._torch_internals.compiler import NodeKinds


def fusion_groups(kinds: NodeKinds) -> dict[fx.Node, int]:
    """By op, the number of its group; ops outside of kernels have none. Groups do not read one another in a circle."""
    inside = {node for node in kinds.nodes() if _in_kernel(kinds, node)}
    level = _levels(kinds, inside)
    group: dict[fx.Node, fx.Node] = {node: node for node in inside}

    def first(node: fx.Node) -> fx.Node:
        while group[node] is not node:
            group[node] = group[group[node]]
            node = group[node]
        return node

    for node in kinds.nodes():
        for read in node.all_input_nodes if node in inside else ():
            if read in inside and level[read] == level[node]:
                group[first(node)] = first(read)
    # Reductions of the values of one kernel make up one kernel too.
    reductions: dict[tuple[int, fx.Node], fx.Node] = {}
    for node in kinds.nodes():
        if node in inside and _reduces_across(kinds, node):
            for read in node.all_input_nodes:
                place = level[node], first(read) if read in inside else read
                group[first(node)] = first(reductions.setdefault(place, node))
    numbers: dict[fx.Node, int] = {}
    return {node: numbers.setdefault(first(node), len(numbers)) for node in kinds.nodes() if node in inside}


def _in_kernel(kinds: NodeKinds, node: fx.Node) -> bool:
    kind = kinds[node]
    if node.op != "call_function" or kind.symbol or kind.once:
        return False
    if kind.op == "getitem":
        return _in_kernel(kinds, node.all_input_nodes[0])
    return kind.fusible


def _levels(kinds: NodeKinds, inside: set[fx.Node]) -> dict[fx.Node, int]:
    """How many kernels must end before each node; nodes in kernels come as late as their first reader allows."""
    nodes = list(kinds.nodes())
    level: dict[fx.Node, int] = {}
    for node in nodes:
        level[node] = max((level[read] + _apart(kinds, inside, read, node) for read in node.all_input_nodes), default=0)
    for node in reversed(nodes):
        users = [user for user in node.users if user.op != "output"]
        if node in inside and users:
            level[node] = min(level[user] - _apart(kinds, inside, node, user) for user in users)
    for node in nodes:
        if kinds[node].op == "getitem":
            level[node] = level[node.all_input_nodes[0]]
    return level


def _apart(kinds: NodeKinds, inside: set[fx.Node], node: fx.Node, user: fx.Node) -> bool:
    """Whether ``user`` is part of a kernel that can only start once ``node`` is complete."""
    if user not in inside or node.op != "call_function" or kinds[node].symbol or kinds[user].op == "getitem":
        return False
    return node not in inside or _reduces_across(kinds, node) or _reduces_across(kinds, user)


def _reduces_across(kinds: NodeKinds, node: fx.Node) -> bool:
    """Whether it reduces other dimensions than the innermost, along which a kernel can go twice."""
    if kinds[node].op == "getitem":
        return _reduces_across(kinds, node.all_input_nodes[0])
    value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], fx.Node) else None
    if not isinstance(value, torch.Tensor) or not shrinks(kinds, node):
        return False
    dims = node.args[1] if len(node.args) > 1 else None
    reduced = {dim % value.dim() for dim in dims} if isinstance(dims, (list, tuple)) and dims else None
    if reduced is None or len(reduced) == value.dim():
        return True
    innermost = sorted(range(value.dim()), key=lambda dim: (int_of(value.stride()[dim]), -dim))[: len(reduced)]
    return reduced != set(innermost)


def shrinks(kinds: NodeKinds, node: fx.Node) -> bool:
    """Whether it makes fewer elements than it reads, as a reduction does."""
    if kinds[node].view:
        return False
    made = elements(node)
    return any(elements(read) > made for read in node.all_input_nodes)


def elements(node: fx.Node) -> int:
    """Elements of its tensor; of a tuple, those of the largest tensor."""
    value: object = node.meta.get("val")
    values: Iterable[object] = value if isinstance(value, (list, tuple)) else [value]
    return max((int_of(one.numel()) for one in values if isinstance(one, torch.Tensor)), default=0)


def int_of(size: int | torch.SymInt) -> int:
    """A size; one that depends on the input counts as in the first input."""
    return int(size) if isinstance(size, int) else int(size.node.hint or 0)
