"""Chains with something awkward in them, and the comparison with running them plainly."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import remat
import torch
import torch.nn.functional as F
from bits import Bits, bits, differences
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from true_peak import resident_bytes, true_peak

STEPS = 2


class Residual(nn.Module):
    """Batch norm, in-place ReLU and dropout around a convolution, added in place."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Dropout(0.2)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x).add_(x)


class Carry(nn.Module):
    """Several tensors in and out, one of them passed through, one without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, value: tuple[Tensor, Tensor, dict[str, Tensor]]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        hidden, skip, extra = value
        mixed = torch.tanh(self.linear(hidden) * extra["mask"] + skip)
        return F.dropout(mixed, 0.1), mixed if self.linear.bias[0] > 0 else skip, extra


class Power(nn.Module):
    """A buffer that the forward pass reads and replaces by another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 48)
        self.register_buffer("direction", torch.full((48,), 48**-0.5))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.direction = F.normalize(self.linear.weight @ self.direction, dim=0)
        return torch.tanh(self.linear(x) / (self.direction @ self.linear.weight).norm()) + x


class Double(torch.autograd.Function):
    """A custom function that saves its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x.sigmoid() + x * x.sigmoid() * (1 - x.sigmoid()))


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(48, 48)

    def forward(self, x: Tensor) -> Tensor:
        return Double.apply(self.linear(x))


def images() -> tuple[nn.Sequential, Any]:
    blocks = [Residual() for _ in range(6)]
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), *blocks), torch.randn(4, 3, 24, 24)


def tuples() -> tuple[nn.Sequential, Any]:
    sample = (torch.randn(64, 32), torch.randn(64, 32), {"mask": (torch.rand(64, 32) > 0.3).float()})
    return nn.Sequential(*(Carry() for _ in range(6))), sample


def frozen() -> tuple[nn.Sequential, Any]:
    layers = [nn.Sequential(nn.Linear(48, 48), nn.GELU(), nn.Dropout(0.1)) for _ in range(8)]
    for index in (0, 1, 4):
        layers[index].requires_grad_(False)
    return nn.Sequential(*layers), torch.randn(128, 48)


def changing_buffers() -> tuple[nn.Sequential, Any]:
    return nn.Sequential(*(Power() for _ in range(6))), torch.randn(128, 48)


def shared() -> tuple[nn.Sequential, Any]:
    layer = nn.Linear(48, 48)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Dropout(0.1), Own(), layer, Own()), torch.randn(128, 48)


def writes_to_its_input() -> tuple[nn.Sequential, Any]:
    layers = [nn.Sequential(nn.Linear(48, 48), nn.Hardtanh(inplace=True)) for _ in range(5)]
    return nn.Sequential(nn.LeakyReLU(inplace=True), *layers), torch.randn(128, 48)


def recurrent() -> tuple[nn.Sequential, Any]:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.lstm(x)[0] + x

    return nn.Sequential(*(Layer() for _ in range(5))), torch.randn(12, 8, 16)


CHAINS: dict[str, Callable[[], tuple[nn.Sequential, Any]]] = {
    made.__name__: made for made in (images, tuples, frozen, changing_buffers, shared, writes_to_its_input, recurrent)
}


@dataclass(frozen=True)
class Trained:
    """The state that two steps left behind, and the allocator's peak."""

    bits: Bits
    base: int
    peak: int


def made(name: str) -> tuple[nn.Sequential, Any]:
    """The chain and its sample, the same every time."""
    torch.manual_seed(5)
    return CHAINS[name]()


def loss_of(output: Any) -> Tensor:
    return sum(t.float().square().mean() for t in pytree.tree_leaves(output) if t.requires_grad)  # type: ignore[return-value]


def train(model: nn.Module, sample: Any, wanting: bool = False, adding: bool = False) -> list[Any]:
    """Losses, outputs, gradients of input and parameters, buffers, the random stream. Gradients of a step are added to
    those of the one before, or not."""
    seen: list[Any] = []
    for _ in range(STEPS):
        if not adding:
            seen.append([bits(p.grad) for p in model.parameters() if p.grad is not None])
            model.zero_grad()
        value = pytree.tree_map(lambda t: t.clone(), sample)
        if wanting:
            first = pytree.tree_leaves(value)[0].requires_grad_()
            value = pytree.tree_map(lambda t: t * 1 if t.requires_grad else t, value)
        output = model(value)
        loss = loss_of(output)
        loss.backward()
        seen += [float(loss.detach()).hex(), bits(pytree.tree_leaves(output))]
        seen += [bits(first.grad)] if wanting else []
    seen += [[p.grad for p in model.parameters()], list(model.buffers()), torch.get_rng_state()]
    return seen


def plain(name: str, wanting: bool = False, adding: bool = False) -> Trained:
    """Two plain steps."""
    train(*made(name), wanting, adding)  # libraries warm up
    model, sample = made(name)
    gc.collect()
    torch.manual_seed(7)
    with true_peak() as peak:
        seen = train(model, sample, wanting, adding)
    return Trained(bits(seen), peak.base, peak.highest)


def planned(
    name: str, budget: int, wanting: bool = False, adding: bool = False, **options: Any
) -> tuple[Trained, remat.Checkpointable]:
    """Two steps inside a budget of so many bytes on top of what other tests left resident."""
    model, sample = made(name)
    shown = pytree.tree_map(lambda t: t.clone().requires_grad_(wanting and t is pytree.tree_leaves(sample)[0]), sample)
    if wanting:
        shown = pytree.tree_map(lambda t: (t * 1).detach().requires_grad_(t.requires_grad), shown)
    gc.collect()
    others = resident_bytes()
    allowed = others + budget
    options["reserve"] = STEPS * 2**16 + 8 * sum(
        t.nbytes for t in pytree.tree_leaves(shown)
    )  # what `train` holds on to
    try:
        chain = remat.Checkpointable(model, shown, allowed, loss=loss_of, **options)
    except remat.BudgetError as error:
        assert error.smallest > allowed
        allowed = error.smallest
        chain = remat.Checkpointable(model, shown, allowed, loss=loss_of, **options)
    del shown
    gc.collect()
    torch.manual_seed(7)
    with true_peak() as peak:
        seen = train(chain, sample, wanting, adding)
    assert peak.highest <= allowed, (peak.highest, allowed, str(chain.plan))
    assert chain.plan.peak <= allowed
    return Trained(bits(seen), peak.base, peak.highest), chain


def agree(one: Trained, other: Trained) -> None:
    assert differences(one.bits, other.bits) == []
