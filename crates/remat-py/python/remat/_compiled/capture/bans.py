"""What is not to be recomputed for reasons that are in the joint graph and not in a single op of it.

They are those of torch's own partitioner, in its order, and follow its switches: a chain of cheap ops through the whole
model, such as that of residual connections, is cheap at each op and dear as a whole.
"""

from __future__ import annotations

import heapq

from torch import fx

from ..._torch_internals.compiler import NodeKinds, Rules

_LONGEST_CHAIN = 100


def bans(kinds: NodeKinds, rules: Rules) -> dict[fx.Node, str]:
    """Nodes of the forward pass, each with the reason why it is not to be recomputed."""
    found = {node: reason for node in kinds.nodes() if (reason := _own_reason(kinds, node))}
    if rules.materialized:
        for node in kinds.nodes():
            if node not in found and bannable(kinds, node) and _read_unfused(kinds, node):
                found[node] = "unfusible"
    if rules.used_far_apart:
        _used_far_apart(kinds, found)
    if rules.long_chains:
        _long_chains(kinds, found)
    return found


def bannable(kinds: NodeKinds, node: fx.Node) -> bool:
    """Whether there is an op that a ban could be of; views, sizes and items of tuples cost nothing."""
    kind = kinds[node]
    free = kind.view or kind.symbol or kind.op == "getitem" or kind.must_recompute
    return node.op == "call_function" and kinds.in_forward(node) and not free


def _own_reason(kinds: NodeKinds, node: fx.Node) -> str | None:
    kind = kinds[node]
    read = any(user.op != "output" for user in node.users)
    if not read or not kinds.in_forward(node) or node.op != "call_function":
        return None
    if kind.must_save:
        return "told to be saved"
    return "not known to be pure" if kind.once else None


def _read_unfused(kinds: NodeKinds, node: fx.Node) -> bool:
    """Whether an op that cannot be one kernel with it reads it, or a view of it, in the backward pass (lemma 3.1)."""
    waiting, seen = [node], {node}
    while waiting:
        now = waiting.pop()
        for user in now.users:
            if not kinds.in_forward(user) and user.op != "output" and not kinds.fuses(now, user):
                return True
            if user.op != "output" and kinds[user].view and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


def _forward_users(kinds: NodeKinds, node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if user.op != "output" and kinds.in_forward(user)]


def _used_far_apart(kinds: NodeKinds, found: dict[fx.Node, str]) -> None:
    """What reads a value after an op that cannot be fused will not be in one kernel with what read it before."""
    for node in kinds.nodes():
        if not kinds.in_forward(node):
            continue
        users = _forward_users(kinds, node)
        if not users:
            continue
        last = max(map(kinds.forward_order, users))
        first = _first_unfused(kinds, users, last)
        for user in users:
            if kinds.forward_order(user) > first and kinds.fuses(node, user) and bannable(kinds, user):
                found.setdefault(user, "used far apart")


def _first_unfused(kinds: NodeKinds, start: list[fx.Node], last: int) -> int:
    """Place of the first op, up to ``last``, that is reached from ``start`` and cannot be fused with what it reads."""
    place = kinds.forward_order
    nodes = {place(node): node for node in start}
    waiting = [(order, True) for order in nodes]
    heapq.heapify(waiting)
    seen = set(waiting)
    while waiting:
        order, fused = heapq.heappop(waiting)
        if not fused:
            return order
        node = nodes[order]
        for user in _forward_users(kinds, node):
            item = (place(user), kinds.fuses(node, user))
            if item[0] <= last and item not in seen:
                seen.add(item)
                nodes[item[0]] = user
                heapq.heappush(waiting, item)
    return last


def _long_chains(kinds: NodeKinds, found: dict[fx.Node, str]) -> None:
    """Cuts chains of ops that could all be recomputed in one go."""
    place = kinds.forward_order
    visited: set[fx.Node] = set()
    for start in kinds.nodes():
        if not kinds.in_forward(start):
            continue
        nodes = {place(start): start}
        waiting = [place(start)]
        while waiting:
            now = nodes[heapq.heappop(waiting)]
            if now in visited:
                continue
            visited.add(now)
            if place(now) > place(start) + _LONGEST_CHAIN and not waiting:
                if bannable(kinds, now):
                    found.setdefault(now, "end of a long chain")
                break
            for user in _forward_users(kinds, now):
                if user not in found and kinds.fuses(now, user):
                    nodes[place(user)] = user
                    heapq.heappush(waiting, place(user))
