"""`remat measure` finds the step of a program that it knows nothing of, and says what smaller budgets would cost."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from process import PYTHON, REMAT, program, ran, ran_warm, signalled

MEASURE = [*REMAT, "measure", "--device", "cpu"]

TRAINING = """
    import sys, torch
    torch.manual_seed(0)
    weights = [(torch.randn(64, 64) / 8).requires_grad_() for _ in range(12)]
    optimizer = torch.optim.Adam(weights, foreach=False)
    for step in range(int(sys.argv[1])):
        hidden = torch.randn(512, 64)
        for weight in weights:
            hidden = (hidden @ weight).tanh()
        loss = hidden.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex(), flush=True)
        if step == 20:
            print("ready", flush=True)
"""


def test_a_table_of_budgets(tmp_path: Path) -> None:
    script, out = program(tmp_path, TRAINING), tmp_path / "step.trace.zst"
    plain = ran_warm([*PYTHON, script, "8"])
    words = ["--ratio", "0.8,0.6", "--seconds", "0.5", "--json", "--out", out]
    ended = ran_warm([*MEASURE, *words, script, "8"])
    assert ended.code == 0, ended.err
    losses, rows = ended.out.splitlines()[:8], [json.loads(line) for line in ended.out.splitlines()[8:]]
    assert losses == plain.out.splitlines()
    whole, *budgets = rows
    # Twelve results of 128 KiB, beside parameters, gradients and the two of Adam's state, of 192 KiB each.
    assert 12 * 131072 + 3 * 196608 < whole["peak_bytes"] < 4 << 20
    assert 3 * 12 * 16384 <= whole["rest_bytes"] < 1 << 20
    assert "a step of" in ended.err
    assert [row["ratio"] for row in budgets] == [0.8, 0.6]
    assert all(row["peak_bytes"] <= row["budget_bytes"] < whole["peak_bytes"] for row in budgets)
    # The run itself within such a budget keeps to it, and the file is a trace like any other.
    assert ran([*REMAT, "trace", "check", out]).code == 0
    budgeted = ran_warm([*REMAT, "run", "--budget", str(budgets[0]["budget_bytes"] + (256 << 10)), script, "8"])
    assert budgeted.out == plain.out, budgeted.err


def test_an_interrupt_ends_the_program_and_the_table_follows(tmp_path: Path) -> None:
    script = program(tmp_path, TRAINING.replace("print(loss.item().hex(), flush=True)", "loss.item()"))
    ended = signalled([*MEASURE, "--seconds", "0.2", script, "1000000"], signal.SIGINT, "ready")
    assert ended.code == 0, ended.err
    assert "peak " in ended.out
    assert "ratio       budget" in ended.out


@pytest.mark.parametrize("steps", ["1", "2"])
def test_what_does_not_repeat_has_no_table(tmp_path: Path, steps: str) -> None:
    ended = ran_warm([*MEASURE, program(tmp_path, TRAINING), steps])
    assert ended.code == 1
    assert "no step repeated" in ended.err
    assert "peak " in ended.out


def test_a_program_that_fails_fails(tmp_path: Path) -> None:
    ended = ran([*MEASURE, program(tmp_path, TRAINING + "\n    raise KeyError('no data')\n"), "8"])
    assert ended.code == 1
    assert ended.err.splitlines()[-1] == "KeyError: 'no data'"
    assert "measured.py" not in ended.err
