"""The recording of a run, as the extension tells it, and the walk through a step of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

OP: Final = 0
REPLAY: Final = 1
BORN: Final = 2
DIED: Final = 3
EVICTED: Final = 4
RETURNED: Final = 5
OUTSIDE: Final = 6

#: Ticks of the recording's clock in a microsecond.
TICKS: Final = 10


@dataclass
class Moment:
    """An event of a step."""

    #: Microseconds since the run began.
    at: float
    #: ``OP`` to ``OUTSIDE``.
    code: int
    #: The place of an op or a replay, the block that changed, or bytes.
    of: int
    #: Microseconds that an op or a replay took.
    took: float
    #: Bytes that it needed beside inputs and results.
    workspace: int


class Recording:
    """A run: what it came to, and the steps that were kept in detail."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self.steps: list[dict[str, Any]] = told["kept"]
        self.kinds: list[str] = told["kinds"]

    def place(self, place: int) -> tuple[str, str, str, str, int, str]:
        """The name, phase, module, file, line and function of an op at a place."""
        told, places, sites = self.told, self.told["places"], self.told["sites"]
        site = places["site"][place]
        return (
            told["names"][places["name"][place]],
            told["phases"][places["phase"][place]],
            sites["module"][site],
            sites["file"][site],
            sites["line"][site],
            sites["function"][site],
        )

    def walk(self, step: dict[str, Any]) -> Iterator[tuple[Moment, list[int]]]:
        """Each event of a step, with the bytes of each kind after it, without workspace."""
        blocks, kinds = step["blocks"], len(self.kinds)
        level = [0] * kinds
        for there, size, kind in zip(blocks["there"], blocks["bytes"], blocks["kind"], strict=True):
            if there:
                level[kind] += size
        outside, other = max(step["outside"], 0), kinds - 1
        level[other] += outside
        took, workspace = iter(step["took"]), iter(step["workspace"])
        at = step["began"]
        for passed, code, of in zip(step["at"], step["code"], step["of"], strict=True):
            at += passed
            ran = code in (OP, REPLAY)
            moment = Moment(at / TICKS, code, of, next(took) / TICKS if ran else 0.0, next(workspace) if ran else 0)
            if code == OUTSIDE:
                level[other] += of
            elif not ran:
                level[blocks["kind"][of]] += blocks["bytes"][of] * (1 if code in (BORN, RETURNED) else -1)
            yield moment, level
