"""Random programs of tensor ops: aliases, mutation, releases, randomness, gradients; a seed is a program."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import remat
import torch
from torch import Tensor

SIDE = 96
Values = dict[str, Tensor]


class Program:
    """Carries out one random choice after another on named values; every choice comes from the seed alone."""

    def __init__(self, seed: int, ops: int, refused: Callable[[int], None] | None = None) -> None:
        """`refused` is told the smallest budget that would do, before the refused act is done again."""
        self.ops = ops
        self.choose = random.Random(seed)
        self.values: Values = {}
        self.names = 0
        self.refused = refused

    def run(self) -> Iterator[Values]:
        """Yields the live values after every few ops; whoever reads them may change nothing."""
        for _ in range(4):
            self.keep(torch.randn(SIDE, SIDE))
        for number in range(self.ops):
            kinds: list[tuple[int, Callable[[], None]]] = [
                (6, self.unary),
                (6, self.binary),
                (2, self.product),
                (4, self.view),
                (2, self.in_place_on_value),
                (3, self.in_place_on_slice),
                (2, self.in_place_with_value),
                (2, self.random_op),
                (2, self.several_outputs),
                (1, self.masked),
                (1, self.gradient),
                (1, self.cast),
                (20 if len(self.values) > 12 else 1, self.release),
            ]
            weights, acts = zip(*kinds, strict=True)
            act = self.choose.choices(acts, weights)[0]
            if self.refused is None:
                act()
            else:
                self.insist(act)
            if number % 10 == 9:
                yield self.values

    def insist(self, act: Callable[[], None]) -> None:
        """Does an act again until it is not refused; each act writes in place at most once, at its end."""
        choices, stream, names = self.choose.getstate(), torch.get_rng_state(), self.names
        while True:
            try:
                return act()
            except remat.BudgetError as refusal:
                assert self.refused is not None
                self.refused(refusal.smallest)
            self.values = {name: value for name, value in self.values.items() if int(name[1:]) <= names}
            self.choose.setstate(choices)
            torch.set_rng_state(stream)
            self.names = names

    def keep(self, value: Tensor) -> None:
        self.names += 1
        self.values[f"v{self.names}"] = value

    def any(self) -> Tensor:
        return self.values[self.choose.choice(sorted(self.values))]

    def square(self) -> Tensor:
        """Any value, brought to the common shape by views and broadcasts."""
        value = self.any()
        if value.shape == (SIDE, SIDE):
            return value
        return value.reshape(-1)[:1].expand(SIDE, SIDE) if self.choose.random() < 0.5 else self.grown(value)

    def grown(self, value: Tensor) -> Tensor:
        flat = value.reshape(-1)
        return flat.repeat(-(-SIDE * SIDE // flat.numel()))[: SIDE * SIDE].view(SIDE, SIDE)

    def unary(self) -> None:
        op = self.choose.choice([torch.sin, torch.tanh, torch.sigmoid, torch.relu, torch.neg, torch.square, torch.erf])
        self.keep(op(self.any()).clamp(-3, 3))

    def binary(self) -> None:
        op = self.choose.choice([torch.add, torch.sub, torch.mul, torch.maximum, torch.atan2])
        self.keep(op(self.square(), self.square()).tanh())

    def product(self) -> None:
        self.keep((self.square() @ self.square().t()).div(SIDE).tanh())

    def view(self) -> None:
        value = self.square()
        low = self.choose.randrange(SIDE // 2)
        views: list[Callable[[], Tensor]] = [
            lambda: value.t(),
            lambda: value[low : low + SIDE // 2],
            lambda: value[:, low::2],
            lambda: value.view(-1, SIDE // 4) if value.is_contiguous() else value.flatten(),
            lambda: value.unsqueeze(0).expand(3, -1, -1)[1],
            lambda: value.diagonal(),
            lambda: value.detach(),
            lambda: value.narrow(0, low, SIDE // 4).transpose(0, 1),
        ]
        self.keep(self.choose.choice(views)())

    def writable(self) -> Tensor:
        """A value that no expand makes overlap itself."""
        value = self.any()
        return value if 0 not in value.stride() else value.contiguous()

    def in_place_on_value(self) -> None:
        value = self.writable()
        self.choose.choice([value.tanh_, value.sin_, value.neg_, lambda: value.mul_(0.5)])()

    def in_place_on_slice(self) -> None:
        value = self.writable()
        low = self.choose.randrange(max(1, value.shape[0] // 2))
        part = value[low : low + 5]
        self.choose.choice([lambda: part.mul_(0.5), part.zero_, lambda: part.add_(0.25), lambda: part.fill_(0.75)])()

    def in_place_with_value(self) -> None:
        value, other = self.writable(), self.square()
        if value.shape == (SIDE, SIDE):
            self.choose.choice([lambda: value.copy_(other), lambda: value.lerp_(other.clone(), 0.5)])()
        else:
            value.mul_(other.mean().tanh())

    def random_op(self) -> None:
        value = self.square()
        ops: list[Callable[[], Tensor]] = [
            lambda: torch.dropout(value, 0.3, True).tanh(),
            lambda: torch.rand_like(value) * value,
            lambda: torch.bernoulli(value.sigmoid()),
            lambda: value[torch.randperm(SIDE)],
            lambda: torch.empty(SIDE, SIDE).normal_().clamp_(-3, 3),
            lambda: value.gather(1, torch.multinomial(value.softmax(1), 8)),
        ]
        self.keep(self.choose.choice(ops)())

    def several_outputs(self) -> None:
        value = self.square()
        ops: list[Callable[[], tuple[Tensor, ...] | list[Tensor]]] = [
            lambda: value.split([SIDE // 3, SIDE - SIDE // 3], 1),
            lambda: value.topk(5, dim=1),
            lambda: torch.var_mean(value, 0),
            lambda: value.sort(dim=0),
            lambda: value.max(dim=1),
            lambda: value.unbind(0)[:3],
            lambda: torch.aminmax(value, dim=0),
        ]
        for part in self.choose.choice(ops)():
            if part.is_floating_point() and self.choose.random() < 0.7:
                self.keep(part)

    def masked(self) -> None:
        value = self.square()
        picked = value[value > value.mean()]
        spread = torch.zeros_like(value)
        spread[value > value.mean()] = picked.sin()
        rows = (value.sum(1) > 0).nonzero().squeeze(1)
        self.keep(spread.index_fill(0, rows[:3], 0.5))

    def gradient(self) -> None:
        leaf = self.square().detach().clone().requires_grad_()
        hidden = leaf
        for _ in range(3):
            hidden = (hidden @ leaf).div(SIDE).tanh() + hidden.sin()
        (slope,) = torch.autograd.grad(hidden.square().mean(), leaf)
        self.keep(slope * SIDE)

    def cast(self) -> None:
        value = self.any()
        kind = self.choose.choice([torch.bfloat16, torch.float64, torch.float16])
        self.keep(value.to(kind).mul(0.5).to(torch.float32))

    def release(self) -> None:
        if len(self.values) > 4:
            del self.values[self.choose.choice(sorted(self.values))]
