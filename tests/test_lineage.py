"""Evicted values can be had again, whatever becomes of the values they were computed from."""

from __future__ import annotations

import ctypes
import gc
import random
import weakref
from typing import Any

import pytest
import remat
import torch
from bits import bits, differences
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor
from true_peak import room, true_peak

N = 65536


def pressure() -> None:
    """Results that push out what can be evicted."""
    source = torch.full((N,), 1.0)
    kept = [source + n for n in range(3)]
    del kept


def test_dropped_after_its_source_was_overwritten() -> None:
    x = torch.ones(N)
    with remat.budget(room(5 * 4 * N)) as run:
        y = x * 2
        z = y + 1
        x.add_(1)  # from here on y cannot be computed again
        del y
        pressure()
        assert run.stats().evictions > 0
        assert torch.equal(z, torch.full((N,), 3.0))


def test_dropped_after_it_was_shown() -> None:
    x = torch.ones(N)
    with remat.budget(room(5 * 4 * N)) as run:
        y = x * 2
        z = y + 1
        y.numpy()
        del y
        pressure()
        assert run.stats().evictions > 0
        assert torch.equal(z, torch.full((N,), 3.0))


def test_memory_shown_before_its_first_value_stays() -> None:
    with remat.budget("3MiB", costs="bytes") as run:
        shown = torch.empty(256, 1024)
        address = shown.data_ptr()
        shown.normal_()
        first = shown[0, 0].item()
        _others = [torch.randn(128, 1024) * 1.0 for _ in range(6)]
        assert run.stats().evictions > 0
        assert ctypes.c_float.from_address(address).value == first
        assert shown.data_ptr() == address


def test_source_freed_by_hand() -> None:
    x = torch.ones(N)
    with remat.budget(room(6 * 4 * N)) as run:
        y = x * 2
        z = y + 1
        y.untyped_storage().resize_(0)
        with pytest.raises(RuntimeError):
            y.sum()
        pressure()
        assert torch.equal(z, torch.full((N,), 3.0))
        y.untyped_storage().resize_(4 * N)
        y.fill_(7)
        pressure()
        assert y.sum() == 7 * N
        assert run.stats().peak <= run.stats().budget


def test_constants_that_the_program_dropped_make_room(way: str) -> None:
    """They are kept for what was computed from them, until that is cheaper to keep."""
    sources = [torch.randn(64, 64) for _ in range(32)]
    expected = [(source[:8] * 2).sin().tolist() for source in sources]
    with remat.budget("1GiB", policy="lru") as run:
        results = [(source[:8] * 2).sin() for source in sources]
        shown = sources[0].untyped_storage()  # a Python object that nobody holds keeps no storage
        del sources, shown
        run.set_budget(run.base + (200 << 10))
        blocks = []
        for _ in range(30):  # 480 KiB
            blocks.append(torch.ones(64, 64))
            blocks[-1].data_ptr()  # from here on it cannot be evicted
        assert [result.tolist() for result in results] == expected


