"""The budget that ``remat run`` enters, by its options."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .. import _native
from .._memory.amounts import amount_of
from .peaks import budget_of, named
from .reports import log_of
from .standard_error import tell

if TYPE_CHECKING:
    from .budget import budget


def _budget_argument(given: list[str]) -> str | dict[str, str]:
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    table: dict[str, str] = {}
    for item in given:
        device, sign, amount = item.partition("=")
        if not sign:
            raise ValueError(f"budget {item!r}: with several budgets name the device, e.g. cpu={item}")
        if device in table:
            raise ValueError(f"budget {item!r}: {device!r} has a budget of {table[device]} already: give it one budget")
        table[device] = amount
    return table


def in_bytes(options: argparse.Namespace) -> list[str]:
    """The argument ``--budget`` with bytes for shares of the program's measured peak, of which a line says so."""
    asked = _budget_argument(options.budget)
    if isinstance(asked, dict):
        return [f"{device}={_in_bytes(amount, device, options)}" for device, amount in asked.items()]
    return [_in_bytes(asked, options.device, options)]


def _in_bytes(amount: str, device: str | None, options: argparse.Namespace) -> str:
    share = amount_of(amount).of_peak
    if share is None:
        return amount
    size, told = budget_of(share, *named(options), device)
    if log_of(os.environ) != "off":
        tell(f"remat: budget {amount}: {told}\n")
    return str(size)


def _check_addresses(policy: str, pool: str) -> None:
    """``ValueError`` for a policy that would evict as another one does, since it goes by addresses."""
    if pool != "arena" and _native.goes_by_addresses(policy):
        raise ValueError(f"policy '{policy}' goes by addresses, which a count of bytes has none of; add --pool arena")


def budget_of_options(options: argparse.Namespace) -> budget:
    """The budget that the command asks for, with no share of a measured peak.

    One that names no device moves to the first accelerator that the script uses.
    """
    asked = _budget_argument(options.budget)
    if options.policy is not None:
        _native.check_policy(options.policy)
        _check_addresses(options.policy, options.pool)
    # Torch takes a second or two to load: what is wrong with the arguments is said before.
    from .budget import budget

    context = budget(
        asked,
        policy=options.policy,
        device=options.device,
        trace=options.trace,
        seed=options.seed,
        thrash_limit=options.thrash_limit,
        pool=options.pool,
        costs=options.costs,
        plan=options.plan,
        plan_out=options.plan_out,
        timeline=options.timeline,
    )
    names_device = isinstance(asked, dict) or options.device is not None
    return context if names_device or options.pool == "arena" else context._following_accelerator()
