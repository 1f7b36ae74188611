"""Training runs whose every bit must survive any feasible budget.

A scenario builds model and data, trains a few steps, and returns what must be the same: losses, gradients,
weights, buffers, optimizer state. The driver seeds the generator before and reads its state afterwards.
"""

from __future__ import annotations

from importlib import import_module

from .residual import DEPTH, ROWS, WIDTH, deep
from .table import SCENARIOS, Scenario
from .training import mlp

__all__ = ["DEPTH", "ROWS", "SCENARIOS", "WIDTH", "Scenario", "deep", "mlp"]

# Each file enters its scenarios into the table, which keeps this order.
for _subject in (
    "views_and_in_place",
    "several_outputs",
    "indexing",
    "random_and_numeric",
    "networks",
    "autograd",
    "optimizing",
    "sequences",
    "kept_tensors",
    "ways_out",
    "kinds_of_tensors",
    "surgery",
    "python_around",
):
    import_module(f".{_subject}", __name__)
