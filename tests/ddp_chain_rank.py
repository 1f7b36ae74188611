"""One rank of a data-parallel run: trains a chain plain, then by a plan, and compares the bits."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import remat
import torch
import torch.distributed as dist
from bits import bits, differences
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def smallest(model: nn.Sequential) -> int:
    try:
        remat.Checkpointable(model, torch.randn(256, 64), 1)
    except remat.BudgetError as error:
        return error.smallest
    raise AssertionError("a byte is not enough")


def train(rank: int, planned: bool, find_unused: bool) -> Any:
    """Three steps; the ranks share the weights and differ in their data and their budgets."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1)) for _ in range(8)))
    if planned:
        budget = smallest(model) + 400_000 + rank * 200_000  # DDP's buckets are as large as the gradients
        model = remat.Checkpointable(model, torch.randn(256, 64), budget)
        assert any(kind == "Fck" for kind, _ in model.plan.operations), model.plan
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.02, find_unused_parameters=find_unused)
    optimizer = torch.optim.SGD(parallel.parameters(), 0.1)
    torch.manual_seed(rank + 1)
    losses = []
    for step in range(3):
        x = torch.randn(256, 64)
        if step == 1:
            with parallel.no_sync():
                parallel(x).square().mean().backward()
        loss = parallel(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [losses, list(parallel.parameters()), torch.get_rng_state()]


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    for find_unused in (False, True):
        expected = bits(train(rank, False, find_unused))
        wrong = differences(expected, bits(train(rank, True, find_unused)))
        assert wrong == [], wrong
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} same")


if __name__ == "__main__":
    main()
