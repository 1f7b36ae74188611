"""Train PyTorch models inside a byte budget.

>>> import torch, remat
>>> x = torch.ones(256, 256, requires_grad=True)
>>> with remat.budget("64MiB") as run:
...     loss = (x @ x).relu().sum()
...     loss.backward()
>>> run.stats().peak <= 64 * 2**20
True
"""

from ._budget import Run, Stats, budget
from ._errors import BudgetError, RematError
from ._measure import Measurement, measure
from ._native import __version__, parse_bytes, policies

__all__ = [
    "BudgetError",
    "Measurement",
    "RematError",
    "Run",
    "Stats",
    "__version__",
    "budget",
    "measure",
    "parse_bytes",
    "policies",
]
