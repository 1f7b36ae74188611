"""Hundreds of steps neither grow memory nor slow down."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import remat
import torch
import torch.nn.functional as F
from repeated_steps import Trainer, planned, until_planned
from sample import some
from scenarios import mlp
from torch import nn

STEPS = 300
# What is remembered goes up and down over up to a hundred steps, so the highest of each half counts.
EVERY = 5


def resident_set() -> int:
    """Bytes of this process in memory, without what the C library keeps of the memory that was freed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def calls(work: Callable[[], object]) -> int:
    """Functions called by the work, Python's and C's: they grow where something is gone through that grows.

    Torch's own kernels are as long as they are; processor time would depend on what else the machine does.
    """
    counted = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def training() -> Iterator[None]:
    model = mlp(32, 4, lambda: nn.Dropout(0.1), lambda: nn.LayerNorm(32))
    optimizer = torch.optim.Adam(model.parameters())
    recent: deque[torch.Tensor] = deque(maxlen=4)
    x, y = torch.randn(256, 32), torch.randn(256, 32)
    while True:
        hidden = model(x)
        recent.append(hidden.detach())
        loss = F.mse_loss(hidden, y) + recent[0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield


def training_with_fused_sgd_and_batch_norm() -> Iterator[None]:
    model = mlp(32, 4, lambda: nn.BatchNorm1d(32))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, fused=True)
    while True:
        optimizer.zero_grad(set_to_none=False)
        model(torch.randn(256, 32)).square().mean().backward()
        optimizer.step()
        yield


def training_with_momentum() -> Iterator[None]:
    model = mlp(32, 4, lambda: nn.BatchNorm1d(32))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    while True:
        model(torch.randn(256, 32)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def training_with_averages_kept_by_hand() -> Iterator[None]:
    """Each average is a new tensor, computed from the one before and a gradient that is dropped."""
    model = mlp(32, 4)
    averages: dict[nn.Parameter, torch.Tensor] = {}
    while True:
        model(torch.randn(256, 32)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                average = averages.get(parameter, torch.zeros_like(parameter))
                averages[parameter] = average * 0.9 + parameter.grad
                parameter -= 0.01 * averages[parameter]
                parameter.grad = None
        yield


def state_carried_without_an_optimizer() -> Iterator[None]:
    weight = torch.randn(32, 32) / 6
    state, total = torch.randn(256, 32), torch.zeros(256, 32)
    while True:
        features = [state]
        for _ in range(12):
            features.append((features[-1] @ weight).tanh())
        state = features[-1] + state * 0.5
        total.mul_(0.9).add_(state)
        yield


LOOPS: dict[str, Callable[[], Iterator[None]]] = {
    loop.__name__: loop
    for loop in (
        training,
        training_with_fused_sgd_and_batch_norm,
        training_with_momentum,
        training_with_averages_kept_by_hand,
        state_carried_without_an_optimizer,
    )
}


def growth(samples: dict[int, int]) -> int:
    """By how much the highest sample of the second half is above that of the first."""
    late = max(count for step, count in samples.items() if step >= STEPS // 2)
    return late - max(count for step, count in samples.items() if step < STEPS // 2)


class Steps:
    """Many steps: calls, evictions, replays and reads of each, and the memory, objects and records between them."""

    def __init__(self, run: remat.Run, step: Callable[[], object]) -> None:
        self.called: list[int] = []
        self.work: list[int] = []
        self.looked_at: list[int] = []
        self.memory: dict[int, int] = {}
        self.objects: dict[int, int] = {}
        self.records: dict[int, int] = {}
        for number in range(STEPS):
            if number % EVERY == 0:
                gc.collect()
                self.memory[number], self.objects[number] = resident_set(), len(gc.get_objects())
                self.records[number] = run.stats().records
            before = run._mode.stats()
            self.called.append(calls(step))
            after = run._mode.stats()
            self.work.append(sum(after[name] - before[name] for name in ("evictions", "recomputed")))
            self.looked_at.append(after["metadata_accesses"] - before["metadata_accesses"])

    def stayed_the_same(self) -> None:
        assert growth(self.records) < 50
        assert growth(self.objects) < 200
        assert growth(self.memory) < 4 * 2**20
        assert sum(self.work) > 0
        for counts, what in (
            (self.called, "calls"),
            (self.work, "evictions and replays"),
            (self.looked_at, "metadata of storages read"),
        ):
            early, late = sum(counts[50:150]), sum(counts[-100:])
            assert late <= 1.5 * early, f"{what}: {late} in the last 100 steps, {early} in 100 early ones"


def budget_for(few: Callable[[], None]) -> tuple[int, int]:
    """A budget of 70% of what a few steps take above what was there, and their peak."""
    torch.set_num_threads(1)
    few()
    gc.collect()
    measured = remat.measure(few)
    return measured.base + int((measured.peak - measured.base) * 0.7), measured.peak


# A plan is adopted when it is ready, which the clock decides, and may replay more ops for less time; so may the policy
# once an op is measured again. Two spans of steps compare only under one plan, or under none, and with costs that stay.
@pytest.mark.parametrize("name", some(LOOPS))
def test_many_steps_stay_the_same(name: str) -> None:
    def few() -> None:
        loop = LOOPS[name]()
        for _ in range(3):
            next(loop)

    budget, peak = budget_for(few)
    for _ in range(30):
        try:
            with remat.budget(budget, plan="off", costs="bytes") as run:
                steps = Steps(run, LOOPS[name]().__next__)
            break
        except remat.BudgetError as refused:
            budget = refused.smallest
    else:
        raise AssertionError(f"no budget up to {budget} did")
    assert budget < peak
    assert run.stats().evictions >= STEPS
    assert sum(steps.looked_at) > 0
    steps.stayed_the_same()


def test_many_planned_steps_stay_the_same() -> None:
    trainer = Trainer()

    def step() -> None:
        trainer.train()
        trainer.losses.clear()

    def few() -> None:
        for _ in range(3):
            step()

    budget, _ = budget_for(few)
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        for _ in until_planned(run, step):
            pass
        before = planned(run)
        steps = Steps(run, step)
        after = planned(run)
    assert (before.adopted, after.adopted) == (1, 1)
    assert after.steps - before.steps >= STEPS - 2
    assert sum(steps.looked_at) == 0, "a plan decides without scores"
    steps.stayed_the_same()
