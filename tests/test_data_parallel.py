"""Two ranks over gloo, each inside a budget of its own, have the plain run's bits."""

from __future__ import annotations

from pathlib import Path

from process import PYTHON, ran, two_ranks_agree

TORCHRUN = [*PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def test_two_ranks(tmp_path: Path) -> None:
    two_ranks_agree(Path(__file__).with_name("ddp_rank.py"), tmp_path)


def test_two_ranks_of_torchrun() -> None:
    """DDP, FSDP2, tensor parallelism, whose inner ops of `DTensor`s the budget sees, and the stages of a pipeline."""
    kinds = ["ddp", "fsdp", "tp", "pp"]
    ended = ran([*TORCHRUN, Path(__file__).with_name("sharded_rank.py"), *kinds])
    assert ended.code == 0, ended.err
    agreed = sorted(line for line in ended.out.splitlines() if line.startswith("rank "))
    assert agreed == sorted(f"rank {rank} same, {kind}" for rank in range(2) for kind in kinds)
