"""Two ranks over gloo, each inside a budget of its own, have the plain run's bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from process import two_ranks_agree


def test_two_ranks(tmp_path: Path) -> None:
    two_ranks_agree(Path(__file__).with_name("ddp_rank.py"), tmp_path)


@pytest.mark.parametrize("kind", ["fsdp", "tp"])
def test_two_ranks_with_shards(tmp_path: Path, kind: str) -> None:
    """FSDP2 and tensor parallelism: parameters are `DTensor`s, whose inner ops the budget sees."""
    two_ranks_agree(Path(__file__).with_name("sharded_rank.py"), tmp_path, kind)
