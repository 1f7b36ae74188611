"""`pool="arena"`: evictions free blocks of one arena of the budget; same bits, a true peak, errors in one line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import remat
from preloaded_arena import LIBRARY, MiB
from process import PYTHON, REMAT, Ended, program, ran, ran_warm

TRAINING = """
    import hashlib, sys
    import torch
    from bits import bits
    from scenarios import SCENARIOS

    torch.manual_seed(7)
    result = SCENARIOS[sys.argv[1]].run()
    print("bits", hashlib.sha256(repr(bits([result, torch.get_rng_state()])).encode()).hexdigest())
"""
MEASURE = """
    import sys
    import remat, torch
    from scenarios import SCENARIOS

    torch.manual_seed(7)
    print("peak", remat.measure(SCENARIOS[sys.argv[1]].run).peak)
"""
REPORT = re.compile(
    r"(\d+) evictions.*arena: true peak .* of .* \(([\d.]+)%\), fragmentation .* (\d+) shortages, .* (\d+) spills"
)


def line(out: str, word: str) -> str:
    return next(line for line in out.splitlines() if line.startswith(word))


def in_budget(size: int, script: Path, *arguments: str) -> Ended:
    return ran([*REMAT, "run", "--pool", "arena", "--budget", str(size), script, *arguments])


def preloaded(script: Path) -> Ended:
    return ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, script])


# These run in arenas by `test_arena_scenarios.py` as well.
ALSO_THERE = ["lstm_cells_unrolled", "transformer_layers", "dropout_family", "in_place_on_slices"]


@pytest.mark.parametrize(
    "name",
    ["batch_norm_network", *(pytest.param(name, marks=pytest.mark.full) for name in ALSO_THERE)],
)
def test_training_has_the_same_bits_within_an_arena(tmp_path: Path, name: str) -> None:
    script = program(tmp_path, TRAINING)
    plain = ran_warm([*PYTHON, script, name])
    assert plain.code == 0, plain.err
    measured = ran_warm([*PYTHON, program(tmp_path, MEASURE, "measure.py"), name])
    assert measured.code == 0, measured.err
    peak = int(line(measured.out, "peak").split()[1])
    # Victims are chosen without regard to addresses: gaps take room too.
    ended = in_budget(peak * 17 // 20, script, name)
    assert ended.code == 0, ended.err
    assert line(ended.out, "bits") == line(plain.out, "bits")
    found = REPORT.search(ended.err)
    assert found, ended.err
    assert int(found[1]) > 0, "nothing was evicted"
    assert 50 < float(found[2]) <= 100


def test_the_true_peak_is_the_allocators_and_evictions_free_blocks(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from preloaded_arena import MiB, owns, statistics

        before = torch.ones(MiB)
        with remat.budget(32 * MiB, pool="arena") as run:
            kept = [torch.ones(MiB) * number for number in range(10)]  # 4 MiB each, of which 6 fit
            assert not owns(before)
            assert statistics().in_use <= 28 * MiB
            assert [int(value.sum()) for value in kept] == [number * MiB for number in range(10)]
            seen = run.stats()
        assert seen.evictions > 0 and seen.recomputed > 0
        assert 20 * MiB < seen.arena.high_water <= seen.arena.capacity == 28 * MiB  # `before` lies outside
        assert seen.arena.spills == statistics().wrong_frees == 0
        assert [int(value.sum()) for value in kept] == [number * MiB for number in range(10)]
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err


def test_gaps_too_small_for_a_tensor_are_made_larger_by_evicting_on(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from preloaded_arena import MiB, statistics

        with remat.budget(32 * MiB, pool="arena") as run:
            kept = [torch.ones(MiB // 2) * number for number in range(15)]  # 2 MiB each
            del kept[1::2]
            assert statistics().largest_free < 12 * MiB < statistics().free_bytes
            large = torch.ones(3 * MiB)  # enough is free, but not in one piece
            assert run.stats().arena.shortages > 0
            assert int(large.sum()) == 3 * MiB
            assert [int(value.sum()) for value in kept] == [number * MiB // 2 for number in range(0, 15, 2)]
            assert statistics().refusals == 0
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err


def test_exhaustion_within_an_op_is_a_budget_error_that_a_program_survives(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from preloaded_arena import MiB, statistics

        library = torch.library.Library("arena_test", "DEF")
        library.define("greedy(Tensor x) -> Tensor")

        def greedy(x):
            hoard = [torch.empty(MiB) for _ in range(100)]
            return x + len(hoard)

        library.impl("greedy", greedy, "CPU")
        with remat.budget(32 * MiB, pool="arena") as run:
            weight = torch.nn.Parameter(torch.ones(MiB))
            kept = torch.ones(MiB) * 3
            for attempt in range(2):
                try:
                    torch.ops.arena_test.greedy(weight)
                except remat.BudgetError as error:
                    assert len(str(error).splitlines()) == 1, error
                    assert "32.00 MiB" in str(error) and error.smallest > 40 * MiB, error
                else:
                    raise AssertionError("100 tensors of 4 MiB in 32 MiB")
                try:
                    torch.empty(9 * MiB)
                except remat.BudgetError as error:
                    assert len(str(error).splitlines()) == 1, error
                else:
                    raise AssertionError("36 MiB in 32 MiB")
                (weight * kept).sum().backward()
                assert float(weight.grad[0]) == 3 * (attempt + 1)
                assert statistics().wrong_frees == 0
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err


@pytest.mark.skipif("REMAT_TEST_ARENA" in os.environ, reason="the allocator is preloaded under these very tests")
def test_without_the_allocator_one_line_says_how_to_start() -> None:
    with pytest.raises(remat.RematError) as refused, remat.budget("64MiB", pool="arena"):
        pass
    assert len(str(refused.value).splitlines()) == 1
    assert "remat run --pool arena" in str(refused.value)
    assert f"LD_PRELOAD={remat.arena_library()}" in str(refused.value)


@pytest.mark.parametrize("pool", ["areana", "", "ARENA", None])
def test_pools_that_there_are_not_are_named(pool: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"pool {pool!r}: expected 'fungible' or 'arena'")):
        remat.budget("64MiB", pool=pool)


def test_the_script_sees_the_environment_as_it_was(tmp_path: Path) -> None:
    script = program(
        tmp_path, "import os, sys; print(os.environ.get('LD_PRELOAD'), *sys.argv[1:]); raise SystemExit(7)"
    )
    ended = in_budget(64 * MiB, script, "--steps", "3")
    assert (ended.code, ended.out) == (7, f"{os.environ.get('LD_PRELOAD')} --steps 3\n"), ended.err
    assert "arena: true peak" in ended.err


def test_an_arena_keeps_its_size(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat
        from preloaded_arena import MiB

        with remat.budget(32 * MiB, pool="arena") as run:
            for size in (16 * MiB, 64 * MiB):
                try:
                    run.set_budget(size)
                except ValueError as error:
                    assert "keeps its size" in str(error), error
                else:
                    raise AssertionError("it changed")
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize("pool", ["fungible", "arena"])
def test_the_child_of_a_fork_computes_what_was_evicted(tmp_path: Path, pool: str) -> None:
    script = program(
        tmp_path,
        f"""
        import os
        import remat, torch
        from preloaded_arena import MiB

        torch.set_num_threads(1)  # OpenMP's threads do not survive a fork, with Remat or without
        with remat.budget(16 * MiB, pool="{pool}", trace="{tmp_path}/step.trace") as run:
            kept = [torch.ones(MiB) * number for number in range(10)]  # 4 MiB each: most are evicted
            before = run.stats().evictions
            child = os.fork()
            if child == 0:
                right = [int(value.sum()) for value in kept] == [number * MiB for number in range(10)]
                os._exit(0 if right and run.stats().evictions == before > 0 else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert [int(value.sum()) for value in kept] == [number * MiB for number in range(10)]
        """,
    )
    ended = ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, script])
    assert ended.code == 0, ended.err
    checked = ran([*REMAT, "trace", "check", tmp_path / "step.trace"])
    assert checked.code == 0, checked.err


def test_absurd_budgets_and_sizes_are_refused_in_one_line(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from preloaded_arena import MiB, statistics

        before = torch.ones(MiB)
        for size in (1, 63, 4 * MiB, 4 * MiB + 63):
            try:
                with remat.budget(size, pool="arena"):
                    pass
            except remat.BudgetError as error:
                assert len(str(error).splitlines()) == 1 and error.smallest >= 4 * MiB, error
            else:
                raise AssertionError(f"{size} bytes hold no block beside 4 MiB")
        with remat.budget(16 * MiB, pool="arena") as run:
            kept = torch.ones(MiB) * 3
            for numbers in (2**58, 2**60, 4 * MiB):
                try:
                    torch.empty(numbers)
                except (remat.BudgetError, RuntimeError) as error:
                    assert len(str(error).splitlines()) == 1, error
                else:
                    raise AssertionError(f"{numbers} numbers in 16 MiB")
            assert torch.empty(0).sum() == 0
            assert int(kept.sum()) == 3 * MiB and run.stats().arena.spills == statistics().wrong_frees == 0
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err


def test_a_storm_of_small_tensors_is_made_room_for_together(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from preloaded_arena import MiB

        with remat.budget(16 * MiB, pool="arena") as run:
            base = torch.ones(512)
            kept = [base + number for number in range(20_000)]  # 2 KiB each, 40 MiB together
            stats = run.stats()
            assert stats.evictions > 10_000, stats
            assert stats.arena.shortages < 8_000, stats
            assert [int(value[0]) for value in kept[::997]] == list(range(1, 20_001, 997))
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err


def test_an_op_that_finds_no_room_amid_its_work_evicts(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import remat, torch
        from preloaded_arena import MiB, statistics

        library = torch.library.Library("arena_test", "DEF")
        library.define("hoard(Tensor x) -> Tensor")

        def hoard(x):
            hoarded = [torch.full((MiB,), float(number)) for number in range(4)]  # 16 MiB nobody knew of
            return x + sum(float(part[-1]) for part in hoarded)

        library.impl("hoard", hoard, "CPU")
        with remat.budget(28 * MiB, pool="arena") as run:
            small = torch.ones(1024)
            kept = [torch.ones(MiB) * number for number in range(6)]  # 24 MiB
            before = run.stats()
            made = torch.ops.arena_test.hoard(small)
            after = run.stats()
            assert after.evictions > before.evictions and after.arena.exhaustions > before.arena.exhaustions, after
            assert float(made[0]) == 7 and after.arena.spills == statistics().refusals == 0
            assert [int(value.sum()) for value in kept] == [number * MiB for number in range(6)]
        """,
    )
    ended = preloaded(script)
    assert ended.code == 0, ended.err
