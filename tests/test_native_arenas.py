"""Ops in an arena come natively: without Python between them, within the arena, with the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest
from preloaded_arena import LIBRARY
from process import PYTHON, program, ran_warm

START = """
    import remat, torch
    from bits import bits
    from preloaded_arena import MiB, functions, statistics

    torch.set_num_threads(1)

    def nobody_makes_room():
        functions().remat_arena_on_exhausted(None, None)
"""


def passes(tmp_path: Path, text: str, *arguments: str, way: str = "native") -> None:
    script = program(tmp_path, START + text)
    ended = ran_warm(["env", f"REMAT_DISPATCH={way}", f"LD_PRELOAD={LIBRARY}", *PYTHON, script, *arguments])
    assert ended.code == 0, ended.err


TRAINING = """
    import sys
    from torch import nn

    class Trainer:
        def __init__(self):
            torch.manual_seed(0)
            kinds = (lambda: nn.Linear(128, 128), lambda: nn.Dropout(0.2), nn.GELU, lambda: nn.LayerNorm(128))
            layers = [make() for _ in range(6) for make in kinds]
            self.model = nn.Sequential(*layers, nn.BatchNorm1d(128), nn.ReLU())
            self.optimizer = torch.optim.Adam(self.model.parameters(), foreach=False)

        def step(self):
            loss = self.model(torch.randn(512, 128)).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            return loss.detach()

    share = float(sys.argv[1])
    plain = Trainer()
    expected = [plain.step() for _ in range(20)]
    fresh = Trainer()
    fresh.step()
    budget = remat.measure(fresh.step).fraction(share)
    seen = Trainer()
"""


PRESSURE = """
    with remat.budget(budget, pool="arena", plan=sys.argv[2]) as run:
        losses = [seen.step() for _ in range(16)]
        before = run.stats()
        losses += [seen.step() for _ in range(4)]
        after = run.stats()
        records = after.records
    assert bits(losses) == bits(expected)
    assert after.arena.high_water <= after.arena.capacity and after.arena.spills == 0
"""


@pytest.mark.parametrize("plan", ["off", "auto"])
def test_a_step_under_pressure_enters_no_python(tmp_path: Path, plan: str) -> None:
    checks = """
    assert after.recomputed > before.recomputed
    assert after.through_python == before.through_python, after.through_python - before.through_python
    """
    passes(tmp_path, TRAINING + PRESSURE + checks, "0.75", plan)


def test_where_memory_is_plentiful_ops_leave_no_records(tmp_path: Path) -> None:
    first = "    import os; os.environ['REMAT_RECORD'] = '64'\n"
    passes(tmp_path, first + TRAINING + PRESSURE + "    assert records == 0", "4", "off")


@pytest.mark.parametrize("way", ["native", "python"])
def test_other_threads_allocate_beside_a_step(tmp_path: Path, way: str) -> None:
    passes(
        tmp_path,
        TRAINING
        + """
    import threading
    sys.setswitchinterval(1e-5)
    ended, failed = threading.Event(), []

    def allocate():
        try:
            while not ended.is_set():
                torch.UntypedStorage(MiB)  # no op of the session's: the allocator alone sees it
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=allocate)
    with remat.budget(budget, pool="arena", plan="off") as run:
        losses = [seen.step() for _ in range(5)]
        before = statistics().exhaustions
        thread.start()
        while not failed and statistics().exhaustions < before + 5 and len(losses) < 500:
            losses.append(seen.step())
        ended.set()
        thread.join()
        assert statistics().exhaustions > before
    alone = Trainer()
    expected = [alone.step() for _ in losses]
    assert failed == [] and bits(losses) == bits(expected) and statistics().spills == 0
    """,
        "0.75",
        way=way,
    )


# An op of a known form that needs more workspace than before: the scale says how many weights each pixel has. Its
# kernel takes the list of sizes off the stack.
RESIZED = """
    def resize(scale):
        return torch.ops.aten._upsample_bilinear2d_aa(x, [1, 65536], False, None, scale)

    x = torch.rand(1, 1, 1, MiB)
    expected = resize(1 / 16)
    with remat.budget(64 * MiB, pool="arena", plan="off") as run:  # an arena of 60 MiB beside x
        for _ in range(4):
            resize(1.0)
        kept = [torch.ones(MiB) * number for number in range(13)]  # 8 MiB are left, and 9 needed
        before, refused = run.stats(), statistics().refusals

        def all_there():
            there = [int(one.sum()) for one in kept] == [number * MiB for number in range(13)]
            return there and statistics().wrong_frees == 0
