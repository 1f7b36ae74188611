"""The choices of a budget: the way to bound memory (counted bytes, or an arena), its policy, the origin of costs,
whether steps are planned."""

from __future__ import annotations

from typing import Literal, get_args

#: Names of both ways. The one that counts comes first and is the default.
POOLS = ("fungible", "arena")

#: The origin of an op's cost.
Costs = Literal["measured", "bytes"]

#: Its choices, the default first.
COSTS = get_args(Costs)

#: Whether steps that repeat are planned.
Plan = Literal["auto", "off"]

#: Its choices.
PLANS = get_args(Plan)

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


def choose_plan(plan: Plan | None, policy: str | None, pool: str, costs: Costs) -> Plan:
    """Whether steps are planned. By default they are, unless the run asks for something that plans change: the
    decisions of a policy by name, an arena, or runs that are alike.

    ``ValueError`` for a way to plan that there is not, or not in this pool.
    """
    if plan is None:
        return "off" if policy is not None or pool == "arena" or costs == "bytes" else "auto"
    if plan not in PLANS:
        raise ValueError(f"plan {plan!r}: expected 'auto' or 'off'")
    if plan == "auto" and pool == "arena":
        raise ValueError("plan 'auto': steps are planned for counted bytes; take pool 'fungible', or plan 'off'")
    return plan
