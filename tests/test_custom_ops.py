"""Custom ops: their code is the program's own, and runs while the session is unlocked."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remat
import torch
from preloaded_arena import LIBRARY
from process import PYTHON, REMAT, program, ran, ran_warm
from torch import Tensor
from true_peak import room

# A test waits so long for a thread before it fails: nothing here takes a second.
PATIENCE = 60
MIB = 1 << 20
_NUMBER = itertools.count()


def custom_op(body: Callable[[Tensor], Tensor], fake: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        return body(x)

    made = torch.library.custom_op(f"rematcheck::custom_{next(_NUMBER)}", run, mutates_args=())
    made.register_fake(fake)
    return made


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_a_body_and_its_shape_function_wait_for_ops_of_another_thread(way: str, threads: ThreadPoolExecutor) -> None:
    def elsewhere(x: Tensor) -> float:
        return threads.submit(lambda: float((x * 2 + 1).sum())).result(PATIENCE)

    def body(x: Tensor) -> Tensor:
        return x + elsewhere(x)

    def fake(x: Tensor) -> Tensor:
        assert elsewhere(torch.ones(8)) == 24
        return torch.empty_like(x)

    op, x = custom_op(body, fake), torch.ones(4096)
    with remat.budget(room(8 * MIB)) as run:
        for _ in range(12):  # the last ones are of a known signature
            assert torch.equal(op(x), x + 3 * 4096)
        stats = run.stats()
    # A custom op counts as one, and the ops of the other thread are the program's too.
    assert stats.ops >= 12 * 4


def test_a_body_waits_for_a_lock_that_is_held_by_a_thread_with_an_op(way: str, threads: ThreadPoolExecutor) -> None:
    """As where both write to one log."""
    lock, within, held = threading.Lock(), threading.Event(), threading.Event()

    def log(x: Tensor) -> str:
        with lock:
            held.set()
            assert within.wait(PATIENCE)
            return f"{float(x.sum() * 2)}"

    def body(x: Tensor) -> Tensor:
        within.set()
        assert held.wait(PATIENCE)
        assert lock.acquire(timeout=PATIENCE)
        lock.release()
        return x + 1

    op, x = custom_op(body, torch.empty_like), torch.ones(64)
    with remat.budget(room(8 * MIB)):
        logged = threads.submit(log, x)
        assert held.wait(PATIENCE)
        assert torch.equal(op(x), x + 1)
        assert logged.result(PATIENCE) == "128.0"


def test_no_other_thread_takes_the_room_of_a_body(way: str, threads: ThreadPoolExecutor) -> None:
    amid: list[Callable[[], None]] = []

    def body(x: Tensor) -> Tensor:
        first = x.repeat(4)
        for other in amid:
            other()
        return torch.cat([first, first])

    op, x = custom_op(body, lambda x: x.new_empty(8 * len(x))), torch.ones(MIB // 4)
    with remat.budget(room(64 * MIB)):
        op(x)  # the room that it takes is measured
    budget = room(24 * MIB)
    with remat.budget(budget) as run:
        kept: list[Tensor] = []
        # In another thread more is computed than the budget has room for.
        amid.append(lambda: threads.submit(lambda: kept.extend(x + n for n in range(20))).result(PATIENCE))
        made = op(x)
        stats = run.stats()
    assert stats.evictions > 0
    assert torch.equal(made, x.repeat(8))
    assert all(torch.equal(tensor, x + n) for n, tensor in enumerate(kept))
    assert stats.peak <= budget
    amid.clear()  # ops stay, with what they refer to


def test_values_that_a_body_overwrites_later_are_those_that_another_thread_read(
    way: str, threads: ThreadPoolExecutor
) -> None:
    read: list[Tensor] = []

    @torch.library.custom_op(f"rematcheck::custom_{next(_NUMBER)}", mutates_args=("x",))
    def bump(x: Tensor) -> None:
        threads.submit(lambda: read.extend((x * 2 + n).sin() for n in range(6))).result(PATIENCE)
        x.add_(5)

    one = torch.ones(MIB // 4)
    with remat.budget(room(24 * MIB)) as run:
        x = one * 3
        bump(x)
        more = [one + n for n in range(20)]
        assert run.stats().evictions > 0
        assert all(torch.equal(tensor, (one * 6 + n).sin()) for n, tensor in enumerate(read))
        assert torch.equal(x, one * 8)
    assert len(more) == 20
    read.clear()


def test_other_threads_evict_while_a_body_writes(way: str, threads: ThreadPoolExecutor) -> None:
    made: list[Tensor] = []
    one = torch.ones(MIB // 4)
    read = [one]

    @torch.library.custom_op(f"rematcheck::custom_{next(_NUMBER)}", mutates_args=("x",))
    def bump(x: Tensor) -> None:
        threads.submit(lambda: made.extend(read[0] * n for n in range(24))).result(PATIENCE)
        x.add_(5)

    with remat.budget(room(12 * MIB)):
        x = one * 3
        bump(x)
        assert torch.equal(x, one * 8)
        assert all(torch.equal(tensor, one * n) for n, tensor in enumerate(made))
    # The op is there for good.
    made.clear()
    read.clear()


def test_a_body_gives_an_argument_another_storage(way: str, tmp_path: Path) -> None:
    @torch.library.custom_op(f"rematcheck::custom_{next(_NUMBER)}", mutates_args=("x",))
    def exchange(x: Tensor) -> None:
        x.data = torch.full_like(x, 7)

    trace = tmp_path / "run.trace"
    with remat.budget(room(8 * MIB), trace=trace):
        for _ in range(4):
            x = torch.ones(MIB // 4) * 2
            double = x * 2
            exchange(x)
            assert torch.equal(x, torch.full_like(double, 7))
            assert torch.equal(double, torch.full_like(double, 4))
    told = ran([*REMAT, "simulate", str(trace)])
    assert told.code == 0, told.err


def test_two_threads_run_bodies_at_once(way: str, threads: ThreadPoolExecutor) -> None:
    both = threading.Barrier(2)

    def body(x: Tensor) -> Tensor:
        both.wait(PATIENCE)
        y = x * 2
        both.wait(PATIENCE)
        return y + 1

    ops = [custom_op(body, torch.empty_like) for _ in range(2)]
    x = torch.ones(MIB // 4)
    with remat.budget(room(64 * MIB)):
        for _ in range(12):
            results = [threads.submit(op, x) for op in ops]
            assert all(torch.equal(result.result(PATIENCE), x * 2 + 1) for result in results)


def test_what_a_body_raises_gives_its_room_back(way: str) -> None:
    class Mine(Exception):
        pass

    def body(x: Tensor) -> Tensor:
        y = x * 2
        if fails:
            raise Mine
        return y + 1

    op, x = custom_op(body, torch.empty_like), torch.ones(MIB // 4)
    fails = False
    with remat.budget(room(6 * MIB)) as run:
        for fails in [False, *[True] * 12, False]:
            if fails:
                with pytest.raises(Mine):
                    op(x)
            else:
                assert torch.equal(op(x), x * 2 + 1)
                used = run.stats().used
        assert run.stats().used == used


def test_a_body_in_an_arena_waits_for_a_thread_that_evicts(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from concurrent.futures import ThreadPoolExecutor
        from preloaded_arena import MiB, statistics

        kept = []
        threads = ThreadPoolExecutor(1)

        @torch.library.custom_op("rematcheck::fills", mutates_args=())
        def fills(x: torch.Tensor) -> torch.Tensor:
            first = x.repeat(4)
            if amid == "before":
                fill()
            made = torch.cat([first, first])
            del first
            if amid == "after":  # there is room for more
                fill()
            return made

        def fill():
            threads.submit(lambda: kept.extend(x + n for n in range(20))).result(60)

        fills.register_fake(lambda x: x.new_empty(8 * len(x)))
        x = torch.ones(MiB // 4)
        with remat.budget(24 * MiB, pool="arena") as run:
            for amid in ["", "before", "after", "before"]:  # the first measures the room that it takes
                made = fills(x)
                assert torch.equal(made, x.repeat(8))
                assert all(torch.equal(tensor, x + n) for n, tensor in enumerate(kept))
                kept.clear()
            stats = run.stats()
        assert stats.evictions > 0 and stats.peak <= stats.budget, stats
        assert statistics().wrong_frees == 0
        """,
    )
    ended = ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, script])
    assert ended.code == 0, ended.err


