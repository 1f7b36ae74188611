"""Budgets for training loops that other packages own, with Remat's counters in their logs.

A plain ``with remat.budget(...): trainer.train()`` does as well where nothing is to be logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._online.run import Run


def metrics(run: Run) -> dict[str, float]:
    """Counters of a run as loggers take them: bytes, counts since the budget was entered, and the slowdown.

    >>> import torch, remat
    >>> from remat.integrations import metrics
    >>> with remat.budget("64MiB") as run:
    ...     x = torch.ones(1024).exp()
    >>> sorted(metrics(run))
    ['remat/evictions', 'remat/peak_bytes', 'remat/recomputed', 'remat/slowdown', 'remat/used_bytes']
    """
    stats = run.stats()
    return {
        "remat/peak_bytes": float(stats.peak),
        "remat/used_bytes": float(stats.used),
        "remat/evictions": float(stats.evictions),
        "remat/recomputed": float(stats.recomputed),
        "remat/slowdown": stats.slowdown,
    }
