"""The measured cost of an op on the CPU: the time for which it computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from native import REASON, needed
from process import PYTHON, program, ran

OPS = """
import sys, time
import remat, torch
from torch import Tensor


def computing(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def op(name):
    def named(function):
        made = torch.library.custom_op(f"costs::{name}", mutates_args=())(function)
        made.register_fake(torch.empty_like)
        return made

    return named
"""

# One op is kept from the processor, as other programs keep it on a busy machine; the other computes.
WAITING = """
@op("waits")
def waits(x: Tensor) -> Tensor:
    time.sleep(0.5)
    return x + 1


@op("computes")
def computes(x: Tensor) -> Tensor:
    computing(0.05)
    return x + 1


with remat.budget("64MiB", trace=sys.argv[1]):
    x = torch.ones(1000)
    for _ in range(5):
        y, z = waits(x), computes(x)
"""

# The op takes long at first, as on a machine that is busy for a while.
BUSY_AT_FIRST = """
calls = 0


@op("computes")
def computes(x: Tensor) -> Tensor:
    global calls
    calls += 1
    computing(0.1 if calls <= 6 else 0)
    return x + 1


with remat.budget("64MiB", trace=sys.argv[1]):
    x = torch.ones(1000)
    for _ in range(12):
        y = computes(x)
"""

#: Each takes seconds: where ops come natively, those through Python take `--all`.
WAYS = pytest.mark.parametrize(
    "way",
    [pytest.param("native", marks=needed), pytest.param("python", marks=[] if REASON else [pytest.mark.full])],
)


def costs(body: str, folder: Path) -> dict[str, list[int]]:
    """Nanoseconds of each call in the trace of a program, by the op."""
    trace = folder / "step.trace"
    ended = ran([*PYTHON, program(folder, OPS + body), trace])
    assert ended.code == 0, ended.err
    found: dict[str, list[int]] = {}
    for line in map(json.loads, trace.read_text().splitlines()):
        if "op" in line:
            found.setdefault(line["op"]["n"], []).append(line["op"]["c"])
    return found


@WAYS
def test_an_op_costs_the_time_for_which_it_computes(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", way)
    found = costs(WAITING, tmp_path)
    waited, computed = found["costs.waits.default"], found["costs.computes.default"]
    assert len(waited) == len(computed) == 5
    # The first call loads what torch needs to run such an op at all.
    assert max(waited[1:]) < 0.25e9
    assert min(computed) >= 0.05e9


@WAYS
def test_a_cost_gets_better_once_the_machine_is_quiet(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", way)
    computed = costs(BUSY_AT_FIRST, tmp_path)["costs.computes.default"]
    assert len(computed) == 12
    assert min(computed[:6]) >= 0.1e9
    assert computed[-1] < 0.05e9
