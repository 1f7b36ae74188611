"""The floor of a run: the smallest budget that it gets through."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass

from .. import _native
from .._errors import BudgetError, RematError
from .choices import DEFAULT_POLICIES, POOLS

#: A budget in which recomputing takes more than so many times as long as the program's own ops is below the floor.
SLOWEST = 64.0


@dataclass(frozen=True)
class Floor:
    """The floor of a run that was recorded."""

    #: Every smaller budget is refused: bytes that must be there at once for some op, whatever is dropped.
    needed: int
    #: The smallest budget in which the engine gets through the run, in bytes; ``None`` if it is above the peak.
    works: int | None

    def refuse(self, budget: int, device: str) -> None:
        """Raises ``BudgetError`` for a budget that is certain to be refused later."""
        if budget < self.needed:
            raise self.refusal(budget, device)

    def refusal(self, budget: int, device: str) -> BudgetError:
        """The error for a budget below the floor."""
        smallest = self.needed if self.works is None else self.works
        return BudgetError("the run that was measured", self.needed, smallest, budget, device)


def floor_of_file(path: str) -> Floor:
    """The floor of a run recorded in a file; ``RematError`` where it left none."""
    if not os.path.exists(path):
        raise RematError("no floor is known of a run of more than 1048576 ops: measure fewer steps")
    return Floor(*_native.find_floor(path, DEFAULT_POLICIES[POOLS[0]], SLOWEST))


def floor_of(recorded: bytes | None) -> Floor:
    """As :func:`floor_of_file`, of what was in the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.trace.zst")
        if recorded is not None:
            with open(path, "wb") as file:
                file.write(recorded)
        return floor_of_file(path)
