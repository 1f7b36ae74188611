"""One rank of a data-parallel run: trains plain, then inside its own budget, and compares the bits."""

from __future__ import annotations

import gc
import sys
from datetime import timedelta
from typing import Any

import remat
import torch
import torch.distributed as dist
import torch.nn.functional as F
from bits import bits, differences
from scenarios import mlp
from torch.nn.parallel import DistributedDataParallel
from true_peak import resident_bytes, true_peak


def train(rank: int) -> Any:
    """Three steps; the ranks share the weights and differ in their data."""
    torch.manual_seed(0)
    model = DistributedDataParallel(mlp(), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    torch.manual_seed(rank + 1)
    losses = []
    for step in range(3):
        x, y = torch.randn(512, 64), torch.randn(512, 64)
        if step == 1:
            with model.no_sync():
                F.mse_loss(model(x), y).backward()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses += [loss.detach(), mean]
    return [losses, model.state_dict(), optimizer.state_dict()["state"], torch.get_rng_state()]


def main() -> None:
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(minutes=30)
    )
    expected = bits(train(rank))
    gc.collect()
    measured = remat.measure(lambda: train(rank))
    share = (0.7, 0.6)[rank]
    budget = measured.base + int((measured.peak - measured.base) * share)
    del measured
    gc.collect()
    with remat.budget(budget):
        train(rank)  # workspaces are learned where no profiler is active
    gc.collect()
    with true_peak() as peak:
        with remat.budget(budget) as run:
            found = train(rank)
            evictions = run.stats().evictions
        gc.collect()
    # A thread of gloo's may be the last to hold what it sent: the parameters, in one piece, and the mean losses. The
    # profiler does not see them freed.
    unseen = peak.left - resident_bytes()
    flat = sum(value.nbytes for value in found[1].values())
    assert 0 <= unseen <= flat + sum(loss.nbytes for loss in found[0]), (unseen, flat)
    wrong = differences(expected, bits(found))
    assert wrong == [], wrong
    assert evictions > 0
    assert peak.highest - unseen <= budget, (peak, unseen, budget)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} same")


if __name__ == "__main__":
    main()
