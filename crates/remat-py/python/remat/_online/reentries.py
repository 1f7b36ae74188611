"""Notices a program that enters a budget again and again, as around each step of training, and says so once."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

#: A place of a program: its code and the line in it, or the address of a function that is decorated.
Place = tuple[CodeType, int] | int

#: So many times in a row a budget is entered again at one place before anything is said.
TIMES = 10
#: Entering takes a larger part of the time than this where it is worth a word.
SHARE = 0.1


def place_of(frame: FrameType) -> Place | None:
    """Where a frame is; ``None`` where code of Remat's own enters a budget, as the cells of notebooks do."""
    if frame.f_globals.get("__name__", "").partition(".")[0] == "remat":
        return None
    return frame.f_code, frame.f_lineno


def place_in(function: Callable[..., Any]) -> Place:
    """A function that a budget decorates."""
    return id(function)  # not the function itself, which would keep alive what it closes over


class Reentries:
    """The times in a row at which one place of a program entered a budget again."""

    def __init__(self) -> None:
        self._said = False
        self._begin(None)

    def _begin(self, place: Place | None) -> None:
        self._place = place
        self._times, self._entering, self._whole = 0, 0.0, 0.0

    def ended(self, place: Place | None, entering: float, whole: float) -> str | None:
        """A budget ended that was entered at a place; the warning, once, where that is worth one.

        ``whole`` is the seconds from before it was entered, of which ``entering`` it took to enter.
        """
        if place is None or place != self._place:
            self._begin(place)
            return None  # the first time loads what the others find
        self._times += 1
        self._entering += entering
        self._whole += whole
        if self._said or self._times < TIMES or self._entering <= SHARE * self._whole:
            return None
        self._said = True
        return (
            f"the budget was entered {self._times} times again, for {self._whole / self._times:.2g} s each, of which "
            f"entering took {self._entering / self._whole:.0%}: one budget around the loop is entered once, and plans "
            "steps that repeat"
        )