def test_a_state_may_be_replaced_by_new_tensors_in_each_step(way: str) -> None:
    """The old one goes for the new one, where the whole history of training would have to be replayed otherwise."""

    def loss(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for weight in weights.values():
            x = torch.tanh(x @ weight)
        return x.square().mean()

    def stepped(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        gradients = torch.func.grad(loss)(weights, torch.randn(256, 128))
        return {name: weight - 0.05 * gradients[name] for name, weight in weights.items()}

    def trained(weights: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        state = weights.pop()
        for _ in range(12):
            state = stepped(state)
        return state

    def fresh() -> list[dict[str, torch.Tensor]]:
        torch.manual_seed(0)
        return [{str(n): torch.randn(128, 128) * 0.05 for n in range(8)}]

    with true_peak() as plain:
        expected = bits(trained(fresh()))
    budget = room((plain.highest - plain.base) * 4 // 10)
    with true_peak() as peak:
        weights = fresh()
        with remat.budget(budget, plan="off") as run:
            state = trained(weights)
    assert bits(state) == expected
    assert peak.highest <= budget
    assert peak.left <= peak.base + 8 * 4 * 128 * 128  # the run is held, and holds nothing
    assert run.stats().recomputed > 0


def test_room_is_made_anew_for_memory_that_a_call_works_in(way: str) -> None:
    """Each call fills a part of memory of its own, which the program drops, and the record of a small result reads.

    A constant in the chain goes with the pin of that result, while an op waits for the room.
    """
    x, weight = torch.randn(52, 64), torch.randn(512, 64)

    def scale(x: torch.Tensor) -> torch.Tensor:
        tile = torch.empty(52, N)[:, :512]
        torch.mm(x, weight.t(), out=tile)
        return x + tile.logsumexp(-1)[:, None].tanh()

    with remat.budget(room(52 * N * 4 * 3 // 2), plan="off") as run:
        found = x * 1.0
        for _ in range(6):
            found = scale(found)
        assert run.stats().recomputed == 0
    expected = x * 1.0
    for _ in range(6):
        expected = scale(expected)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["momentum", "AdamW", "AdamW over lists"])
def test_first_gradients_go_when_the_program_lets_go_of_them(
    kind: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state of an optimizer was computed from them in its first step. Where parameters are most of the memory, the
    second step takes what it takes without Remat all the same, and a budget of little more does.
    """
    monkeypatch.setenv("REMAT_RECORD", "always")

    def train() -> list[object]:
        torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), foreach=kind == "AdamW over lists")
        if kind == "momentum":
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 512)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return [losses, *model.parameters()]

    with true_peak() as plain:
        expected = bits(train())
    needed = plain.highest - plain.base
    with true_peak() as peak, remat.budget("1GiB"):
        found = bits(train())
    assert peak.highest - peak.base <= needed + (64 << 10)
    assert not differences(expected, found)
    with remat.budget(room(needed + (1 << 20))):  # a quarter of the gradients
        assert not differences(expected, bits(train()))


class Odd(torch.optim.SGD):
    """An optimizer whose state is not all tensors by parameter."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        self.state["steps"] = self.state.get("steps", 0) + 1
        self.state["average"] = torch.ones(64)
        self.state["sparse"] = {"of": torch.ones(4).to_sparse(), "two": TwoTensor(torch.ones(4), torch.ones(4))}


def test_an_optimizer_may_keep_anything() -> None:
    weight = torch.ones(64, 64, requires_grad=True)
    with remat.budget("1GiB"):
        optimizer = Odd([weight], 0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            weight.square().sum().backward()
            optimizer.step()
        assert optimizer.state["steps"] == 3


class Node:
    """Garbage that only the collector of cycles finds."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.itself, self.tensor = self, tensor


def in_cycles(seed: int) -> Any:
    """Activations of which some are owned by cyclic garbage, and others are made of them."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    weight, losses = torch.randn(32, 32, requires_grad=True), []
    for _ in range(3):
        xs = [torch.randn(64, 32)]
        for _ in range(40):
            read = xs[draw.randrange(max(0, len(xs) - 6), len(xs))]
            y = (read @ weight).tanh()
            node = Node(y * 1.5)
            xs.append(node.tensor + y)
            if draw.random() < 0.3:
                xs[draw.randrange(len(xs))] = xs[-1]
        loss = torch.stack([x.square().mean() for x in xs[::3]]).sum()
        loss.backward()
        losses.append(loss.detach())
    return losses, weight.grad


@pytest.mark.parametrize("seed", range(4))
def test_garbage_that_is_collected_amid_replays_takes_nothing_along(way: str, seed: int) -> None:
    before = gc.get_threshold()
    gc.disable()
    plain = bits(in_cycles(seed))
    gc.enable()
    try:
        for after in (7, 13, 20, 31):
            gc.collect()
            gc.set_threshold(after, 2, 2)
            with remat.budget(room(400_000), plan="off") as run:
                found = bits(in_cycles(seed))
            assert differences(plain, found) == []
            assert run.stats().recomputed > 0
    finally:
        gc.set_threshold(*before)


def test_what_is_left_to_the_collector_is_not_brought_back_at_the_end() -> None:
    gc.collect()
    gc.disable()
    try:
        with remat.budget(room(400_000), plan="off") as run:
            node = Node(torch.randn(24, 1024).exp())
            garbage = weakref.ref(node)
            del node
            kept = [torch.randn(24, 1024).exp() for _ in range(2)]
            assert run.stats().evictions > 0
            assert garbage() is not None
        assert garbage() is None
    finally:
        gc.enable()
    assert all(x.isfinite().all() for x in kept)
