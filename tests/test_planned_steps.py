"""Steps that repeat are planned while they run: the bits stay, the budget holds, and what comes in between is met."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import remat
import torch
from bits import bits, differences
from process import PYTHON, REMAT, program, ran_warm
from remat._torch_internals import eager
from repeated_steps import LOOP, Trainer, budget_of, planned, until_planned
from sample import some
from torch import Tensor, nn
from torch.autograd import forward_ad


def smaller_batch(trainer: Trainer) -> None:
    trainer.train(rows=96)


def larger_batch(trainer: Trainer) -> None:
    trainer.train(rows=320)


def evaluation(trainer: Trainer) -> None:
    trainer.model.eval()
    with torch.no_grad():
        for _ in range(3):
            trainer.losses.append(trainer.forward(torch.randn(256, 64)))
    trainer.model.train()


def clipping(trainer: Trainer) -> None:
    trainer.forward(torch.randn(256, 64)).backward()
    trainer.losses.append(torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.1))
    trainer.optimizer.step()
    trainer.optimizer.zero_grad()


def skipped_update(trainer: Trainer) -> None:
    trainer.forward(torch.randn(256, 64)).backward()
    trainer.optimizer.zero_grad()


def exception_amid_a_step(trainer: Trainer) -> None:
    x = torch.randn(256, 64)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        for block in trainer.model[:5]:
            x = x + block(x)
        trainer.model[0](x[:, :3])


def nothing(trainer: Trainer) -> None:
    """No departure."""


DEPARTURES = (
    evaluation,
    exception_amid_a_step,
    nothing,
    smaller_batch,
    larger_batch,
    clipping,
    skipped_update,
)


def trained(trainer: Trainer, departure: Callable[[Trainer], None], steps: int) -> None:
    for _ in range(2):
        departure(trainer)
        for _ in range(steps):
            trainer.train()


@pytest.mark.parametrize("departure", some(DEPARTURES), ids=lambda departure: departure.__name__)
def test_bits_and_bytes_stay_whatever_comes_in_between(departure: Callable[[Trainer], None]) -> None:
    budget = budget_of(0.6)
    trainer = Trainer()
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        warm = sum(2 for _ in until_planned(run, trainer.train))
        trained(trainer, departure, 4)
        found = bits(trainer.result())
    stats = run.stats()
    plain = Trainer()
    for _ in range(warm):
        plain.train()
    trained(plain, departure, 4)
    assert not differences(bits(plain.result()), found)
    assert stats.plan is not None and stats.plan.adopted >= 1 and stats.plan.given_up == 0
    # The last step before something else, and the first after it, may not be whole.
    assert stats.plan.steps >= 5
    assert stats.plan.overhead == pytest.approx(stats.plan.planned_overhead, rel=0.1)
    assert stats.peak <= budget


class OnBatchesOfSomeLengths(Trainer):
    """A network that trains on batches of three lengths, in no order."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths = random.Random(5)

    def train(self, rows: int = 256) -> None:
        super().train(self.lengths.choice([rows // 2, rows * 3 // 4, rows]))


def test_batches_of_some_lengths_have_a_plan_each() -> None:
    budget = budget_of(0.6)
    trainer = OnBatchesOfSomeLengths()
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        steps = 0
        while planned(run).adopted < 3:
            trainer.train()
            steps += 1
            assert steps < 200
        before = planned(run).steps
        for _ in range(12):
            trainer.train()
        found = bits(trainer.result())
    stats = run.stats()
    plain = OnBatchesOfSomeLengths()
    for _ in range(steps + 12):
        plain.train()
    assert not differences(bits(plain.result()), found)
    assert stats.plan is not None
    assert stats.plan.steps - before == 12
    assert stats.plan.overhead is not None and stats.plan.overhead > 0
    assert stats.peak <= budget


def test_an_op_may_train_something_of_its_own() -> None:
    """No step of the program begins amid an op."""
    inner = nn.Parameter(torch.ones(16))
    optimizer = torch.optim.SGD([inner], 0.5)

    @torch.library.custom_op("rematcheck::trains", mutates_args=())
    def trains(x: Tensor) -> Tensor:
        inner.grad = torch.ones(16)
        optimizer.step()
        return x + inner.detach()[0]

    with remat.budget("1MiB"):
        assert trains(torch.zeros(4)).tolist() == [0.5] * 4
        assert trains(torch.zeros(4)).tolist() == [0.0] * 4


class OnOneBatch(Trainer):
    """A network that trains on one batch, and takes the most bytes as its optimizer steps."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.ModuleList(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, foreach=False)
        self.batch = torch.randn(256, 512)

    def draw(self, rows: int) -> Tensor:
        return self.batch[:rows]


def test_a_step_is_planned_where_only_the_engine_can_evict_what_was_there_before_it() -> None:
    def train(steps: int) -> list[object]:
        trainer = OnOneBatch()
        for _ in range(steps):
            trainer.train()
        return bits(trainer.result())

    budget = remat.measure(lambda: train(3)).peak - (1 << 18)  # half of the batch
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        trainer = OnOneBatch()
        steps = sum(2 for _ in until_planned(run, trainer.train))
        before = planned(run)
        for _ in range(6):
            trainer.train()
        after = planned(run)
        found = bits(trainer.result())
    assert (after.hopeless, after.given_up, after.steps) == (0, 0, before.steps + 6)
    assert run.stats().peak <= budget
    assert not differences(train(steps + 6), found)


def test_a_step_is_planned_though_layers_that_leave_nothing_behind_repeat_first() -> None:
    """Forward-mode differentiation keeps no activations, so that each layer comes as the step would, once more."""
    weights, biases = ([torch.randn(*shape) * 0.1 for _ in range(6)] for shape in [(64, 64), (64,)])
    tangents = [torch.randn_like(weight) for weight in weights], [torch.randn_like(bias) for bias in biases]
    batch = torch.randn(256, 64)

    def step() -> float:
        x = y = batch * 1.5
        with forward_ad.dual_level():
            dual = [forward_ad.make_dual(*pair) for pair in zip(weights, tangents[0], strict=True)]
            shifts = [forward_ad.make_dual(*pair) for pair in zip(biases, tangents[1], strict=True)]
            for weight, bias in zip(dual, shifts, strict=True):
                y = nn.functional.linear(y, weight, bias).tanh()
            loss, _ = forward_ad.unpack_dual((y - x).square().mean())
        return loss.item()

    whole = step()
    budget = remat.measure(step).fraction(0.7)
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        losses = [step() for _ in range(30)]
        adopted = planned(run).adopted
        losses += [step() for _ in range(30)]
    stats = run.stats()
    assert adopted and stats.plan is not None
    # A step, and not a layer of which there are six in each.
    assert 20 <= stats.plan.steps <= 60
    assert stats.peak <= budget and losses == [whole] * 60


@pytest.mark.parametrize("way", ["native", "python"])
def test_planned_steps_replay_no_more_than_online(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "native" and (reason := eager.prepare_native()):
        pytest.skip(reason)
    monkeypatch.setenv("REMAT_DISPATCH", way)
    script = program(
        tmp_path,
        """
        import remat, test_planned_steps as t
        budget = t.budget_of(0.45)
        trainer = t.Trainer()
        with remat.budget(budget, plan="auto", costs="bytes") as run:
            for _ in range(3):
                trainer.train()
            online = run.stats().recomputed
            trainer.train()
            online = run.stats().recomputed - online
            list(t.until_planned(run, trainer.train))
            trainer.train()
            before = run.stats()
            for _ in range(4):
                trainer.train()
            after = run.stats()
        print(online, (after.recomputed - before.recomputed) / 4, after.plan.steps - before.plan.steps)
        """,
    )
    ended = ran_warm([*PYTHON, script])
    assert ended.code == 0, ended.err
    online, again, steps = (float(word) for word in ended.out.split())
    assert steps == 4 and 0 < again <= online


@pytest.mark.parametrize("marks", [False, True])
def test_steps_that_gather_are_planned_where_the_program_marks_them(marks: bool) -> None:
    budget = budget_of(0.6)
    trainer, gathered = Trainer(), []

    def step() -> None:
        if marks:
            run.step()
        trainer.train()
        gathered.extend([torch.rand(()) for _ in range(32)])

    with remat.budget(budget, plan="auto", costs="bytes") as run:
        for _ in range(12):
            step()
            planned(run)
        found = bits([trainer.result(), gathered])
    plan = run.stats().plan
    assert plan is not None and (plan.found > 0, plan.steps > 0) == (marks, marks)
    trainer, gathered = Trainer(), []
    for _ in range(12):
        trainer.train()
        gathered.extend([torch.rand(()) for _ in range(32)])
    assert not differences(bits([trainer.result(), gathered]), found)


def test_after_its_trial_a_plan_is_followed_or_given_up() -> None:
    budget = budget_of(0.6)
    trainer = Trainer()
    steps = 0
    with remat.budget(budget) as run:

        def train() -> None:
            nonlocal steps
            trainer.train()
            steps += 1

        for _ in until_planned(run, train):
            pass
        # A trial runs three steps each way in turn. Times that move have the step planned, and tried, again.
        in_a_row, plan = 0, planned(run)
        while in_a_row < 8 and not plan.given_up and steps < 400:
            followed = plan.steps
            train()
            plan = planned(run)
            in_a_row = in_a_row + 1 if plan.steps > followed else 0
    # The clock decides which of the two.
    assert plan.given_up == 1 or in_a_row == 8
    plain = Trainer()
    for _ in range(steps):
        plain.train()
    assert not differences(bits(plain.result()), bits(trainer.result()))


def test_a_changed_budget_is_planned_anew() -> None:
    budget, smaller = budget_of(0.6), budget_of(0.45)
    trainer = Trainer()
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        list(until_planned(run, trainer.train))
        first = planned(run)
        run.set_budget(smaller)
        for _ in range(8):
            trainer.train()
        planned(run)
        trainer.train()
        plan = planned(run)
        for _ in range(3):
            trainer.train()
        last = planned(run)
    assert plan.adopted == first.adopted + 1
    assert last.steps >= plan.steps + 2
    assert plan.planned_overhead and first.planned_overhead and plan.planned_overhead > first.planned_overhead


def test_a_forked_child_goes_on_without_plans() -> None:
    trainer = Trainer()
    with remat.budget(budget_of(0.6), plan="auto") as run:
        list(until_planned(run, trainer.train))
        child = os.fork()
        if child == 0:
            try:
                # The parent's threads, which larger ops would wait for, are not here.
                torch.ones(8).add(1)
                os._exit(0 if run.stats().plan is None else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        trainer.train()


def test_a_forked_child_evicts_nothing_by_a_plan() -> None:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, with Remat or without
    trainer = Trainer()
    with remat.budget(budget_of(0.4), plan="auto", costs="bytes") as run:
        list(until_planned(run, trainer.train))
        trainer.train()
        before = planned(run)
        child = os.fork()
        if child == 0:
            try:
                now = run.stats()
                for _ in range(2):
                    trainer.train()
                then = run.stats()
                os._exit(0 if (then.evictions, then.recomputed) == (now.evictions, now.recomputed) else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        trainer.train()
        assert planned(run).steps == before.steps + 1


def test_the_command_plans_steps_of_a_script(tmp_path: Path) -> None:
    script = program(tmp_path, LOOP)
    plain = ran_warm([*PYTHON, script])
    under = ran_warm([*REMAT, "run", "--budget", "3MiB", "--plan", "auto", script])
    assert under.code == 0, under.err
    assert under.out == plain.out
    # How far the plan came in the meantime is decided by the clock.
    assert "as planned" in under.err, under.err


@pytest.mark.parametrize(
    ("settings", "plans"),
    [
        ({}, True),
        ({"policy": "dtr-anc"}, False),
        ({"policy": "dtr-anc", "plan": "auto"}, True),
        ({"costs": "bytes"}, False),
        ({"plan": "off"}, False),
    ],
)
def test_steps_are_planned_unless_the_run_asks_for_what_plans_change(settings: dict[str, str], plans: bool) -> None:
    with remat.budget("1GiB", **settings) as run:
        assert (run.stats().plan is not None) == plans


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"plan": "always"}, "plan 'always': expected 'auto', 'off' or a file of plans; there is no such file"),
        ({"plan": __file__, "pool": "arena"}, "plans of an arena are for one run"),
    ],
)
def test_ways_to_plan_that_there_are_not_are_refused(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        remat.budget("1GiB", **settings)  # type: ignore[arg-type]
