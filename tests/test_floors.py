"""`remat.measure` tells the smallest budget that a function gets through when it runs again."""

from __future__ import annotations

from pathlib import Path

import pytest
from process import PYTHON, ran_warm

CHECKS = Path(__file__).with_name("floors.py")


@pytest.mark.parametrize("check", ["perceptron", "convolutions", "attention", "fraction"])
def test_a_floor_is_true(check: str) -> None:
    ended = ran_warm([*PYTHON, CHECKS, check])
    assert (ended.code, ended.out) == (0, "as told\n"), ended.err
