"""One rank that `torchrun` starts: trains plain, then inside its own budget, and compares the bits.

Arguments are ways to share a model among the ranks, one after the other: `ddp` (each has all of it), `fsdp` (parameters
and gradients are sharded), `tp` (the layers are, as `DTensor`s), `pp` (each has the layers of a stage).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
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
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

#: What a step of training does with inputs and targets; it returns the loss, where the rank has one.
Step = Callable[[torch.Tensor, torch.Tensor], Any]


def blocks() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4)))


def data_parallel(_: Any) -> tuple[nn.Module, Step]:
    return as_usual(DistributedDataParallel(blocks(), bucket_cap_mb=0.1))


def fully_sharded(mesh: Any) -> tuple[nn.Module, Step]:
    model = blocks()
    for block in model:
        fully_shard(block, mesh=mesh)
    return as_usual(fully_shard(model, mesh=mesh))


def tensor_parallel(mesh: Any) -> tuple[nn.Module, Step]:
    model = blocks()
    for block in model:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return as_usual(model)


def as_usual(model: nn.Module) -> tuple[nn.Module, Step]:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss.detach()

    return model, step


def pipelined(_: Any) -> tuple[nn.Module, Step]:
    rank = dist.get_rank()
    model = blocks()[2 * rank : 2 * rank + 2]
    stage = PipelineStage(model, rank, 2, torch.device("cpu"))
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=F.mse_loss)

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        if rank == 0:
            schedule.step(x)
            return None
        losses: list[torch.Tensor] = []
        schedule.step(target=y, losses=losses)
        return [loss.detach() for loss in losses]

    return model, step


#: By kind the model, whether the ranks have data of their own, and the shares of the span for the two ranks. What a
#: rank gathers of the other's parameters, sends and receives cannot be dropped.
KINDS: dict[str, tuple[Callable[[Any], tuple[nn.Module, Step]], bool, tuple[float, float]]] = {
    "ddp": (data_parallel, True, (0.7, 0.6)),
    "fsdp": (fully_sharded, True, (0.9, 0.85)),
    "tp": (tensor_parallel, False, (0.8, 0.7)),
    "pp": (pipelined, False, (0.95, 0.9)),
}


def local(value: Any) -> Any:
    return value.to_local() if hasattr(value, "to_local") else value


def train(kind: str, rank: int, mesh: Any) -> Any:
    make, own_data, _ = KINDS[kind]
    model, step = make(mesh)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2, foreach=False)
    torch.manual_seed(7 + (rank if own_data else 0))
    losses = []
    for _ in range(6):
        losses.append(step(torch.randn(512, 64), torch.randn(512, 64)))
        optimizer.step()
        optimizer.zero_grad()
    return [losses, [local(p.detach()) for p in model.parameters()]]


def compare(kind: str, rank: int, mesh: Any) -> None:
    expected = bits(train(kind, rank, mesh))
    gc.collect()
    measured = remat.measure(lambda: train(kind, rank, mesh) and None)
    budget = measured.fraction(KINDS[kind][2][rank])
    gc.collect()
    with remat.budget(budget) as run:
        found = train(kind, rank, mesh)
        stats = run.stats()
    wrong = differences(expected, bits(found))
    assert wrong == [], (kind, wrong)
    assert stats.evictions > 0 and stats.peak <= budget, (kind, stats)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (2,))
    for kind in sys.argv[1:]:
        compare(kind, rank, mesh)
        dist.barrier()
        os.write(1, f"rank {rank} same, {kind}\n".encode())  # a line at once, for two ranks write
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
