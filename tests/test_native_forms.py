"""Known forms of ops with effects beside their results: running statistics, random numbers, memory filled later."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from native import LEAVES, REPLAYS, needed, needs
from process import PYTHON, ran_warm
from remat._torch_internals import eager
from repeated_steps import planned, until_planned
from sample import some
from torch import nn


class Training:
    """Steps of a network with batch normalisation, dropout, noise, an index and a state that a cell carries on."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        first = [nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2)]
        second = [nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8, momentum=None), nn.GELU(), nn.Dropout2d(0.3)]
        self.model = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.cell = nn.GRUCell(32, 16)
        parameters = [*self.model.parameters(), *self.cell.parameters()]
        self.optimizer = torch.optim.Adam(parameters, foreach=False)
        self.images, self.labels = torch.randn(16, 4, 12, 12), torch.arange(16)
        self.losses: list[float] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        features = self.model(self.images + 0.1 * torch.randn_like(self.images))
        state = torch.zeros(16, 16)
        for _ in range(3):
            state = nn.functional.dropout(self.cell(features, state), 0.1)
        loss = nn.functional.cross_entropy(state[torch.arange(16)], self.labels)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def outcome(self) -> dict[str, Any]:
        return {
            "losses": self.losses,
            "generator": torch.get_rng_state().tolist(),
            "statistics": [buffer.tolist() for buffer in self.model.buffers()],
            "parameters": [parameter.tolist() for parameter in self.model.parameters()],
        }


def trained(steps: int = 10) -> dict[str, Any]:
    training = Training()
    for _ in range(steps):
        training.step()
    return training.outcome()


def test_statistics_generators_and_bits_are_those_of_plain_torch(way: str) -> None:
    plain, measured = trained(), remat.measure(trained)
    for fraction, replays in ((2.0, False), (0.8, True)):
        with remat.budget(measured.fraction(fraction), policy="lru") as run:
            found = trained()
        assert found == plain
        assert (run.stats().recomputed > 0) is replays
        assert run.stats().dispatch == way


@needed
def test_a_step_enters_no_python_once_its_forms_are_known(native: None) -> None:
    with remat.budget("1GiB") as run:
        training = Training()
        for _ in range(12):
            training.step()
        before = run.stats()
        for _ in range(3):
            training.step()
        after = run.stats()
    assert after.ops > before.ops + 300
    assert 0 < before.through_python == after.through_python


@needed
@needs(LEAVES)
def test_python_is_not_asked_whether_a_gradient_is_left_in_a_leaf(
    native: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0
    ask = eager.accumulating

    def counting() -> bool:
        nonlocal asked
        asked += 1
        return ask()

    monkeypatch.setattr(eager, "accumulating", counting)
    with remat.budget("1GiB"):
        Training().step()
    assert asked == 0


@needed
def test_both_ways_pin_gradients_and_write_statistics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted = {}
    for way in ("native", "python"):
        monkeypatch.setenv("REMAT_DISPATCH", way)
        trace = tmp_path / way
        with remat.budget("1GiB", trace=trace) as run:
            training = Training()
            for _ in range(8):
                run.mark("step")
                training.step()
        last = trace.read_text().split('"step"')[-1]
        counted[way] = last.count('{"pin"'), last.count("remat.update_stats")
    pins, updates = counted["native"]
    assert counted["native"] == counted["python"]
    assert pins > 4 and updates == 2


def test_a_momentum_of_zero_is_another_use_of_statistics(way: str) -> None:
    images = torch.randn(16, 8, 4, 4)

    def normalise() -> list[list[float]]:
        norm, kept = nn.BatchNorm2d(8), []
        for step in range(24):
            norm.momentum = 0.0 if step % 8 > 5 else 0.1 + step / 100
            assert norm.running_mean is not None
            kept.append(norm(images + step) * norm.running_mean.view(8, 1, 1).clone())
        return [one.detach().sum(dim=(0, 2, 3)).tolist() for one in kept]

    plain, measured = normalise(), remat.measure(normalise)
    with remat.budget(measured.fraction(0.6), policy="lru") as run:
        assert normalise() == plain
    assert run.stats().recomputed > 0


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "bernoulli": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "bernoulli of memory that was written": lambda x: (x * 0).bernoulli_(0.3),
    "normal": lambda x: torch.randn(64, 65),
    # One of a pair of normal numbers is left, and is next.
    "half a pair": lambda x: x + torch.randn(3, dtype=torch.float64)[2],
    "permutation": lambda x: x[torch.randperm(64)],
    "multinomial": lambda x: x[torch.multinomial(torch.ones(64), 32)],
    "dropout": lambda x: nn.functional.dropout(x, 0.4),
    "uniform": lambda x: torch.empty(64, 65).uniform_(-1, 1),
    "copied": lambda x: torch.empty_like(x).copy_(torch.rand_like(x)),
    "zeros": lambda x: torch.empty_like(x).fill_(float(x[0, 0])).add_(torch.rand(())),
    "own generator": lambda x: x * torch.rand(64, 65, generator=torch.Generator().manual_seed(1)),
}


