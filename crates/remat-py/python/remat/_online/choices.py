"""The choices of a budget: the way to bound memory (counted bytes, or an arena), its policy, the origin of costs."""

from __future__ import annotations

from typing import Literal, get_args

#: Names of both ways. The one that counts comes first and is the default.
POOLS = ("fungible", "arena")

#: The origin of an op's cost.
Costs = Literal["measured", "bytes"]

#: Its choices, the default first.
COSTS = get_args(Costs)

#: By pool, the eviction policy of a run that asks for none.
DEFAULT_POLICIES = {"fungible": "dtr-anc", "arena": "coop"}


def check_pool(pool: str) -> None:
    """``ValueError`` for a pool that there is not."""
    if pool not in POOLS:
        raise ValueError(f"pool {pool!r}: expected 'fungible' or 'arena'")


def check_costs(costs: str) -> None:
    """``ValueError`` for an origin of costs that there is not."""
    if costs not in COSTS:
        raise ValueError(f"costs {costs!r}: expected 'measured' or 'bytes'")
