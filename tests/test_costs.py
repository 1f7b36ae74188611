"""The measured cost of an op on the CPU: the time for which it computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from native import needed
from process import PYTHON, program, ran

# One op is kept from the processor, as other programs keep it on a busy machine; the other computes.
PROGRAM = """
import sys, time
import remat, torch
from torch import Tensor


@torch.library.custom_op("costs::waits", mutates_args=())
def waits(x: Tensor) -> Tensor:
    time.sleep(0.5)
    return x + 1


@torch.library.custom_op("costs::computes", mutates_args=())
def computes(x: Tensor) -> Tensor:
    until = time.thread_time() + 0.05
    while time.thread_time() < until:
        pass
    return x + 1


for op in (waits, computes):
    op.register_fake(torch.empty_like)

with remat.budget("64MiB", trace=sys.argv[1]):
    x = torch.ones(1000)
    for _ in range(5):
        y, z = waits(x), computes(x)
"""


@pytest.mark.parametrize("way", [pytest.param("native", marks=needed), "python"])
def test_an_op_costs_the_time_for_which_it_computes(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", way)
    trace = tmp_path / "step.trace"
    ended = ran([*PYTHON, program(tmp_path, PROGRAM), trace])
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    ops = [line["op"] for line in lines if "op" in line]
    waited, computed = ([op["c"] for op in ops if op["n"] == f"costs.{name}.default"] for name in ("waits", "computes"))
    assert len(waited) == len(computed) == 5
    # The first call loads what torch needs to run such an op at all.
    assert max(waited[1:]) < 0.25e9
    assert min(computed) >= 0.05e9
