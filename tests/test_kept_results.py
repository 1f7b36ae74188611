"""Plans keep results that a replay reads after the program let go of them: the bits stay, and so does the budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import remat
import torch
from bits import bits, differences
from native import WATCHING, needed, needs
from process import REMAT, ran
from repeated_steps import Trainer, budget_of, planned, until_planned
from torch import Tensor, nn
from true_peak import true_peak

pytestmark = [needed, needs(WATCHING)]


@pytest.fixture(autouse=True)
def natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Python nothing is kept."""
    monkeypatch.setenv("REMAT_DISPATCH", "native")


class OfFeatures(Trainer):
    """A network of layers that autograd keeps, each made from features that are small, dear and let go of at once."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = [torch.randn(64, 256) / 8, torch.randn(256, 256) / 16]
        self.levels = nn.ParameterList(torch.randn(1, 512) for _ in range(10))
        self.optimizer = torch.optim.SGD(self.levels, 0.01)

    def forward(self, x: Tensor) -> Tensor:
        loss = x.new_zeros(())
        for level in self.levels:
            with torch.no_grad():
                features = (x @ self.frozen[0]).tanh() @ self.frozen[1]
                features = features.tanh().mean(1, keepdim=True)
            loss = loss + (features + level).exp().mean()
        return loss

    def result(self) -> list[object]:
        return [self.losses, list(self.levels), torch.get_rng_state()]


def kept_in(file: Path) -> int:
    return sum(len(step.get("kept", [])) for step in json.loads(file.read_text())["steps"])


def nothing(trainer: Trainer) -> None:
    """No departure."""


def smaller_batch(trainer: Trainer) -> None:
    trainer.train(rows=96)


def exception_amid_a_step(trainer: Trainer) -> None:
    loss = trainer.forward(torch.randn(256, 64))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        loss + trainer.forward(torch.randn(256, 63))


def backward_twice(trainer: Trainer) -> None:
    loss = trainer.forward(torch.randn(256, 64))
    loss.backward(retain_graph=True)
    loss.backward()
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


@pytest.mark.parametrize("departure", [nothing, smaller_batch, exception_amid_a_step, backward_twice])
def test_bits_and_bytes_stay_where_results_are_kept(departure: Callable[[Trainer], None], tmp_path: Path) -> None:
    budget, plan = budget_of(0.5, OfFeatures), tmp_path / "plan.json"
    with true_peak() as peak:
        trainer = OfFeatures()
        with remat.budget(budget, plan="auto", plan_out=plan, costs="bytes") as run:
            steps = sum(2 for _ in until_planned(run, trainer.train))
            before = planned(run)
            for _ in range(2):
                departure(trainer)
                for _ in range(4):
                    trainer.train()
            after = planned(run)
            found = bits(trainer.result())
    plain = OfFeatures()
    for _ in range(steps):
        plain.train()
    for _ in range(2):
        departure(plain)
        for _ in range(4):
            plain.train()
    assert not differences(bits(plain.result()), found)
    assert kept_in(plan) > 0
    assert after.steps >= before.steps + 6 and after.given_up == 0
    assert after.overhead == pytest.approx(after.planned_overhead, rel=0.1)
    assert run.stats().peak <= budget
    assert peak.highest - peak.base <= budget


def test_kept_results_go_with_their_records(tmp_path: Path) -> None:
    trainer = OfFeatures()
    with remat.budget(budget_of(0.5, OfFeatures), plan="auto", plan_out=tmp_path / "plan.json", costs="bytes") as run:
        list(until_planned(run, trainer.train))
        left = []
        for _ in range(4):
            trainer.train()
            trainer.losses.clear()
            stats = run.stats()
            left.append((stats.storages, stats.records, stats.used))
    assert left[3] == left[2]
    assert kept_in(tmp_path / "plan.json") > 0


def test_less_is_replayed_where_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Python none are: a storage goes with the last reference to it."""
    budget, replayed = budget_of(0.5, OfFeatures), {}
    for way in ("native", "python"):
        monkeypatch.setenv("REMAT_DISPATCH", way)
        plan, trainer = tmp_path / f"{way}.json", OfFeatures()
        with remat.budget(budget, plan="auto", plan_out=plan, costs="bytes") as run:
            for _ in range(14):
                trainer.train()
                planned(run)
            before = run.stats().recomputed
            for _ in range(4):
                trainer.train()
            replayed[way] = run.stats().recomputed - before
        assert (kept_in(plan) > 0) == (way == "native")
    assert 0 < replayed["native"] < 0.5 * replayed["python"]
    given, trainer = tmp_path / "native.json", OfFeatures()
    with pytest.raises(ValueError, match=r"keeps results .* through Python"):
        remat.budget(budget, plan=given, costs="bytes").__enter__()
    monkeypatch.setenv("REMAT_DISPATCH", "native")
    with remat.budget(budget, plan=given, costs="bytes") as run:
        for _ in range(6):
            trainer.train()
    assert planned(run).steps >= 3


def test_kept_plans_are_for_runs_that_can_keep_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path))
    budget = budget_of(0.5, OfFeatures)
    loaded = []
    for way in ("native", "python", "native"):
        monkeypatch.setenv("REMAT_DISPATCH", way)
        trainer = OfFeatures()
        with remat.budget(budget, plan="auto", costs="bytes") as run:
            if not planned(run).loaded:
                list(until_planned(run, trainer.train))
            loaded.append(planned(run).loaded)
    assert loaded == [0, 0, 1]


def test_a_simulated_run_keeps_the_same_results(tmp_path: Path) -> None:
    trainer, trace = OfFeatures(), tmp_path / "run.trace"
    with remat.budget(budget_of(0.5, OfFeatures), plan="auto", costs="bytes", trace=trace) as run:
        list(until_planned(run, trainer.train))
        for _ in range(4):
            trainer.train()
        stats = run.stats()
    assert stats.plan is not None and stats.plan.steps >= 4
    ended = ran([*REMAT, "simulate", "--adopted", "--policy", "dtr-anc", "--budget", str(stats.peak), "--json", trace])
    told = json.loads(ended.out)
    assert (told["evictions"], told["rematerializations"]) == (stats.evictions, stats.recomputed)
