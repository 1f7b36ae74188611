"""The two ways of bounding memory: counted bytes, or an arena whose blocks have addresses."""

from __future__ import annotations

#: Names of both ways. The one that counts comes first and is the default.
POOLS = ("fungible", "arena")

#: By pool, the eviction policy of a run that asks for none.
DEFAULT_POLICIES = {"fungible": "dtr-anc", "arena": "coop"}


def check_pool(pool: str) -> None:
    """``ValueError`` for a pool that there is not."""
    if pool not in POOLS:
        raise ValueError(f"pool {pool!r}: expected 'fungible' or 'arena'")