"""


def test_an_op_that_finds_no_room_amid_its_work_evicts(tmp_path: Path) -> None:
    checks = """
        made = resize(1 / 16)
        after = run.stats()
        assert after.evictions > before.evictions and after.arena.exhaustions > before.arena.exhaustions, after
        assert (after.through_python, statistics().refusals) == (before.through_python, refused), after
        assert made.equal(expected) and all_there()
    """
    passes(tmp_path, RESIZED + checks)


def test_an_op_that_finds_no_room_is_made_again_through_python(tmp_path: Path) -> None:
    checks = """
        nobody_makes_room()
        made = resize(1 / 16)
        after = run.stats()
        assert statistics().refusals > refused and after.through_python == before.through_python + 1, after
        assert made.equal(expected)
        before = run.stats().through_python
        again = resize(1 / 16)  # room is made for it beforehand from now on
        assert run.stats().through_python == before
        assert again.equal(expected) and all_there()
    """
    passes(tmp_path, RESIZED + checks)


def test_an_op_without_a_record_that_finds_no_room_is_refused(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
    import os; os.environ["REMAT_RECORD"] = "8"

    def resize(scale):
        return torch.ops.aten._upsample_bilinear2d_aa(x, [1, 65536], False, None, scale)

    x = torch.rand(1).expand(1, 1, 1, 5 * MiB)
    with remat.budget(80 * MiB, pool="arena", plan="off") as run:
        for number in range(8):
            resize(1.0)
            torch.ones(MiB) * number
        assert run.stats().records == 0
        kept = [torch.ones(MiB) * number for number in range(10)]
        try:
            resize(1 / 80)
        except remat.BudgetError as error:
            assert len(str(error).splitlines()) == 1, error
        else:
            raise AssertionError("40.5 MiB found room in 40")
        assert [int(one.sum()) for one in kept] == [number * MiB for number in range(10)]
        assert statistics().wrong_frees == 0
    """,
    )


def test_errors_of_ops_are_their_own(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
    def attempt(table, indices):
        try:
            return torch.index_select(table, 0, indices)
        except IndexError as error:
            return str(error)

    good, bad = torch.arange(4096), torch.arange(4096) + 4000
    expected = attempt(torch.ones(4096, 16), bad)
    with remat.budget(16 * MiB, pool="arena", plan="off") as run:
        table = torch.ones(4096, 16) * 3
        for _ in range(3):
            attempt(table, good)
        before = run.stats().through_python
        assert isinstance(expected, str) and attempt(table, bad) == expected
        found = attempt(table, good)
        assert run.stats().through_python == before
        assert found.eq(3).all()
        """,
    )


def test_blocks_that_move_get_no_further_owner(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
    def owners(tensor):
        return torch._C._storage_Use_Count(torch._C._storage_address(tensor))

    factor = torch.ones(512, 512) / 512  # products cost more than copies of 1 MiB
    with remat.budget(16 * MiB, pool="arena", plan="off") as run:
        for _ in range(3):
            factor @ factor
        kept = [factor @ factor for _ in range(14)]
        del kept[1::2]
        large = torch.ones(5 * MiB // 4)
        assert run.stats().arena.moved_bytes > 0
        assert [owners(one) for one in kept] == [1] * 7  # else autograd would no longer add to them in place
        assert [float(one[0, 0]) for one in kept] == [1 / 512] * 7
    """,
    )


def test_where_errors_are_not_caught_ops_go_through_python(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
    import warnings
    from remat._torch_internals.eager import rehearsal
    warnings.simplefilter("ignore")
    rehearsal._raises = lambda: False
    x = torch.ones(MiB)
    with remat.budget(32 * MiB, pool="arena", plan="off") as run:
        kept = [x * number for number in range(12)]  # 48 MiB
        before = run.stats()
        kept += [x * number for number in range(12, 24)]
        after = run.stats()
        assert after.dispatch == "native" and after.through_python == before.through_python + 12, after
        assert [int(one.sum()) for one in kept] == [number * MiB for number in range(24)]
    """,
    )
