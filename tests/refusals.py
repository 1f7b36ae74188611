"""Ceilings for refusals: how often a scenario is refused before it fits, and the budget it fits in at last.

`refusals.json` holds what was recorded, by scenario, budget and policy. Budgets are shares of the span between what is
resident before and the peak. What is not listed is not refused at all. To record anew (twice, the larger numbers stay):

    rm tests/refusals.json
    for i in 1 2; do REMAT_BLESS=1 python -m pytest -q --all tests/test_same_bits.py tests/test_byte_bound.py; done
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch

RECORDED = Path(__file__).with_name("refusals.json")
BLESS = "REMAT_BLESS" in os.environ
RELEASE = ".".join(torch.__version__.split(".")[:2])

# Costs are reckoned from bytes, so that the clock has no part in it. But workspaces are those of the kernels that torch
# picks for the processor.
RAISES_ALLOWED = 1
SPAN_ALLOWED = 1 / 16
# A release that nothing is recorded of is compared with the newest one, and has its own kernels.
OTHER_RELEASE = 2


def _read() -> dict[str, dict[str, tuple[int, float]]]:
    return json.loads(RECORDED.read_text()) if RECORDED.exists() else {}


def _write(recorded: dict[str, dict[str, tuple[int, float]]]) -> None:
    """A line for each scenario."""
    releases = []
    for release, found in sorted(recorded.items()):
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(found[key])}" for key in sorted(found))
        releases.append(f"{json.dumps(release)}: {{\n{lines}\n}}")
    RECORDED.write_text("{\n" + ",\n".join(releases) + "\n}\n")


def hold(key: str, raises: int, asked: float, enough: float) -> None:
    """Compares the raises, and the share of the span that was enough where `asked` was given, with those recorded."""
    recorded = _read()
    if BLESS:
        if raises:
            before = recorded.setdefault(RELEASE, {}).get(key, (0, 0.0))
            recorded[RELEASE][key] = max(before[0], raises), max(before[1], round(enough, 4))
            _write(recorded)
        return
    of_release = recorded.get(RELEASE) or recorded[max(recorded)]
    times = 1 if RELEASE in recorded else OTHER_RELEASE
    most, largest = of_release.get(key, (0, asked))
    assert raises <= most + times * RAISES_ALLOWED, f"{key}: refused {raises} times, {most} when it was recorded"
    ceiling = largest + times * SPAN_ALLOWED
    assert enough <= ceiling, f"{key}: fits at {enough:.3f} of the span, at {largest:.3f} when it was recorded"
