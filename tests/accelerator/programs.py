"""Programs for the stand-in accelerator, and their runs plain and under budgets."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import remat
import torch
from bits import Bits, bits, differences
from torch import nn

from . import standin

Program = Callable[[], Any]
SEED = 1234
DEVICES = ("standin:0", "standin:1")


def host(values: Any) -> Any:
    """Tensors inside values as the CPU sees them."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu()
    if isinstance(values, list | tuple):
        return [host(value) for value in values]
    return values


def seeded() -> None:
    gc.collect()
    torch.accelerator.synchronize()
    torch.manual_seed(SEED)


def random_states() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(generator.get_state() for generator in standin.default_generators)]


@dataclass(frozen=True)
class Plain:
    """A program without Remat: its bits, and the bytes of each device's allocator before it and at its peak."""

    bits: Bits
    base: dict[str, int]
    peak: dict[str, int]

    def at(self, fraction: float, name: str = "standin:0") -> int:
        """The budget that leaves a part of the span between both."""
        return self.base[name] + int(fraction * (self.peak[name] - self.base[name]))


def plain(program: Program, measured: int = 1) -> Plain:
    """Runs a program without Remat, and measured by it. Workspaces are known then, and after four times costs are too.

    An op whose cost is being measured is waited for; no other is.
    """
    seeded()
    base = {name: torch.accelerator.memory_allocated(index) for index, name in enumerate(DEVICES)}
    restart()
    found = bits([host(program()), random_states()])
    peak = restart()
    for _ in range(measured):
        seeded()
        seen = remat.measure(lambda: host(program()), device="standin")
        assert differences(found, bits([seen.result, random_states()])) == []
    return Plain(found, base, peak)


def restart() -> dict[str, int]:
    """The peaks of the devices by their allocators' own count. That and torch's peaks start anew."""
    gc.collect()  # what earlier programs left in cycles is no part of the next one
    for name in DEVICES:
        torch.accelerator.reset_peak_memory_stats(name)
    return {name: standin.restart_highest(index) for index, name in enumerate(DEVICES)}


def budgeted(program: Program, budgets: Mapping[str, int], reference: Plain, **settings: Any) -> remat.Stats:
    """Runs a program under budgets; it must give the bits of the plain run, within the budgets."""
    seeded()
    restart()
    with remat.budget(dict(budgets), **settings) as run:
        values = host(program())
        told = {name: torch.accelerator.max_memory_allocated(name) for name in DEVICES}
        peaks = restart()
        found = bits([values, random_states()])
        stats = run.stats()
    assert differences(reference.bits, found) == []
    for name, size in budgets.items():
        if name != "cpu":
            assert told[name] <= peaks[name], "torch tells of more than there was"
            assert peaks[name] <= size, f"{name}: a peak of {peaks[name]} bytes in a budget of {size}"
    return stats


def trained(model: nn.Module, data: torch.Tensor, device: str, steps: int = 3) -> list[torch.Tensor]:
    """Trains a model; its losses and weights."""
    model, data = model.to(device), data.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *model.parameters(), *model.buffers()]


def data(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def perceptron(device: str = "standin:0", dropout: float = 0.1) -> list[torch.Tensor]:
    """Linear layers with dropout: products of matrices, which take workspace, and random numbers of the device."""
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(128, 128), nn.GELU(), nn.Dropout(dropout)]
    return trained(nn.Sequential(*layers), data(512, 128), device)


def convolutions(device: str = "standin:0") -> list[torch.Tensor]:
    """Convolutions with batch normalisation."""
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    for _ in range(4):
        layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    return trained(nn.Sequential(*layers), data(8, 3, 24, 24), device, steps=2)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.inner, self.outer = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inner(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5).softmax(-1)
        return x + self.outer((weights @ v).transpose(1, 2).reshape(batch, length, width))


def attention(device: str = "standin:0") -> list[torch.Tensor]:
    """Blocks of attention: views, batched products, softmax."""
    return trained(nn.Sequential(*(_Attention(64, 4) for _ in range(4))), data(8, 48, 64), device, steps=2)
