"""Ops that run unwatched where memory is plentiful: only what they take is counted. Bits and the bound stay."""

from __future__ import annotations

import gc
import io
import os
import threading
from pathlib import Path

import numpy
import pytest
import remat
import torch
from kept_chain import BYTES, chain, weight_of
from native import REASON
from remat._torch_internals.eager.caching import CACHING_PLATFORM
from repeated_steps import Trainer, budget_of, until_planned
from torch import nn
from true_peak import resident_bytes, true_peak

pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.skipif(not CACHING_PLATFORM, reason="torch's own allocator serves here"),
    pytest.mark.usefixtures("native", "_soon"),
]

KIB = 1 << 10


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ops run unwatched as soon as their inputs are no larger than those before."""
    monkeypatch.setenv("REMAT_RECORD", "0")
    gc.collect()


class Training:
    """Steps with convolutions, which take workspace of another kind, running statistics, dropout and a recurrence."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(2))
        self.recurrence = nn.GRU(8, 16, batch_first=True)
        self.head = nn.Linear(16, 4)
        self.parameters = [p for m in (self.features, self.recurrence, self.head) for p in m.parameters()]
        self.optimizer = torch.optim.AdamW(self.parameters)
        self.losses: list[float] = []

    def step(self, size: int = 10) -> None:
        images, labels = torch.randn(4, 3, size, size), torch.arange(4)
        self.optimizer.zero_grad()
        out, _ = self.recurrence(self.features(images).transpose(1, 2))
        loss = nn.functional.cross_entropy(self.head(out[:, -1]), labels)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def outcome(self) -> list[bytes]:
        state = [*self.parameters, *self.features.buffers(), torch.tensor(self.losses)]
        return [tensor.detach().numpy().tobytes() for tensor in state]


def test_bits_and_bytes_are_those_of_ops_that_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Training()
    for _ in range(8):
        plain.step()
    with remat.budget("256MiB"):
        Training().step()  # workspaces cannot be measured while the profiler watches for the true peak
    training = Training()
    with true_peak() as peak, remat.budget("256MiB") as run:
        start = run.stats().used
        for _ in range(8):
            training.step()
        stats = run.stats()
        assert stats.used == resident_bytes()
    assert training.outcome() == plain.outcome()
    assert stats.unwatched > 0.4 * stats.ops
    assert stats.peak == peak.highest - peak.base + start
    monkeypatch.setenv("REMAT_RECORD", "always")
    with remat.budget("256MiB") as run:
        training.step()
        assert run.stats().unwatched == 0


def test_new_shapes_go_unwatched_too() -> None:
    sizes = [16, 9, 12, 7, 15, 8, 11, 14, 10, 13]
    plain = Training()
    for size in sizes:
        plain.step(size)
    training = Training()
    with remat.budget("256MiB") as run:
        training.step(sizes[0])
        training.step(sizes[1])
        before = run.stats()
        for size in sizes[2:]:
            training.step(size)
        stats = run.stats()
    assert training.outcome() == plain.outcome()
    assert stats.unwatched - before.unwatched > 0.7 * (stats.ops - before.ops)  # the others make views
    assert stats.through_python - before.through_python < 20


def test_ops_that_python_takes_each_time_go_unwatched_too() -> None:
    """Those with a generator of their own, of which the session would keep the state."""

    def draw(seed: int) -> torch.Tensor:
        return torch.randn(8, generator=torch.Generator().manual_seed(seed)) * 2.0

    expected = [draw(seed) for seed in range(50)]
    with remat.budget("256MiB") as run:
        for seed in range(3):
            draw(seed)
        before = run.stats()
        drawn = [draw(seed) for seed in range(50)]
        stats = run.stats()
    assert all(torch.equal(one, other) for one, other in zip(drawn, expected, strict=True))
    assert stats.through_python - before.through_python < 5
    assert stats.unwatched - before.unwatched > 90