def test_arguments_of_custom_ops_are_evicted(way: str) -> None:
    op, x = custom_op(lambda x: x.sum(), lambda x: x.new_empty(())), torch.ones(MIB // 4)
    with remat.budget(room(12 * MIB)) as run:
        made = [x * n for n in range(24)]
        sums = [float(op(tensor)) for tensor in made]
        assert run.stats().evictions > 12
    assert sums == [n * MIB // 4 for n in range(24)]
    assert all(torch.equal(tensor, x * n) for n, tensor in enumerate(made))


def test_running_statistics_of_a_custom_op_are_evicted(way: str) -> None:
    """The first call of each kind shows whether it updates them, by their bytes before and after."""

    @torch.library.custom_op(f"rematcheck::custom_{next(_NUMBER)}", mutates_args=("running_mean", "running_var"))
    def normed(x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, training: bool) -> Tensor:
        assert running_mean is not None and running_var is not None
        if training:
            running_mean.add_(x)
            running_var.add_(1)
        return x - running_mean

    normed.register_fake(lambda x, mean, var, training: torch.empty_like(x))
    x = torch.ones(MIB // 4)
    for training in (True, False):
        with remat.budget(room(12 * MIB)) as run:
            mean, var = x * 2, x * 3
            double = mean * 2
            more = [x + n for n in range(12)]
            assert run.stats().evictions > 0
            assert torch.equal(normed(x, mean, var, training), x * (-2 if training else -1))
            assert torch.equal(mean, x * (3 if training else 2))
            assert torch.equal(double, x * 4)
        assert torch.equal(var, x * (4 if training else 3))
        assert len(more) == 12


def test_arguments_of_an_op_that_raises_are_evicted(way: str) -> None:
    class Mine(Exception):
        pass

    def body(x: Tensor) -> Tensor:
        raise Mine

    op, x = custom_op(body, lambda x: x.new_empty(())), torch.ones(MIB // 4)
    with remat.budget(room(12 * MIB)):
        made = [x * n for n in range(24)]
        for tensor in made:
            with pytest.raises(Mine):
                op(tensor)
    assert all(torch.equal(tensor, x * n) for n, tensor in enumerate(made))


KEPT: dict[str, Callable[[Tensor], Any]] = {
    "it": lambda x: x,
    "a view": lambda x: x[:8],
    "an array": lambda x: x.numpy(),
    "by DLPack": np.from_dlpack,
}


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_an_argument_that_a_body_keeps_is_there_for_the_next(way: str, keep: Callable[[Tensor], Any]) -> None:
    """Ops of a body go to torch as they are, and could not read what was evicted."""
    kept: list[Any] = []

    def body(x: Tensor) -> Tensor:
        total = x.sum()
        for tensor in kept:
            total += tensor.sum()
        if len(kept) < 4:
            kept.append(keep(x))
        return total

    op, x = custom_op(body, lambda x: x.new_empty(())), torch.ones(MIB // 4)
    with remat.budget(room(12 * MIB)) as run:
        made = [x * n for n in range(4)]
        sums = [float(op(tensor)) for tensor in made]
        more = [x + n for n in range(20)]  # none of them is an argument
        last = float(op(x))
        assert run.stats().evictions > 8
    assert all(torch.equal(tensor, x + n) for n, tensor in enumerate(more))
    length = len(kept[0])
    assert sums == [n * MIB // 4 + sum(range(n)) * length for n in range(4)]
    assert last == MIB // 4 + sum(range(4)) * length
    kept.clear()
