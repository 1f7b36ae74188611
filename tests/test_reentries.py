"""A budget around each step, not around the loop, is told of once."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import remat
import torch
from remat._online import budget as entered
from remat._online.reentries import TIMES, Place, Reentries


@pytest.fixture(autouse=True)
def _nothing_entered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entered, "_reentries", Reentries())
    monkeypatch.setattr(entered, "perf_counter", itertools.count().__next__)  # entering takes half of the time


def in_a_loop(times: int) -> None:
    for _ in range(times):
        with remat.budget("1GiB"):
            torch.ones(4).exp()


@remat.budget("1GiB")
def decorated() -> None:
    torch.ones(4).exp()


def around_each_call(times: int) -> None:
    for _ in range(times):
        decorated()


@pytest.mark.parametrize("enter", [in_a_loop, around_each_call])
def test_a_budget_around_each_step_is_told_of_once(enter: Callable[[int], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enter(TIMES)
    with pytest.warns(RuntimeWarning, match=f"remat: the budget was entered {TIMES} times again") as told:
        enter(2)
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enter(2 * TIMES)


def test_other_places_begin_anew() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            in_a_loop(TIMES)
            around_each_call(TIMES)


def test_what_remat_enters_itself_is_not_told() -> None:
    """Cells of notebooks and trainers enter at one place of Remat's, for whatever the program does."""
    own: dict[str, object] = {"__name__": "remat.integrations.any", "remat": remat}
    exec("def enter():\n    with remat.budget('1GiB'):\n        pass", own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2 * TIMES):
            own["enter"]()  # type: ignore[operator]


PLACE: Place = (in_a_loop.__code__, 1)


def told(entering: float, whole: float) -> str | None:
    reentries = Reentries()
    assert reentries.ended(PLACE, 1.0, 1.0) is None  # loading takes long, once
    *before, last = [reentries.ended(PLACE, entering, whole) for _ in range(TIMES)]
    assert not any(before)
    return last


def test_what_takes_little_of_the_time_is_not_told() -> None:
    assert told(0.05, 1.0) is None
    assert told(0.05, 0.25) == (
        f"the budget was entered {TIMES} times again, for 0.25 s each, of which entering took 20%: one budget around "
        "the loop is entered once, and plans steps that repeat"
    )