def test_a_run_that_never_forgets_goes_unwatched_once_it_is_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step leaves a result that lives on, whose op the engine would remember."""
    monkeypatch.setenv("REMAT_RECORD", "200")
    weight, kept = weight_of(), []
    with remat.budget("256MiB", plan="off") as run:
        for step in range(60):
            kept = [*kept[-2:], chain(4, weight) * 1.0]
            if step == 4:
                early = run.stats()
        stats = run.stats()
    assert early.unwatched == 0
    assert stats.unwatched > 0.4 * stats.ops
    assert all(torch.equal(result, kept[0]) for result in kept)


def test_a_larger_step_is_watched_from_its_first_op_on() -> None:
    """It would be refused if what it made first could not be dropped."""
    small, large = weight_of(), weight_of(4 * BYTES // 4)
    expected = chain(60, large)
    budget = 100 * BYTES  # the large step takes nearly five times as much
    with true_peak() as peak, remat.budget(budget, policy="dtr-eq", plan="off") as run:
        for _ in range(5):
            chain(20, small)
        before = run.stats()
        grown = chain(60, large)
        stats = run.stats()
    assert before.unwatched > 0
    assert stats.unwatched == before.unwatched
    assert torch.equal(grown, expected)
    assert stats.evictions > 20
    assert peak.highest - peak.base <= budget


def test_an_op_that_may_take_a_run_too_far_is_watched_before() -> None:
    budget = 100 * BYTES
    rows, columns = torch.ones(40, 1), torch.ones(1, BYTES // 4)  # forty times as many bytes in their sum
    with remat.budget(budget, policy="dtr-eq", plan="off") as run:
        for _ in range(5):
            rows + columns
        before = run.stats().unwatched
        sums = [rows + columns for _ in range(3)]  # the first one is not dropped any more
        assert before > 0
        assert run.stats().evictions > 0
        assert all((total == 2.0).all() for total in sums)


def test_an_op_that_exceeds_the_budget_is_refused_before_it_takes_memory() -> None:
    budget, weight = 100 * BYTES, weight_of()
    rows, columns = torch.ones(3 * KIB, 1), torch.ones(1, 1 * KIB)  # few bytes, whose sum takes 12 MiB
    with true_peak() as peak, remat.budget(budget, plan="off") as run:
        for _ in range(5):
            chain(20, weight)
            rows[:2] + columns
        before = run.stats()
        with pytest.raises(remat.BudgetError, match=r"aten\.add\.Tensor does not fit on cpu: it needs 12\.\d+ MiB"):
            rows + columns
        assert run.stats().unwatched > before.unwatched
        assert torch.equal(chain(20, weight), chain(20, weight))
    assert peak.highest - peak.base <= budget


def test_what_ran_unwatched_counts_once_ops_are_watched() -> None:
    weight = weight_of()
    with remat.budget("1GiB", plan="off") as run:
        for _ in range(4):
            chain(20, weight)
        held = [weight * float(i) for i in range(30)]
        tiny = [torch.ones(3) * float(i) for i in range(30)]
        assert run.stats().used == resident_bytes()
        with pytest.raises(remat.BudgetError):
            run.set_budget(20 * BYTES)
        run.set_budget(60 * BYTES)
        assert run.stats().used == resident_bytes()
        for tensor in held + tiny:
            tensor.add_(1.0)  # known from now on
        assert run.stats().used == resident_bytes()
        del tensor, held, tiny
        assert run.stats().used == resident_bytes()
        chain(100, weight)
        assert run.stats().evictions > 20


def test_what_only_a_pinned_tensor_was_computed_from_goes_as_unwatched_results_do() -> None:
    weight = weight_of()
    with remat.budget("1GiB", plan="off", costs="bytes") as run:
        for _ in range(4):
            chain(20, weight)
        unwatched, start = weight * 3.0, weight * 2.0
        run.set_budget(20 * BYTES)
        pinned = (start + 1.0).sin()
        gradient = chain(30, weight)
        before = run.stats()
        pinned.numpy()
        assert run.stats().recomputed == before.recomputed + 2  # the sum is back too
        del unwatched
        assert run.stats().used == resident_bytes()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("plan", ["off", "auto"])
def test_a_larger_budget_makes_memory_plentiful(plan: str) -> None:
    weight = weight_of()
    with remat.budget(36 * BYTES, plan=plan) as run:
        for _ in range(4):
            chain(20, weight)
        before = run.stats()
        assert before.evictions == 0
        assert before.peak > 0.6 * 36 * BYTES
        chain(20, weight)
        assert run.stats().unwatched == before.unwatched
        run.set_budget("1GiB")
        chain(20, weight)
        assert run.stats().unwatched > before.unwatched + 20


def test_plans_of_another_program_keep_no_op_from_running_unwatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path))
    budget, trainer = budget_of(0.5), Trainer()
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        list(until_planned(run, trainer.train))
    del trainer
    weight = torch.ones(64)
    with remat.budget(budget, plan="auto", costs="bytes") as run:
        plan = run.stats().plan
        assert plan is not None
        assert plan.loaded > 0
        for _ in range(3000):
            weight * 2.0
        before = run.stats()
        for _ in range(100):
            weight * 2.0
        stats = run.stats()
    assert stats.unwatched - before.unwatched > 98


def test_memory_that_somebody_looks_into_stays_where_it_is() -> None:
    weight = weight_of()
    with remat.budget("1GiB", policy="lru", plan="off") as run:
        for _ in range(4):
            chain(20, weight)
        seen = weight * 2.0
        numbers = seen.numpy()
        run.set_budget(20 * BYTES)
        seen.add_(1.0)  # a value that could be made again
        chain(60, weight)
        assert run.stats().evictions > 20
        assert (numbers == seen.numpy()).all()
        assert numbers.ctypes.data == seen.data_ptr()


def test_threads_run_unwatched() -> None:
    weight = weight_of()
    expected = chain(20, weight)
    with remat.budget("1GiB", plan="off") as run:
        for _ in range(4):
            chain(20, weight)
        before = run.stats()
        results: list[torch.Tensor] = []
        threads = [threading.Thread(target=lambda: results.extend(chain(20, weight) for _ in range(5))) for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = run.stats()
        assert all(torch.equal(result, expected) for result in results)
        del results[:]
        assert run.stats().used == resident_bytes()
    assert stats.ops - before.ops > 400


def test_what_a_run_left_behind_counts_in_the_next() -> None:
    weight, hidden = weight_of(), torch.ones(128, 128, requires_grad=True)
    with remat.budget("1GiB", plan="off"):
        for _ in range(4):
            chain(20, weight)
        loss = None
        for _ in range(3):
            del loss
            loss = torch.linalg.multi_dot([hidden] * 3).sum()  # it keeps a product that has no Python object
    seen = resident_bytes()
    with remat.budget("1GiB", plan="off") as run:
        assert run.stats().used == seen + BYTES
        loss.backward()
        del loss
        hidden.grad = None
        assert run.stats().used == resident_bytes()


class Buffers(nn.Module):
    """So many buffers of `BYTES`, of which it reads some numbers each."""

    COUNT = 30

    def __init__(self) -> None:
        super().__init__()
        for number in range(self.COUNT):
            self.register_buffer(f"buffer{number}", weight_of())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([(buffer[:16] * x).sum() for buffer in self.buffers()])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kept", [True, False])
def test_what_an_earlier_run_watched_counts_before_ops_read_it(kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No object of Python refers to it, so that it is not found as a run begins."""
    file, x, weight = io.BytesIO(), torch.ones(16), weight_of()
    torch.jit.save(torch.jit.trace(Buffers(), x), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    file.close()
    gc.collect()
    monkeypatch.setenv("REMAT_RECORD", "always")
    with remat.budget("1GiB", plan="off") as run:
        expected = loaded(x)
    earlier = run if kept else None
    monkeypatch.setenv("REMAT_RECORD", "0")
    with remat.budget("1GiB", plan="off") as run:
        for _ in range(20):
            weight * 2.0
        before = run.stats()
        for _ in range(6):
            assert torch.equal(loaded(x), expected)
        stats = run.stats()
    assert stats.used == before.used + Buffers.COUNT * BYTES
    assert stats.unwatched > before.unwatched + 2 * Buffers.COUNT
    assert earlier is None or earlier.stats().evictions == 0


def test_memory_that_several_storages_share_is_not_free_before_the_last_of_them_dies() -> None:
    weight, shared = weight_of(), numpy.ones(50 * BYTES // 4, numpy.float32)
    budget = 100 * BYTES
    with remat.budget(budget, policy="dtr-eq", plan="off") as run:
        views = [torch.from_numpy(shared) for _ in range(20)]
        for view in views:
            view[:16] * 1.0
        for _ in range(20):
            weight * 2.0
        before = run.stats()
        weight * 2.0
        del view, views[1:]
        held = [weight * 2.0 for _ in range(100)]
        stats = run.stats()
    assert stats.unwatched > before.unwatched
    assert stats.used <= budget
    assert stats.evictions > 10
    assert all(torch.equal(result, held[0]) for result in held)


def test_what_is_let_go_of_makes_room_for_ops_that_run_unwatched() -> None:
    weight, held = weight_of(), [weight_of() for _ in range(40)]
    stop = resident_bytes() + 10 * BYTES
    with remat.budget(stop * 5 // 3, plan="off") as run:
        for _ in range(4):
            weight * 2.0
        before = run.stats()
        held.clear()
        held = [weight * 2.0 for _ in range(30)]
        stats = run.stats()
        assert stats.used == resident_bytes()
    assert stats.unwatched == before.unwatched + 30
    assert stats.peak == before.peak


def test_nothing_runs_unwatched_where_bytes_cannot_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_CACHING", "off")
    weight = weight_of()
    with remat.budget("1GiB", plan="off") as run:
        for _ in range(4):
            chain(20, weight)
        assert run.stats().unwatched == 0


def test_a_forked_child_goes_on() -> None:
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, with Remat or without
    weight = weight_of()
    expected = torch.tanh(weight * 2.0)
    with remat.budget("1GiB", plan="off") as run:
        for _ in range(4):
            chain(20, weight)
            torch.tanh(weight * 2.0)
        assert run.stats().unwatched > 0
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.equal(torch.tanh(weight * 2.0), expected) else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert torch.equal(torch.tanh(weight * 2.0), expected)
