"""A budget for Lightning's ``Trainer``."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from .._memory.amounts import Budget
from .._online.run import Run
from . import metrics
from ._held import Held


class RematCallback(Callback):
    """Fits inside a budget, and gives Remat's counters to the trainer's loggers every ``log_every_n_steps``.

    ``budget`` and ``choices`` are those of :func:`remat.budget`. The budget holds from the first training step to the
    last one, validation in between included, and ends with an error of the loop as well.

    >>> from lightning import Trainer  # doctest: +SKIP
    >>> Trainer(callbacks=[RematCallback("2GiB")]).fit(model, data)  # doctest: +SKIP
    """

    def __init__(self, budget: Budget | dict[str, Budget], **choices: Any) -> None:
        self._held = Held(budget, choices)

    @property
    def run(self) -> Run | None:
        """The run in force, or the last one."""
        return self._held.run

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Enters the budget."""
        self._held.enter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Logs the counters now and then."""
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if self.run is not None and every and trainer.global_step % every == 0:
            self._log(trainer, self.run)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leaves the budget, and logs what the run came to."""
        self._held.leave()
        if self.run is not None:
            self._log(trainer, self.run)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leaves the budget."""
        self._held.leave()

    def _log(self, trainer: Trainer, run: Run) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(metrics(run), step=trainer.global_step)