@pytest.mark.parametrize("op", RANDOM)
def test_random_numbers_are_replayed(way: str, op: str) -> None:
    x = torch.rand(64, 65)

    def sums() -> tuple[list[float], list[int]]:
        torch.manual_seed(3)
        kept = [RANDOM[op](x) * 2 for _ in range(24)]
        return [one.double().sum().item() for one in kept], torch.get_rng_state().tolist()

    plain, measured = sums(), remat.measure(sums)
    with remat.budget(measured.fraction(0.5), policy="lru") as run:
        assert sums() == plain
    assert run.stats().recomputed > 0


@pytest.mark.parametrize("op", ["bernoulli", "bernoulli of memory that was written", "normal", "dropout", "uniform"])
@needed
@needs(REPLAYS)
def test_replays_of_random_ops_enter_no_python(native: None, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    entered: list[Any] = []
    for name in ("replay_random", "view"):
        function = getattr(eager, name)
        monkeypatch.setattr(eager, name, lambda *args, _f=function: entered.append(args) or _f(*args))
    x = torch.rand(64, 65)

    def sums(steps: int) -> tuple[list[float], list[int]]:
        torch.manual_seed(3)
        kept = [RANDOM[op](x) * 2 for _ in range(steps)]
        return [one.double().sum().item() for one in kept], torch.get_rng_state().tolist()

    plain, measured = sums(48), remat.measure(lambda: sums(48))
    with remat.budget("1GiB", policy="lru") as run:
        for _ in range(3):
            sums(8)
        run.set_budget(measured.fraction(0.5))
        before = run.stats().recomputed
        entered.clear()
        assert sums(48) == plain
        assert run.stats().recomputed > before + 24
        assert entered == []


def test_blank_memory_that_is_used_otherwise_keeps_what_was_written(way: str) -> None:
    def fill() -> list[float]:
        kept = []
        for step in range(24):
            blank = torch.empty(64, 64)
            blank[:32].fill_(step)
            blank[32:].copy_(blank[:32] + 1)
            small = torch.empty(4).fill_(step)
            kept.append(blank * 2 + small.sum())
        return [one.sum().item() for one in kept]

    plain = fill()
    with remat.budget("1GiB"):
        assert fill() == plain


def test_blank_memory_stays_when_the_op_that_fills_it_is_refused(way: str) -> None:
    with remat.budget("1GiB") as run:
        for _ in range(8):
            torch.empty(64, 64).bernoulli_(0.5)
        blank = torch.empty(64, 64)
        held = run.stats().storages
        with pytest.raises(RuntimeError, match="bernoulli_ expects p to be in"):
            blank.bernoulli_(2.0)
        assert run.stats().storages == held
        assert blank.bernoulli_(1.0).sum().item() == 64 * 64
        assert blank.fill_(3.0).sum().item() == 3 * 64 * 64


PROBES = {
    "random numbers": "random_state._BEFORE_WORDS = 28",
    "place of random numbers": "random_state._place_of = lambda generator: None",
    "default generator": "random_state._native.read_generator = lambda: bytes(2544)",
    "generators that are set": "random_state._native.write_generator = lambda address, state: None",
    "passes": "leaf_gradients._native.read_backward = lambda: True",
    "nodes": "leaf_gradients._native.read_node = lambda: None",
    "node": "leaf_gradients._native.register_autograd = lambda cpu: exec('raise RuntimeError')",
}

STEP = """
import remat, torch, warnings
from remat._torch_internals.eager import leaf_gradients, random_state
warnings.simplefilter("ignore")
{probe}

def trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, losses = torch.randn(256, 16), []
    for _ in range(12):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        counts.append(run.stats().through_python if run else 0)
    return losses, torch.rand(3).tolist()

run, counts = None, []
plain = trained()
measured = remat.measure(trained)
for fraction in (0.8, 2.0):
    with remat.budget(measured.fraction(fraction)) as run:
        assert trained() == plain
    assert run.stats().dispatch == "native"
print(counts[-1] - counts[-3])
"""


@pytest.mark.parametrize("probe", some([None, *PROBES]))
@needed
def test_a_probe_that_fails_leaves_what_it_is_for_to_python(probe: str | None) -> None:
    """Each in a process of its own: what was probed is known for as long as the process lives."""
    done = ran_warm(["env", "REMAT_DISPATCH=native", *PYTHON, "-c", STEP.format(probe=PROBES.get(probe or "", ""))])
    assert done.code == 0, done.err
    assert (int(done.out) > 0) is (probe is not None and "random" in PROBES[probe])


@needed
@needs(REPLAYS)
def test_values_that_are_written_over_are_copied_without_python(native: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan runs ops of the cell that write in place again, and keeps the values before."""
    copied: list[int] = []
    clone = torch.UntypedStorage.clone
    monkeypatch.setattr(torch.UntypedStorage, "clone", lambda self: copied.append(self.nbytes()) or clone(self))
    torch.set_num_threads(1)
    cell, inputs = nn.GRUCell(16, 64), torch.randn(24, 64, 16)

    def step() -> None:
        state = torch.zeros(64, 64)
        for x in inputs:
            state = cell(x, state)
        state.square().mean().backward()
        cell.zero_grad()

    step()
    span = remat.measure(step)
    with remat.budget(span.base + (span.peak - span.base) // 2, plan="auto", costs="bytes") as run:
        list(until_planned(run, step))
        for _ in range(5):
            step()
        plan = planned(run)
    assert plan.steps >= 5
    assert len(copied) < plan.steps, "the first replays of a form go through Python"
