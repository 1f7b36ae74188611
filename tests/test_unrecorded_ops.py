"""Runs that need far less than their budget: ops leave no record there, bytes and bits stay the same."""

from __future__ import annotations

import gc

import pytest
import remat
import torch
from kept_chain import BYTES, chain, weight_of
from native import REASON
from torch import nn
from true_peak import true_peak

pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.usefixtures("native")]


class Training:
    """Steps with convolutions, running statistics, dropout, writes in place, and a state that lives on."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        first = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.2)]
        self.model = nn.Sequential(*first, nn.Conv2d(8, 8, 3), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=False)
        self.images, self.labels = torch.randn(8, 3, 16, 16), torch.arange(8) % 4
        self.average = torch.zeros(4)
        self.losses: list[float] = []

    def step(self) -> None:
        self.optimizer.zero_grad()
        scores = self.model(self.images)
        self.average.mul_(0.9).add_(scores.detach().mean(0), alpha=0.1)
        loss = nn.functional.cross_entropy(scores, self.labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(loss.item())

    def outcome(self) -> list[bytes]:
        """All bits, in no tensors: those would count in later runs."""
        state = [*self.model.parameters(), *self.model.buffers(), self.average, torch.tensor(self.losses)]
        return [tensor.detach().numpy().tobytes() for tensor in state]


def trained(monkeypatch: pytest.MonkeyPatch, record: str) -> tuple[list[bytes], list[remat.Stats]]:
    """Six steps within an ample budget: what they made, and the counters amid each step, its records alive."""
    monkeypatch.setenv("REMAT_RECORD", record)
    gc.collect()  # what others left behind would count
    training, amid = Training(), []
    with remat.budget("256MiB") as run:
        handle = training.model[6].register_forward_hook(lambda *_: amid.append(run.stats()))
        for _ in range(6):
            training.step()
        handle.remove()
        amid.append(run.stats())
    return training.outcome(), amid


def test_ops_leave_no_record_where_memory_is_plentiful(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Training()
    for _ in range(6):
        plain.step()
    without, sparing = trained(monkeypatch, "0")
    recorded, always = trained(monkeypatch, "always")
    assert without == plain.outcome()
    assert recorded == plain.outcome()
    assert [stats.records for stats in sparing[4:]] == [0, 0, 0]
    assert min(stats.records for stats in always[4:6]) > 5
    assert sparing[-1].ops == always[-1].ops
    # Records keep as much as the scores for longer: four numbers for each of eight examples.
    assert always[-1].peak - sparing[-1].peak == 4 * 4 * 8


@pytest.mark.parametrize("record", ["0", "always"])
def test_a_run_that_grows_stays_within_its_budget(monkeypatch: pytest.MonkeyPatch, record: str) -> None:
    """Nothing tells the long chain from the short ones before it takes more than three fifths of the budget."""
    weight = weight_of()
    expected = chain(200, weight)
    monkeypatch.setenv("REMAT_RECORD", record)
    budget = 110 * BYTES  # plain, the long chain takes nearly twice as much
    with true_peak() as peak, remat.budget(budget, policy="dtr-eq", plan="off") as run:
        for _ in range(3):
            chain(20, weight)
        short = run.stats()
        grown = chain(200, weight)
        stats = run.stats()
    assert torch.equal(grown, expected)
    assert short.evictions == 0
    assert stats.evictions > 50
    assert stats.peak > 0.9 * budget
    assert peak.highest - peak.base <= budget


def test_a_budget_that_is_lowered_between_steps_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = weight_of()
    expected = chain(100, weight)
    monkeypatch.setenv("REMAT_RECORD", "0")
    with true_peak() as peak, remat.budget("1GiB", policy="dtr-eq", plan="off") as run:
        for _ in range(3):
            assert torch.equal(chain(100, weight), expected)
        assert run.stats().evictions == 0
        run.set_budget(50 * BYTES)
        peak.restart()
        assert torch.equal(chain(100, weight), expected)
        stats = run.stats()
    assert stats.evictions > 50
    assert peak.highest - peak.base <= 50 * BYTES


def test_memory_made_out_of_sight_counts_before_an_op_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_RECORD", "0")

    def doubled(seen: int) -> torch.Tensor:
        """The same op on the same few numbers, which lie in memory of so many times `BYTES`."""
        numbers = torch.frombuffer(bytearray(seen * BYTES), dtype=torch.float32)
        return numbers[:16].view(16, 1).expand(16, 20 * BYTES // 64) * 2.0

    with remat.budget(100 * BYTES, plan="off") as run:
        for _ in range(8):
            doubled(1)
        assert run.stats().peak < 30 * BYTES
        with pytest.raises(remat.BudgetError):
            doubled(90)
        assert run.stats().peak <= 100 * BYTES


def test_what_left_no_record_counts_when_the_budget_is_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_RECORD", "0")
    few = torch.ones(BYTES // 4)
    with remat.budget("1GiB", plan="off") as run:
        for _ in range(30):
            few.repeat(30) * 2.0
        held = few.repeat(30) * 2.0
        assert run.stats().records == 0
        with pytest.raises(remat.BudgetError):
            run.set_budget(20 * BYTES)
        assert held.sum().item() == 60 * BYTES // 4


def test_what_is_recorded_is_not_recomputed_from_overwritten_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write in place leaves a record while something recorded depends on what it overwrites."""
    monkeypatch.setenv("REMAT_RECORD", "0")
    start, weight = torch.linspace(0, 1, BYTES // 4), torch.full((BYTES // 4,), 1.25)
    expected = torch.sin(start * weight)
    other = weight.clone()
    with remat.budget("1GiB", policy="lru", plan="off") as run:
        for _ in range(30):
            other.mul_(1.01)
        kept = torch.sin(start * weight)  # seen for the first time, and so recorded
        weight.mul_(1.01)
        try:
            run.set_budget(1)
        except remat.BudgetError as refused:
            run.set_budget(refused.smallest)
        run.set_budget("1GiB")
        assert torch.equal(kept, expected)


def test_the_same_run_decides_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_RECORD", "100")
    weight = weight_of()

    def counters() -> tuple[int, int, int]:
        with remat.budget(80 * BYTES, costs="bytes", plan="off") as run:
            for length in (20, 30, 20, 120, 20):
                chain(length, weight)
            stats = run.stats()
        return stats.evictions, stats.recomputed, stats.peak

    first = counters()
    assert first[0] > 0
    assert counters() == first


@pytest.mark.parametrize("record", ["never", "-1", "1e3", "9" * 19])
def test_a_wrong_choice_is_named(monkeypatch: pytest.MonkeyPatch, record: str) -> None:
    monkeypatch.setenv("REMAT_RECORD", record)
    message = rf"REMAT_RECORD='{record}': expected 'always' or a number of ops"
    with pytest.raises(ValueError, match=message), remat.budget("1GiB"):
        pass
