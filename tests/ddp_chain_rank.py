"""One rank of a data-parallel run: trains a chain plain, then by a plan, and compares the bits."""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from typing import Any

import remat
import torch
import torch.distributed as dist
from bits import bits, differences
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from true_peak import resident_bytes, true_peak


def smallest(model: nn.Sequential, reserve: int) -> int:
    try:
        remat.Checkpointable(model, torch.randn(256, 64), 1, reserve=reserve)
    except remat.BudgetError as error:
        return error.smallest
    raise AssertionError("a byte is not enough")


def train(rank: int, planned: bool, find_unused: bool) -> Any:
    """Three steps; the ranks share the weights and differ in their data and their budgets."""
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1)) for _ in range(8)))
    gradients = sum(parameter.nbytes for parameter in model.parameters())
    budget = None
    if planned:
        reserve = 3 * gradients  # DDP's buckets, made twice in the first step, and the copies that it sends
        budget = smallest(model, reserve) + 2 * gradients + rank * 200_000  # added to, and what is kept
        model = remat.Checkpointable(model, torch.randn(256, 64), budget, reserve=reserve)
        assert any(kind == "Fck" for kind, _ in model.plan.operations), model.plan
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.02, find_unused_parameters=find_unused)
    with true_peak() as peak:
        found = steps(parallel, rank)
        gc.collect()
    if budget is not None:
        # The buckets were there before; no Python object stands for them. A thread of gloo may be the last to hold
        # what it sent, which the profiler does not see freed.
        unseen = max(0, peak.left - resident_bytes())
        assert unseen <= 3 * gradients, (unseen, gradients)
        assert peak.highest - unseen + gradients <= budget, (peak, unseen, gradients, budget)
    return found


def steps(parallel: nn.Module, rank: int) -> Any:
    """The state that three steps leave behind."""
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
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(minutes=30)
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
