"""In an arena, planned steps have their blocks at planned addresses: nothing moves, nothing is searched for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from preloaded_arena import LIBRARY
from process import PYTHON, program, ran_warm

# Trains until a plan was adopted, then goes on; prints the counters of each part, and whether the bits are those of the
# plain run.
TRAINING = """
    import dataclasses, json, sys
    import remat, test_planned_steps as t
    from bits import bits, differences
    import repeated_steps
    from repeated_steps import until_planned

    departure = getattr(t, sys.argv[1])
    Trainer = getattr(repeated_steps, sys.argv[3])
    budget = repeated_steps.budget_of(float(sys.argv[2]), Trainer)
    with remat.budget(budget, pool="arena", plan="auto", costs="bytes") as run:
        trainer = Trainer()
        warm = sum(2 for _ in until_planned(run, trainer.train))
        parts = []
        for act in [*[trainer.train] * 2, lambda: departure(trainer), *[trainer.train] * 6]:
            act()
            parts.append(dataclasses.asdict(run.stats().plan))
        found = bits(trainer.result())
    stats = run.stats()
    plain = Trainer()
    for _ in range(warm + 2):
        plain.train()
    departure(plain)
    for _ in range(6):
        plain.train()
    told = {
        "alike": not differences(bits(plain.result()), found),
        "within": stats.arena.high_water <= stats.arena.capacity,
        "spills": stats.arena.spills,
        "parts": parts,
    }
    print(json.dumps(told))
"""


def trained(tmp_path: Path, departure: str, fraction: float = 0.7, trainer: str = "Trainer") -> dict[str, Any]:
    script = program(tmp_path, TRAINING)
    ended = ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, script, departure, str(fraction), trainer])
    assert ended.code == 0, ended.err
    told: dict[str, Any] = json.loads(ended.out)
    assert told["alike"] and told["within"] and told["spills"] == 0
    return told


@pytest.mark.parametrize(
    ("trainer", "fraction"), [("Trainer", 0.7), ("Trainer", 0.5), ("ConvTrainer", 0.7), ("NumpyTrainer", 0.7)]
)
def test_planned_steps_move_nothing_and_search_for_nothing(tmp_path: Path, trainer: str, fraction: float) -> None:
    first, *_, last = trained(tmp_path, "nothing", fraction, trainer)["parts"]
    assert last["steps"] - first["steps"] >= 6
    assert last["placed"] - first["placed"] > 100 * (last["steps"] - first["steps"])
    assert {last[name] - first[name] for name in ("displaced", "settled", "moves", "searches")} == {0}
    # The peak counts blocks below 1 KiB too, which lie outside.
    assert 0.99 * last["planned_peak"] <= last["placed_bytes"] <= 1.03 * last["planned_peak"]


@pytest.mark.full
@pytest.mark.parametrize("departure", ["smaller_batch", "exception_amid_a_step", "evaluation"])
def test_steps_are_placed_as_planned_again_after_a_departure(tmp_path: Path, departure: str) -> None:
    parts = trained(tmp_path, departure)["parts"]
    rejoined, last = parts[-4], parts[-1]
    assert last["steps"] - rejoined["steps"] == 3
    assert last["placed"] > rejoined["placed"]
    assert {last[name] - rejoined[name] for name in ("displaced", "settled", "moves", "searches")} == {0}


REFUSED = """
    import torch, remat
    with remat.budget("4MiB", pool="arena", costs="bytes") as run:
        torch.manual_seed(1)
        source = torch.rand(192, 1024)
        source.data_ptr()  # from here on it stays
        likely = source * 0.5 + 0.1
        held = []
        try:
            while True:
                held.append(torch.empty(64, 1024))
                held[-1].data_ptr()
        except remat.BudgetError:
            held.pop()
        drawn = torch.empty(60, 1024)
        try:
            drawn.bernoulli_(likely[:60])  # what it reads was evicted, and does not fit beside what stays
        except remat.BudgetError:
            print("refused")
        held.clear()
        drawn.fill_(2.0)
        assert drawn.sum().item() == 2.0 * drawn.numel()
        other = torch.empty(60, 1024)
        try:
            other.normal_(std=-1.0)
        except RuntimeError:
            print("raised")
        assert torch.isfinite(other.normal_()).all()
    assert run.stats().arena.spills == 0
"""


def test_memory_that_an_op_was_to_fill_is_there_after_an_error(tmp_path: Path) -> None:
    ended = ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, program(tmp_path, REFUSED)])
    assert ended.code == 0, ended.err
    assert ended.out.split() == ["refused", "raised"]
