"""The choices of a budget: the way to bound memory (counted bytes, or an arena), its policy, the origin of costs,
whether steps are planned."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from .._outputs import absolute

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


def check_seed(seed: int) -> None:
    """``ValueError`` for a seed that no generator takes."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}: expected a whole number from 0 to {2**64 - 1}")


def check_costs(costs: str) -> None:
    """``ValueError`` for an origin of costs that there is not."""
    if costs not in COSTS:
        raise ValueError(f"costs {costs!r}: expected 'measured' or 'bytes'")


@dataclass(frozen=True)
class Plans:
    """Whether steps are planned, and the files of plans."""

    #: Whether planned steps are followed.
    way: Plan = "off"
    #: A file with the plans to follow, and no others.
    given: str | None = None
    #: The file that the run's plans are written to.
    out: str | None = None
    #: The folder of the plans of all runs.
    cache: str | None = None


#: Steps are not planned.
NO_PLANS = Plans()


def cache_folder() -> str | None:
    """The folder of all that Remat keeps; ``None`` where ``REMAT_CACHE`` is ``off``.

    ``REMAT_CACHE`` names it, by default it is ``remat`` in the user's cache folder.
    """
    folder = os.environ.get("REMAT_CACHE")
    if folder is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        folder = os.path.join(base, "remat")
    return None if folder in ("", "off") else folder


def make_cache_folder_absolute() -> None:
    """Has ``REMAT_CACHE`` name the same folder wherever the program goes."""
    folder = cache_folder()
    if folder is not None and "REMAT_CACHE" in os.environ:
        os.environ["REMAT_CACHE"] = os.path.abspath(folder)


def plan_cache(costs: Costs) -> str | None:
    """The folder of the plans of all runs under this torch with such costs; ``None`` where nothing is kept."""
    folder = cache_folder()
    if folder is None:
        return None
    import torch  # not above: the command line complains of its arguments, and helps, without torch

    return os.path.join(folder, "plans", f"torch-{torch.__version__}", costs)


def choose_plans(
    plan: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
    policy: str | None,
    pool: str,
    costs: Costs,
) -> Plans:
    """Whether steps are planned, and the files of plans. By default they are, unless the run asks for something that
    plans change: the decisions of a policy by name, or runs that are alike.

    ``ValueError`` for a plan that there is not, for a file to write where no plan is made, for standard output, and for
    files in an arena: a plan names addresses of one run there.
    """
    if out == "-":
        raise ValueError("plan_out '-': standard output is the program's: name a file")
    if plan is None:
        alike = policy is not None or costs == "bytes"
        plan = "off" if alike and out is None else "auto"
    if pool == "arena" and (out is not None or plan not in PLANS):
        name, file = ("plan", plan) if out is None else ("plan_out", out)
        raise ValueError(f"{name} {file!r}: plans of an arena are for one run; take plan 'auto', or pool 'fungible'")
    if plan not in PLANS:
        if not os.path.exists(plan):
            raise ValueError(f"plan {plan!r}: expected 'auto', 'off' or a file of plans; there is no such file")
        if out is not None:
            raise ValueError(f"plan_out {out!r}: the plan {plan!r} is followed and none is made; take plan 'auto'")
        return Plans("auto", absolute(plan))
    if plan == "off":
        if out is not None:
            raise ValueError(f"plan_out {out!r}: with plan 'off' no plan is made; take plan 'auto'")
        return NO_PLANS
    cache = plan_cache(costs) if pool != "arena" else None
    return Plans("auto", out=None if out is None else absolute(out), cache=cache)
