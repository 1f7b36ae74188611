"""Added time per op with no memory pressure: eager, a bare dispatch mode, and Remat with an ample budget."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any

import remat
import torch
from timing import in_turn, timed
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

GIB = 1 << 30
AMPLE = 8 * GIB

Program = Callable[[], object]


class PassThrough(TorchDispatchMode):
    """The least that a dispatch mode can do: the floor of Remat's route."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class OpCounter(TorchDispatchMode):
    """Counts the ops that reach a dispatch mode."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


@dataclass
class OverheadRow:
    """Time per op of one program under one mode, and how much of it eager would not have taken."""

    program: str
    ops: int
    mode: str
    us_per_op: float
    added_us_per_op: float


def programs(device: str) -> dict[str, Program]:
    """Programs of many ops with next to nothing to compute."""
    return {
        "500 adds of 4 numbers": adds(device),
        "training step of a small perceptron": perceptron_step(device),
    }


def adds(device: str) -> Program:
    """500 adds of 4 numbers, each to the sum so far."""
    one = torch.ones(4, device=device)

    def program() -> object:
        total = one
        for _ in range(500):
            total = total + one
        return total

    return program


def perceptron_step(device: str) -> Program:
    """A training step of a perceptron with eight hidden layers of 16."""
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(16, 16), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(4, 16, device=device)

    def program() -> object:
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return program


def measure_overhead(name: str, program: Program, device: str, rounds: int, repeats: int) -> list[OverheadRow]:
    """A row for each mode; entering and leaving a mode is not timed."""
    program()
    with OpCounter() as counter:
        program()
    modes = modes_of(device)
    us: dict[str, list[float]] = {mode: [] for mode in modes}
    for turn in range(rounds):
        for mode in in_turn(list(modes), turn):
            with modes[mode]():
                seconds = timed(program, device, warmup=3, repeats=repeats)
            us[mode].append(1e6 * median(seconds) / counter.ops)

    def added(mode: str) -> float:
        return median(mine - eager for mine, eager in zip(us[mode], us["eager"], strict=True))

    return [OverheadRow(name, counter.ops, mode, median(us[mode]), added(mode)) for mode in modes]


def modes_of(device: str) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    """The peers. The budget is 8 GiB, or half of a smaller memory: none is accepted beyond the memory."""
    ample = min(AMPLE, memory_of(device) // 2)
    return {
        "eager": nullcontext,
        "bare dispatch mode": PassThrough,
        f"remat.budget, {ample / GIB:.0f} GiB": lambda: remat.budget(ample, device=device),
    }


def memory_of(device: str) -> int:
    """Bytes of physical memory of the device."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
