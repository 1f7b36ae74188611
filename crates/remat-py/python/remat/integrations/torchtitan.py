"""A budget as an ``activation_checkpoint`` of torchtitan's trainer."""

from __future__ import annotations

import atexit
from dataclasses import dataclass, field
from typing import Any

import torch
from torchtitan.distributed.activation_checkpoint import ActivationCheckpointing  # type: ignore[import-not-found]
from torchtitan.tools.logging import logger  # type: ignore[import-not-found]

from .._memory.amounts import Budget
from .._online.run import Run
from ._held import Held

#: The budget that this process entered last.
_held: Held | None = None


class BudgetAC(ActivationCheckpointing):
    """Trains inside a budget, in place of checkpoints of blocks.

    It stands where torchtitan's ``SelectiveAC`` and ``FullAC`` stand, in a function that makes a trainer's ``Config``.
    The budget holds from when the model is built to the end of the process, on each rank for itself.

    >>> from remat.integrations.torchtitan import BudgetAC  # doctest: +SKIP
    >>> config.activation_checkpoint = BudgetAC.Config(budget="40GiB")  # doctest: +SKIP
    """

    @dataclass(kw_only=True, slots=True)
    class Config(ActivationCheckpointing.Config):  # type: ignore[misc]
        """The arguments of :func:`remat.budget`. Settings of torch's checkpoints have no effect: there are none."""

        budget: Budget | dict[str, Budget]
        #: The other arguments of :func:`remat.budget`.
        choices: dict[str, Any] = field(default_factory=dict)

    def apply(self, model: torch.nn.Module) -> None:
        """Enters the budget, which stages of a pipeline in one process share. Errors as :func:`remat.budget`."""
        global _held
        held = Held(self.config.budget, self.config.choices)
        if _held is not None and _held.in_force and _held.arguments == held.arguments:
            return
        held.enter()
        atexit.register(_close, held)
        _held = held
        logger.info(f"Trains within a budget of {self.config.budget}")


def run() -> Run | None:
    """The run of this process, for its counters; ``None`` before a model was built."""
    return None if _held is None else _held.run


def _close(held: Held) -> None:
    """Leaves the budget, and says what the run came to."""
    held.leave()
    if held.run is not None:
        logger.info(f"Budget: {held.run.stats()}")
