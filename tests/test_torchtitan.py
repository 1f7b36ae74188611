"""Budgets in torchtitan's trainer, with the package itself, which needs an environment of its own.

`scripts/test --all` makes that environment, and so does `VENV=.venv-torchtitan EXTRAS=test,torchtitan scripts/setup`.
Elsewhere these tests are skipped.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from bits import bits, differences
from process import REMAT, Ended, ran

pytest.importorskip("torchtitan")

PROGRAM = Path(__file__).parent / "titan_on_cpu.py"
#: Less than the steps take, so that some is evicted, and more than their largest op needs at once.
BUDGET = 125 << 20


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank, and nothing that an earlier one left."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "0")


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, *command: str | Path) -> tuple[Any, Ended]:
    """The bits of the weights after four steps, and what was said."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    done = ran(command)
    assert done.code == 0, done.err
    return bits(torch.load(folder / "weights.pt")), done


@pytest.mark.usefixtures("alone")
def test_a_budget_takes_the_place_of_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUDGET", str(BUDGET))
    usual, _ = trained(tmp_path / "plain", monkeypatch, sys.executable, PROGRAM, "plain")
    within, said = trained(tmp_path / "budget", monkeypatch, sys.executable, PROGRAM, "budget")
    assert differences(usual, within) == []
    told = re.search(r"Budget: peak ([0-9.]+) MiB of 125.00 MiB .*, (\d+) evictions", said.out)
    assert told is not None, said.out
    assert float(told[1]) <= 125 and int(told[2]) > 0
    assert said.out.count("Trains within a budget of") == 1


@pytest.mark.usefixtures("alone")
def test_the_command_needs_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torchtitan's own checkpoints are turned off by its command line."""
    usual, _ = trained(tmp_path / "plain", monkeypatch, sys.executable, PROGRAM, "plain")
    command = [*REMAT, "run", "--budget", str(BUDGET), PROGRAM, "full", "activation-checkpoint:none"]
    within, said = trained(tmp_path / "budget", monkeypatch, *command)
    assert differences(usual, within) == []
    evictions = re.search(r"(\d+) evictions", said.err)
    assert evictions is not None and int(evictions[1]) > 0, said.err
    assert "checkpointing to the model" not in said.out


@pytest.mark.usefixtures("alone")
def test_a_budget_that_cannot_be_met_ends_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUDGET", "50MiB")
    monkeypatch.chdir(tmp_path)
    done = ran([sys.executable, PROGRAM, "budget"])
    assert done.code == 1
    assert "the smallest budget known to" in done.err


def test_stages_share_a_budget_and_another_one_takes_its_place() -> None:
    from remat.integrations import torchtitan

    def applied(budget: str) -> remat.Run:
        torchtitan.BudgetAC.Config(budget=budget).build().apply(torch.nn.Linear(2, 2))
        run = torchtitan.run()
        assert run is not None
        return run

    first = applied("64MiB")
    assert applied("64MiB") is first
    second = applied("32MiB")
    assert second is not first
    assert second.stats().budget == 32 << 20
    torchtitan._held.leave()
    third = applied("32MiB")
    assert third is not second, "the budget was left, so it is entered anew"
    torchtitan._held.leave()
