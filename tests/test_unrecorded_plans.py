"""Ops of planned steps that leave no record, as the plan has no use for one: bits, bytes and decisions stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy
import pytest
import remat
import torch
from bits import bits, differences
from native import REASON
from repeated_steps import Trainer, budget_of, planned, until_planned
from torch import Tensor, nn
from true_peak import room, true_peak

pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON)), pytest.mark.usefixtures("native")]


class Interrupted(Trainer):
    """A trainer whose backward passes may be ended by an error, or met by ops of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.error = False
        self.more: list[Tensor] = []
        self.model[4][0].register_full_backward_hook(self.meet)

    def meet(self, *_: object) -> None:
        if self.error:
            torch.ones(3) @ torch.ones(4)

    def train_and_compute_more(self) -> None:
        """Between the backward pass and the update, ops that no step before had."""
        self.forward(torch.randn(256, 64)).backward()
        gradients = [parameter.grad.clone() for parameter in self.model.parameters() if parameter.grad is not None]
        self.more.append(torch.stack([gradient.tanh().cumsum(0).sum() for gradient in gradients]))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def result(self) -> list[object]:
        return [*super().result(), self.more]


@pytest.mark.parametrize("record", ["1024", "always"])
@pytest.mark.parametrize("fraction", [0.6, 0.45])
def test_most_ops_of_a_planned_step_leave_no_record(
    fraction: float, record: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = budget_of(fraction)
    monkeypatch.setenv("REMAT_RECORD", record)
    trainer = Trainer()
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        steps = sum(2 for _ in until_planned(run, trainer.train))
        trainer.train()  # the forms of its ops are noted
        trainer.train()
        before = run.stats()
        for _ in range(6):
            trainer.train()
        after = run.stats()
        found = bits(trainer.result())
    assert before.plan is not None and after.plan is not None
    assert after.plan.steps == before.plan.steps + 6
    assert after.peak <= budget
    without = (after.plan.unrecorded - before.plan.unrecorded) / (after.plan.ops - before.plan.ops)
    assert without == 0 if record == "always" else without > 0.5
    unwatched = after.plan.transient - before.plan.transient
    assert unwatched == 0 if record == "always" else unwatched > 6 * 100
    # What is recomputed is what the plan recomputes.
    assert after.plan.overhead == pytest.approx(after.plan.planned_overhead, rel=0.01)
    assert after.recomputed > before.recomputed
    plain = Trainer()
    for _ in range(steps + 8):
        plain.train()
    assert not differences(bits(plain.result()), found)


class WithLargeWeights(Trainer):
    """Its first gradients take more than what the other results without records leave of their part of the budget: one
    that does so alone, or several that do so together."""

    optimizer: torch.optim.Optimizer

    def __init__(self, heads: list[int]) -> None:
        super().__init__()
        self.head = nn.Sequential(*(nn.Linear(*sizes) for sizes in pairwise([64, *heads])))
        self.optimizer = torch.optim.SGD([*self.model.parameters(), *self.head.parameters()], 1e-3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.model:
            x = x + block(x)
        return self.head(x.mean(0)).square().mean() + x.square().mean()


@pytest.mark.parametrize("heads", [[1 << 14], [512] * 12])
def test_gradients_of_leaves_end_no_plan(heads: list[int]) -> None:
    trainer = WithLargeWeights(heads)
    trainer.train(2048)
    span = remat.measure(lambda: trainer.train(2048))
    budget = span.base + (span.peak - span.base) // 2
    trainer = WithLargeWeights(heads)
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        list(until_planned(run, lambda: trainer.train(2048)))
        for _ in range(3):
            trainer.train(2048)
        before = planned(run)
        for _ in range(4):
            trainer.train(2048)
        after = planned(run)
    assert (after.steps, after.departures) == (before.steps + 4, before.departures)
    assert after.unrecorded - before.unrecorded > (after.ops - before.ops) // 2
    assert after.overhead == pytest.approx(after.planned_overhead, rel=0.01)


@pytest.mark.parametrize("way", ["error", "other ops"])
def test_a_step_that_goes_on_otherwise_is_met(way: str) -> None:
    """The program leaves the plan amid ops that left no record, and comes back to it."""
    budget = budget_of(0.6)

    def depart(trainer: Interrupted) -> None:
        if way == "other ops":
            trainer.train_and_compute_more()
            return
        trainer.error = True
        with pytest.raises(RuntimeError, match="inconsistent tensor size"):
            trainer.train()
        trainer.error = False
        trainer.optimizer.zero_grad()

    trainer = Interrupted()
    with true_peak() as peak, remat.budget(budget, plan="auto", costs="bytes") as run:
        steps = sum(2 for _ in until_planned(run, trainer.train))
        for _ in range(4):
            trainer.train()
        before = planned(run)
        for _ in range(2):
            depart(trainer)
            for _ in range(4):
                trainer.train()
        after = planned(run)
        found = bits(trainer.result())
    assert before.unrecorded > 0
    assert after.departures > before.departures
    assert after.unrecorded > before.unrecorded + 2 * before.ops // (before.steps + 1)
    assert peak.highest - peak.base <= budget
    plain = Interrupted()
    for _ in range(steps + 4):
        plain.train()
    for _ in range(2):
        depart(plain)
        for _ in range(4):
            plain.train()
    assert not differences(bits(plain.result()), found)


def test_results_without_records_are_there_for_all_that_asks() -> None:
    """Views, values read by Python, and in-place writes of what left no record."""
    budget = budget_of(0.6)

    def train(trainer: Trainer, seen: list[object]) -> None:
        trainer.forward(torch.randn(256, 64)).backward()
        first = trainer.model[0][0].weight.grad
        assert first is not None
        seen.append((first.view(-1)[:4].tolist(), first.t().contiguous().sum().item()))
        first.mul_(0.5)
        first[0].zero_()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()

    trainer = Trainer()
    seen: list[object] = []
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        steps = sum(2 for _ in until_planned(run, lambda: train(trainer, seen)))
        for _ in range(6):
            train(trainer, seen)
        assert planned(run).unrecorded > 0
    plain = Trainer()
    expected: list[object] = []
    for _ in range(steps + 6):
        train(plain, expected)
    assert seen == expected
    assert not differences(bits(plain.result()), bits(trainer.result()))


class Chain:
    """Layers whose results are all read again, the last first, by ops of the same forms."""

    ROWS, COLUMNS, LAYERS = 256, 64, 24
    #: Of each result.
    BYTES = ROWS * COLUMNS * 4

    def __init__(self, more: int = 0) -> None:
        torch.manual_seed(5)
        #: Results of each layer that nothing reads.
        self.more = more
        self.weights = torch.randn(self.LAYERS, self.COLUMNS, self.COLUMNS) / 8
        self.x = torch.randn(self.ROWS, self.COLUMNS)
        self.seen: list[float] = []
        self.ballast: torch.Tensor | None = None

    def step(self, order: range = range(LAYERS - 1, -1, -1), overwrites: int = 0, holds: int = 0) -> None:
        """The ops stay the same with another order of reading, where the first of them overwrite layers that are read
        later, and where some of their results are held to the end.
        """
        hidden, kept, held = self.x, [], []
        for number, weight in enumerate(self.weights):
            hidden = (hidden @ weight).tanh()
            kept.append(hidden)
            spare = hidden * 2.0
            unread = [(spare + 1.0).cos() for _ in range(self.more)]
            (hidden if number < overwrites else spare).mul_(0.5)
            held += [spare] * (number < holds)
        del hidden, spare, unread
        total = torch.zeros(self.ROWS, self.COLUMNS)
        for layer in order:
            total = total + kept[layer].sin() * 3.0
        self.seen.append(total.sum().item())

    def step_in_less_room(self) -> None:
        """A step beside memory of three layers that no plan knows of."""
        self.ballast = torch.ones(3 * self.BYTES // 4)
        self.step()
        self.ballast = None


def chained(step: str) -> tuple[Chain, Callable[[Chain], None]]:
    """A program, and a step of it that has the ops of the others on other inputs."""
    chain = Chain(more=1 if step == "finds less room" else 0)
    steps: dict[str, Callable[[Chain], None]] = {
        "reads what is evicted": lambda chain: chain.step(order=range(chain.LAYERS)),
        "overwrites what is replayed": lambda chain: chain.step(overwrites=9),
        "holds more": lambda chain: chain.step(holds=9),
        "finds less room": Chain.step_in_less_room,
    }
    return chain, steps[step]


def test_no_more_is_there_without_records_than_the_plan_says(tmp_path: Path) -> None:
    file, told = tmp_path / "planned.json", tmp_path / "told.json"
    chain = Chain()
    budget = room((chain.LAYERS - 3) * chain.BYTES // 2)
    with remat.budget(budget, plan_out=file, costs="bytes") as run:
        list(until_planned(run, chain.step))
    plans = json.loads(file.read_text())
    (most,) = [step["unrecorded_bytes"] for step in plans["steps"]]
    assert 0 < most <= budget // 4

    def unrecorded(most: int | None) -> float:
        """The part of five planned steps' ops that leave no record, where so many bytes may be there without one."""
        for step in plans["steps"]:
            step["unrecorded_bytes"] = most
        told.write_text(json.dumps(plans))
        with remat.budget(budget, plan=told, costs="bytes") as run:
            for _ in range(6):
                chain.step()
            before = planned(run)
            for _ in range(5):
                chain.step()
            after = planned(run)
        assert after.steps == before.steps + 5
        return (after.unrecorded - before.unrecorded) / (after.ops - before.ops)

    assert unrecorded(most) == unrecorded(None) > 0.4
    # Once the rest of three steps in a row was recorded, all steps are.
    assert unrecorded(0) == 0


class Looking(Trainer):
    """A trainer that looks its losses up in tables, and at what it computes there, if it is to."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.arange(256)
        self.table = torch.randn(256, 256)
        #: Bytes of what is looked up, by numpy and by an op that has a record where records are made.
        self.looks = False
        self.seen: list[object] = []

    def train(self, rows: int = 256) -> None:
        loss = self.forward(self.draw(rows))
        found = self.table.index_select(0, self.rows).mul(loss.detach())
        if self.looks:
            self.seen.append((found.numpy().sum().item(), found.cumsum(0)[-1, -1].item()))
        self.losses.append(found.add_(1.0).sum())
        del found
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fail(self) -> None:
        """A step that an op ends of which nobody takes note otherwise."""
        self.rows[3] = 999
        with pytest.raises(IndexError, match="out of range"):
            self.train()
        self.rows[3] = 3
        self.optimizer.zero_grad()

    def result(self) -> list[object]:
        return [*super().result(), self.seen]


@pytest.mark.parametrize("way", ["are read", "raise"])
def test_transient_results_may_be_asked_for_all_the_same(way: str) -> None:
    def depart(trainer: Looking) -> None:
        if way == "raise":
            return trainer.fail()
        trainer.looks = True
        trainer.train()
        trainer.looks = False

    def train(trainer: Looking, steps: int = 4) -> None:
        for _ in range(steps):
            trainer.train()

    budget = budget_of(0.6, Looking)
    trainer = Looking()
    with true_peak() as peak, remat.budget(budget, plan="auto", costs="bytes") as run:
        steps = sum(2 for _ in until_planned(run, trainer.train))
        train(trainer)
        before = planned(run)
        train(trainer)
        usual = planned(run).transient - before.transient
        for _ in range(2):
            depart(trainer)
            train(trainer)
        amid = planned(run)
        train(trainer)
        after = planned(run)
        found = bits(trainer.result())
    assert usual > 4 * 100
    assert after.transient - amid.transient == usual
    assert amid.departures >= before.departures + 2
    assert peak.highest - peak.base <= budget
    plain = Looking()
    train(plain, steps + 8)
    for _ in range(2):
        depart(plain)
        train(plain)
    train(plain)
    assert not differences(bits(plain.result()), found)


def test_ops_after_one_that_waits_for_a_replay_leave_no_record() -> None:
    chain, other = chained("reads what is evicted")
    with remat.budget(room((chain.LAYERS - 3) * chain.BYTES // 2), plan="auto", costs="bytes") as run:
        list(until_planned(run, chain.step))
        for _ in range(4):
            chain.step()
        before = run.stats()
        other(chain)
        after = run.stats()
    assert before.plan is not None and after.plan is not None
    assert after.plan.departures == before.plan.departures
    # Most layers were evicted as the step reads them.
    assert after.recomputed > before.recomputed + chain.LAYERS
    assert after.plan.unrecorded > before.plan.unrecorded + 2 * chain.LAYERS


@pytest.mark.parametrize(
    "other", ["reads what is evicted", "overwrites what is replayed", "holds more", "finds less room"]
)
def test_ops_of_a_planned_step_may_come_on_other_inputs(other: str) -> None:
    """How inputs are wired is not compared where no record is left, so each op looks whether it may do without."""
    before, amid = departed(other)
    for _ in range(4):
        # Plans of the same cost differ in the ops that leave no record: before those held more there may be none.
        if amid.unrecorded > before.unrecorded and amid.transient > before.transient:
            break
        before, amid = departed(other)
    assert amid.unrecorded > before.unrecorded > 0
    assert amid.transient > before.transient > 0


def departed(other: str) -> tuple[remat.PlanStats, remat.PlanStats]:
    """The plan as it is before and after a step on other inputs; the budget and the bits are looked after."""
    chain, step = chained(other)
    more = (chain.LAYERS - 3) * chain.BYTES // 2
    budget = room(more)
    with true_peak() as peak, remat.budget(budget, plan="auto", costs="bytes") as run:
        steps = sum(2 for _ in until_planned(run, chain.step))
        for _ in range(4):
            chain.step()
        before = planned(run)
        step(chain)
        amid = planned(run)
        for _ in range(2):
            chain.step()
        assert run.stats().peak <= budget
    assert peak.highest - peak.base <= more
    plain, step = chained(other)
    for _ in range(steps + 4):
        plain.step()
    step(plain)
    for _ in range(2):
        plain.step()
    assert chain.seen == plain.seen
    return before, amid


class Peeking(Trainer):
    """At the end of each forward pass an op makes what nobody holds."""

    def __init__(self) -> None:
        super().__init__()
        self.peeked = torch.ones(1000)

    def forward(self, x: Tensor) -> Tensor:
        loss = super().forward(x)
        with torch.no_grad():
            self.peeked * 2.0
        return loss


def test_a_transient_op_that_comes_on_more_finds_room_first() -> None:
    trainer, more = Peeking(), torch.ones(1 << 18)
    budget = budget_of(0.6, Peeking)
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        list(until_planned(run, trainer.train))
        for _ in range(8):
            trainer.train()
        assert planned(run).transient > 0
        assert run.stats().peak + more.nbytes > budget
        trainer.peeked = more
        trainer.train()
    assert run.stats().peak <= budget


class WithNews(Trainer):
    """Amid each step an op reads an early layer, and memory that was made out of the session's sight."""

    BYTES = 256 * 64 * 4

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)
        self.losses: list[Tensor] = []
        self.x = torch.randn(256, 64)
        #: Bytes of that memory, in those of a layer.
        self.news = 1.0

    def forward(self, x: Tensor) -> Tensor:
        layers = []
        for number, block in enumerate(self.model):
            x = block(x)
            layers.append(x.detach())
            if number == 8:
                self.latest = torch.frombuffer(
                    bytearray(b"news" * int(self.news * self.BYTES / 4)), dtype=torch.float32
                )
                with torch.no_grad():
                    self.losses.append(torch.dot(layers[1].view(-1), self.latest[: 256 * 64]))
        return x.square().mean()

    def draw(self, rows: int) -> Tensor:
        return self.x

    def train_on_more(self) -> None:
        for more in range(5, 9):
            self.news = more + 0.5
            self.train()
            self.news = 1.0
            self.train()


def test_room_for_one_input_is_not_made_by_dropping_another() -> None:
    budget = budget_of(0.8, WithNews)
    trainer = WithNews()
    with remat.budget(budget, plan="auto") as run:
        steps = sum(2 for _ in until_planned(run, trainer.train))
        for _ in range(8):
            trainer.train()
        before = planned(run)
        trainer.train_on_more()
    assert before.unrecorded > 0
    plain = WithNews()
    for _ in range(steps + 8):
        plain.train()
    plain.train_on_more()
    assert not differences(bits(plain.result()), bits(trainer.result()))


class Drawing(Trainer):
    """A trainer whose batches come from a generator each, with two branches that meet: each form comes once a step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 96), nn.Linear(64, 96)
        self.optimizer.add_param_group({"params": [*self.first.parameters(), *self.second.parameters()]})

    def forward(self, x: Tensor) -> Tensor:
        loss = super().forward(x)
        y = x * self.model[0][0].weight[0]
        return loss + (self.first(y).tanh() * self.second(y).sigmoid()).square().mean()

    def draw(self, rows: int) -> Tensor:
        return torch.randn(rows, 64, generator=torch.Generator().manual_seed(len(self.losses)))


def test_the_second_step_is_the_one_that_repeats(tmp_path: Path) -> None:
    """Nothing of it differs from those after it: autograd adds in place, and sizes are known whoever draws."""
    budget = budget_of(0.6, Drawing)
    trainer, trace = Drawing(), tmp_path / "trace"
    with remat.budget(budget, plan="auto", costs="bytes", trace=str(trace)) as run:
        steps = sum(2 for _ in until_planned(run, trainer.train))
        for _ in range(4):
            trainer.train()
        plan = planned(run)
    found, plain = bits(trainer.result()), Drawing()
    for _ in range(steps + 4):
        plain.train()
    assert not differences(bits(plain.result()), found)
    assert (plan.found, plan.departures) == (1, 0)
    assert plan.steps >= 4
    ops = [row["op"]["n"] for row in map(json.loads, trace.read_text().splitlines()) if "op" in row]
    starts = [at for at, name in enumerate(ops) if name == "aten.randn.generator"]
    each = [ops[start:end] for start, end in pairwise(starts)]
    assert len(each) == steps + 3
    assert all(names == each[1] for names in each[2:])
    assert each[1].count("aten.add_.Tensor") > each[0].count("aten.add_.Tensor")


def test_a_step_that_evicts_nothing_is_planned_too() -> None:
    """Within a budget a quarter above the peak. What takes more is met all the same: a larger batch, and then the steps
    beside memory that stays, which are planned anew."""
    budget = budget_of(1.25)
    trainer, rows = Trainer(), []

    def train(batch: int = 256) -> None:
        rows.append(batch)
        trainer.train(batch)

    with true_peak() as peak, remat.budget(budget, plan="auto", costs="bytes") as run:
        list(until_planned(run, train))
        for _ in range(2):
            train()
        before = run.stats()
        for _ in range(4):
            train()
        after = run.stats()
        train(512)
        larger = run.stats()
        held = torch.from_numpy(numpy.ones(budget * 2 // 5, numpy.uint8))
        while planned(run).adopted == 1 and len(rows) < 60:
            train()
        last = planned(run)
        found = bits(trainer.result())
    assert before.plan is not None and after.plan is not None
    assert (after.evictions, after.plan.steps) == (0, before.plan.steps + 4)
    assert after.plan.unrecorded - before.plan.unrecorded > (after.plan.ops - before.plan.ops) // 2
    assert larger.recomputed > 0
    assert (last.adopted, last.given_up) == (2, 1)
    assert peak.highest - peak.base <= budget
    assert held.all()
    plain = Trainer()
    for batch in rows:
        plain.train(batch)
    assert not differences(bits(plain.result()), found)
