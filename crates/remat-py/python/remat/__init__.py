"""Train PyTorch models inside a byte budget.

>>> import torch, remat
>>> x = torch.ones(256, 256, requires_grad=True)
>>> with remat.budget("64MiB") as run:
...     loss = (x @ x).relu().sum()
...     loss.backward()
>>> run.stats().peak <= 64 * 2**20
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._compiled import backend_entry as _backend_entry
from ._errors import BudgetError, RematError
from ._native import __version__, parse_bytes, policies

if TYPE_CHECKING:
    from ._chain.chain_of import Chain, chain_of
    from ._chain.checkpointable import Checkpointable, sequential
    from ._chain.plan import ChainPlan
    from ._compiled.backend import compile
    from ._online.arena import ArenaStats, arena_library
    from ._online.budget import budget
    from ._online.measure import Measurement, measure
    from ._online.run import PlanStats, Run, Stats

__all__ = [
    "ArenaStats",
    "BudgetError",
    "Chain",
    "ChainPlan",
    "Checkpointable",
    "Measurement",
    "PlanStats",
    "RematError",
    "Run",
    "Stats",
    "__version__",
    "arena_library",
    "budget",
    "chain_of",
    "compile",
    "measure",
    "parse_bytes",
    "policies",
    "sequential",
]

# Names that need torch, with their modules. They are loaded when first asked for: the command line reads traces without
# torch.
_HOMES = {
    "ArenaStats": "_online.arena",
    "arena_library": "_online.arena",
    "Run": "_online.run",
    "PlanStats": "_online.run",
    "Stats": "_online.run",
    "budget": "_online.budget",
    "Chain": "_chain.chain_of",
    "chain_of": "_chain.chain_of",
    "ChainPlan": "_chain.plan",
    "Checkpointable": "_chain.checkpointable",
    "sequential": "_chain.checkpointable",
    "compile": "_compiled.backend",
    "Measurement": "_online.measure",
    "measure": "_online.measure",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Gives a notebook the cell magic ``%%remat``: ``%load_ext remat``."""
    from .integrations.notebook import register

    register(shell)


_backend_entry.announce()
