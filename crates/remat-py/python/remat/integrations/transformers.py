"""A budget for ``transformers.Trainer``, and for the trainers of TRL, which are made of it."""

from __future__ import annotations

from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .._memory.amounts import Budget
from .._online.run import Run
from . import metrics
from ._held import Held


class RematCallback(TrainerCallback):
    """Trains inside a budget, and adds Remat's counters to what the trainer logs.

    ``budget`` and ``choices`` are those of :func:`remat.budget`. The budget holds from the beginning of training to its
    end, evaluation in between included. The counters come into the log history; for those of TensorBoard, W&B and the
    others too, add it by :meth:`add_to`, as a trainer tells its loggers first.

    >>> from transformers import Trainer  # doctest: +SKIP
    >>> trainer = Trainer(model, args, train_dataset=data)  # doctest: +SKIP
    >>> RematCallback("2GiB").add_to(trainer)  # doctest: +SKIP
    >>> trainer.train()  # doctest: +SKIP
    """

    def __init__(self, budget: Budget | dict[str, Budget], **choices: Any) -> None:
        self._held = Held(budget, choices)

    @property
    def run(self) -> Run | None:
        """The run in force, or the last one."""
        return self._held.run

    def add_to(self, trainer: Trainer) -> None:
        """Makes it the trainer's first callback."""
        trainer.callback_handler.callbacks.insert(0, self)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Enters the budget."""
        self._held.enter()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Adds the counters to the entry."""
        if self.run is None or logs is None:
            return
        counters = metrics(self.run)
        logs.update(counters)
        if state.log_history:
            state.log_history[-1].update(counters)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leaves the budget."""
        self._held.leave()
