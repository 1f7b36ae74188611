"""Networks that are drawn at random, trained for some steps: bits and peaks."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from bits import differences
from budgeted import Refusal, reference, under
from scenarios import Scenario
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

SHAPES = [(64, 64), (32, 128), (16, 16, 16), (256, 64)]
STEPS = 6


def overwritten(x: Tensor, y: Tensor) -> Tensor:
    made = x * 1
    made.add_(y)
    made[0].mul_(0.5)
    return made


def filled(x: Tensor, y: Tensor) -> Tensor:
    made = torch.empty_like(x)
    made.copy_(y)
    return made + x


def halves(x: Tensor, _: Tensor) -> Tensor:
    made = x * 1
    made[: len(made) // 2].mul_(1.5)
    made[len(made) // 2 :].tanh_()
    return made


def without_autograd(x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return (x * y).clamp_(-1, 1)


def hooked(x: Tensor, _: Tensor) -> Tensor:
    made = x * 1.01
    if made.requires_grad:
        made.register_hook(lambda gradient: gradient * 0.5)
    return made


def again(x: Tensor, y: Tensor) -> Tensor:
    made = checkpoint(lambda x, y: F.dropout(x.sin() * y.cos(), 0.1), x, y, use_reentrant=False)
    assert isinstance(made, Tensor)
    return made


#: Ops on two tensors of a shape, with a result of that shape.
OPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    overwritten,
    filled,
    halves,
    without_autograd,
    hooked,
    again,
    lambda x, y: x * y,
    lambda x, y: x + y * 0.5,
    lambda x, _: F.gelu(x),
    lambda x, _: (x + 0.1).relu_(),
    lambda x, _: x.softmax(-1),
    lambda x, _: F.layer_norm(x, x.shape[-1:]),
    lambda x, _: F.dropout(x, 0.3),
    lambda x, y: torch.cat([x, y])[: len(x)],
    lambda x, _: x.mean(0, keepdim=True) + x,
    lambda x, _: x[torch.randperm(len(x))],
    lambda x, y: torch.where(x > 0, x, y * 0.1),
    lambda x, _: x.cumsum(-1) * 0.1,
    lambda x, _: x.sort(-1).values,
    lambda x, _: x.max(-1, keepdim=True).values + x * 0.1,
    lambda x, y: x.masked_fill(y > 0.5, 0.1),
    lambda x, y: torch.addcmul(x, y, y, value=0.1),
    lambda x, _: F.pad(x, (1, 1))[..., 1:-1],
    lambda x, _: x.to(torch.bfloat16).mul(2).float(),
    lambda x, _: torch.fft.irfft(torch.fft.rfft(x) * 0.9, n=x.shape[-1]),
    lambda x, _: x - x.std(),
    lambda x, _: x.transpose(0, -1).contiguous().transpose(0, -1),
    lambda x, _: torch.stack(list(x.unbind())[::-1]),
    lambda x, _: x * 2 if x.sum().item() > 0 else x * 0.5,
]


def drawn(seed: int) -> Callable[[], tuple[list[Tensor], list[Tensor]]]:
    """The training of a network that is drawn by a seed; returns losses and parameters."""
    draws = random.Random(seed)
    length = draws.randint(15, 45)
    network = [(draws.choice(OPS), draws.random(), draws.random(), draws.random() < 0.4) for _ in range(length)]

    def forward(parameters: list[Tensor]) -> Tensor:
        values = [parameter * 1.0 for parameter in parameters]
        for op, first, second, forgets in network:
            x = values[int(first * len(values))]
            alike = [value for value in values if value.shape == x.shape]
            values.append(op(x, alike[int(second * len(alike))]).clamp(-8, 8))
            if forgets and len(values) > 6:
                del values[int(second * len(values))]
        terms = [value.square().mean() for value in values if value.requires_grad]
        return torch.stack(terms).sum()

    def train() -> tuple[list[Tensor], list[Tensor]]:
        parameters: list[Tensor] = [nn.Parameter(torch.randn(shape) * 0.3) for shape in SHAPES]
        optimizer = torch.optim.AdamW(parameters, 1e-3) if seed % 2 else torch.optim.SGD(parameters, 1e-2, momentum=0.9)
        losses = []
        for _ in range(STEPS):
            loss = forward(parameters)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return losses, parameters

    return train


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", [pytest.param(at, marks=[] if at < 4 else pytest.mark.full) for at in range(200)])
def test_training_keeps_its_bits_within_its_budget(seed: int) -> None:
    scenario = Scenario(f"drawn by {seed}", drawn(seed))
    plain = reference(scenario)
    met = 0
    for fraction in (0.8, 0.6, 0.45):
        found = under(scenario, plain.at(fraction))
        if isinstance(found, Refusal):
            assert found.smallest > found.budget
            continue
        met += 1
        assert found.true_peak <= found.budget, f"{found.true_peak - found.budget} bytes above {found.budget}"
        assert differences(plain.bits, found.bits) == []
    assert met > 0
