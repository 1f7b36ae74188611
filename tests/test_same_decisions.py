"""Where costs are reckoned from bytes, two runs of a program in two processes decide alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import remat
from process import PYTHON, program, ran
from remat._torch_internals import eager
from sample import some

# Evicts, changes storages under tensors, drops many of them, and takes results in at addresses of those that died.
SCENARIOS = ("data_assignment_and_set", "u_net", "lstm")

PROGRAM = """
import gc, sys
import remat, torch
from scenarios import SCENARIOS

scenario = SCENARIOS[sys.argv[1]]
scenario.run()  # libraries that warm up may choose other kernels
torch.manual_seed(1)
measured = remat.measure(scenario.run)
budget = measured.base + int(0.7 * (measured.peak - measured.base))
measured.result.clear()
gc.collect()
torch.manual_seed(1)
with remat.budget(budget, costs="bytes", trace=sys.argv[2]) as run:
    scenario.run()
print(run.stats().evictions)
"""


CASES = [("lstm", "native"), *((name, "python") for name in SCENARIOS)]


@pytest.mark.parametrize("case", some(CASES), ids="-".join)
def test_two_processes_evict_the_same(case: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, way = case
    if way == "native" and (reason := eager.prepare_native()):
        pytest.skip(reason)
    monkeypatch.setenv("REMAT_DISPATCH", way)
    script = program(tmp_path, PROGRAM)
    traces = [tmp_path / f"{number}.trace" for number in range(2)]
    for trace in traces:
        ended = ran([*PYTHON, script, name, trace])
        assert ended.code == 0, ended.err
        assert int(ended.out.split()[-1]) > 0, ended.out
    first, second = (trace.read_bytes() for trace in traces)
    assert first == second


def test_unknown_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="costs 'time': expected 'measured' or 'bytes'"):
        remat.budget("1GiB", costs="time")  # type: ignore[arg-type]
