"""Programs on packages of other people, within budgets: small ones here, all of them by `scripts/programs`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from process import PYTHON, ran

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

import programs  # noqa: E402
from third_party.catalogue import load  # noqa: E402

SMALL = [name for name, program in load().items() if program.small]

#: Programs that `remat run` takes here too: a trainer of another package, and one that makes its own loop.
BY_COMMAND = ["transformers/trainer", "x_transformers/rotary"]


def test_the_programs_are_many() -> None:
    assert len(load()) >= 120
    assert len({program.package for program in load().values()}) >= 15
    assert len(SMALL) >= 12
    assert set(BY_COMMAND) <= set(SMALL)


@pytest.mark.parametrize("part", [0, 1])
def test_small_programs_run_within_budgets(part: int) -> None:
    """Each within 70% and 45% of its span, at first sight: the same bits, and true peaks within the budget."""
    names = SMALL[part::2]
    done = ran([*PYTHON, BENCHMARKS / "programs.py", "--observe", *names])
    assert done.code == 0, done.err
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    assert [row["program"] for row in rows] == names
    for row in rows:
        assert row["plain"]["repeats"], row
        assert not list(programs.faults_of(row)), row
        assert [within["failure"] for within in row["within"].values()] == [None, None], row


@pytest.mark.parametrize(
    ("name", "pool"),
    [
        (BY_COMMAND[1], "arena"),
        pytest.param(BY_COMMAND[1], "fungible", marks=pytest.mark.full),
        pytest.param(BY_COMMAND[0], "fungible", marks=pytest.mark.full),
        pytest.param(BY_COMMAND[0], "arena", marks=pytest.mark.full),
    ],
)
def test_small_programs_run_by_the_command(name: str, pool: str) -> None:
    row = programs.observed(name, pool)
    assert not list(programs.faults_of(row)), row
    assert [cold["failure"] for cold in row["run"].values()] == [None, None], row


def test_settled_steps_are_timed() -> None:
    row = programs.settled("transformers/trainer", 0.01)
    assert row["steps"] == 24, row
    assert row["seconds"] > 0
    assert list(row["within"]) == list(programs.SHARES)
    for found in row["within"].values():
        assert found["time"] > 0, row
        assert found["ops"] > 100, row
    assert row["within"]["ample"]["recomputed"] == 0, row
    assert row["within"]["45%"]["recomputed"] > 0, row
    assert len(programs.steady_row(row).split(" | ")) == len(programs.STEADY)
    told = "\n".join(programs.steady_summary([row, {"program": "a/b", "failure": "none", "within": {}}]))
    assert f"| all | 1 | {row['within']['ample']['time']:.2f} |" in told


def test_unknown_programs_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (["--one", "nobody/nothing"], "no program"),
        (["--only", "nothing at all"], "matches no program"),
        (["--steady", "0"], "more than 0 s"),
        (["--steady", "1", "--pool", "arena"], "an arena needs one from its start"),
    ):
        monkeypatch.setattr(sys, "argv", ["programs.py", *words])
        with pytest.raises(SystemExit) as ended:
            programs.main()
        assert ended.value.code == 2
        assert why in capsys.readouterr().err
