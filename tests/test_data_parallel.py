"""Two ranks over gloo, each inside a budget of its own, have the plain run's bits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from process import LIMIT, environment


def test_two_ranks(tmp_path: Path) -> None:
    script = Path(__file__).with_name("ddp_rank.py")
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for number, (rank, (out, err)) in enumerate(zip(ranks, said, strict=True)):
        assert rank.returncode == 0, err
        assert f"rank {number} same" in out
