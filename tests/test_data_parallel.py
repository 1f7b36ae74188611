"""Two ranks over gloo, each inside a budget of its own, have the plain run's bits."""

from __future__ import annotations

from pathlib import Path

from process import two_ranks_agree


def test_two_ranks(tmp_path: Path) -> None:
    two_ranks_agree(Path(__file__).with_name("ddp_rank.py"), tmp_path)
