"""The ceilings of refusals fail where a scenario is refused more often, or fits later, than was recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import refusals

KEY = "scenario at 0.50, dtr-anc"


@pytest.fixture(autouse=True)
def _recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = tmp_path / "refusals.json"
    recorded.write_text(json.dumps({refusals.RELEASE: {KEY: [3, 0.7]}}))
    monkeypatch.setattr(refusals, "RECORDED", recorded)
    monkeypatch.setattr(refusals, "BLESS", False)


def test_as_recorded_and_better_is_held() -> None:
    refusals.hold(KEY, 3, 0.5, 0.7)
    refusals.hold(KEY, 0, 0.5, 0.5)
    refusals.hold("another", 0, 0.5, 0.5)


def test_more_raises_fail() -> None:
    with pytest.raises(AssertionError, match="refused 5 times, 3 when"):
        refusals.hold(KEY, 5, 0.5, 0.7)
    with pytest.raises(AssertionError, match="refused 2 times, 0 when"):
        refusals.hold("another", 2, 0.5, 0.5)


def test_a_larger_budget_fails() -> None:
    with pytest.raises(AssertionError, match=r"fits at 0\.770 of the span, at 0\.700 when"):
        refusals.hold(KEY, 3, 0.5, 0.77)
    with pytest.raises(AssertionError, match=r"fits at 0\.570 of the span, at 0\.500 when"):
        refusals.hold("another", 1, 0.5, 0.57)


def test_recording_keeps_the_larger_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "BLESS", True)
    refusals.hold(KEY, 4, 0.5, 0.6)
    refusals.hold("another", 1, 0.5, 0.52)
    refusals.hold("a third", 0, 0.5, 0.5)
    found = json.loads(refusals.RECORDED.read_text())
    assert found == {refusals.RELEASE: {"another": [1, 0.52], KEY: [4, 0.7]}}
