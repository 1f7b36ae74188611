"""The benchmark of cuts sees what it is there to see."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from cut_quality import cut_row


def test_minimum_cuts_are_those_of_networkx_and_no_dearer_than_torchs() -> None:
    blocks = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16))]
    row = cut_row("small", nn.Sequential(*blocks), (torch.randn(8, 16),), rounds=1)
    assert row.broken() is None
    assert row.cost == row.networkx_cost > 0
    assert row.torch_cost is not None and row.torch_cost >= row.cost and row.torch_recomputes_banned == 0
    assert dataclasses.replace(row, torch_cost=row.cost - 1).broken()
    assert dataclasses.replace(row, networkx_cost=row.cost - 1).broken()
