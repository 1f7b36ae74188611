"""One rank of a sharded run: trains plain, then inside its own budget, and compares the bits.

Arguments: `fsdp` (parameters and gradients are sharded) or `tp` (the layers are, as `DTensor`s), rank, store.
"""

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
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)))


def fsdp(mesh: Any) -> nn.Module:
    model = blocks()
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def tensor_parallel(mesh: Any) -> nn.Module:
    model = blocks()
    for block in model:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return model


def local(value: Any) -> Any:
    return value.to_local() if hasattr(value, "to_local") else value


def train(kind: str, rank: int, mesh: Any) -> Any:
    model = {"fsdp": fsdp, "tp": tensor_parallel}[kind](mesh)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, foreach=False)
    torch.manual_seed(7 + (rank if kind == "fsdp" else 0))
    losses = []
    for _ in range(6):
        x, y = torch.randn(512, 64), torch.randn(512, 64)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [losses, [local(p.detach()) for p in model.parameters()]]


#: Shares of the span for the two ranks. What a rank gathers of the other's parameters cannot be dropped.
SHARES = {"fsdp": (0.9, 0.85), "tp": (0.8, 0.7)}


def main() -> None:
    kind, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(minutes=30)
    )
    mesh = init_device_mesh("cpu", (2,))
    expected = bits(train(kind, rank, mesh))
    gc.collect()
    measured = remat.measure(lambda: train(kind, rank, mesh) and None)
    budget = measured.fraction(SHARES[kind][rank])
    gc.collect()
    with remat.budget(budget) as run:
        found = train(kind, rank, mesh)
        stats = run.stats()
    wrong = differences(expected, bits(found))
    assert wrong == [], wrong
    assert stats.evictions > 0 and stats.peak <= budget, stats
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} same")


if __name__ == "__main__":
    main()
