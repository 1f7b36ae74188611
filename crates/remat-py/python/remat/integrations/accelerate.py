"""A budget for loops with Accelerate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator  # type: ignore[import-untyped]

from .._memory.amounts import Budget
from .._online.run import Run
from . import metrics
from ._held import Held


@contextmanager
def budget(accelerator: Accelerator, budget: Budget | dict[str, Budget], **choices: Any) -> Iterator[Run]:
    """Trains inside a budget, and adds Remat's counters to each ``accelerator.log(...)`` within.

    ``budget`` and ``choices`` are those of :func:`remat.budget`, and so are the errors.

    >>> from accelerate import Accelerator  # doctest: +SKIP
    >>> accelerator = Accelerator(log_with="tensorboard")  # doctest: +SKIP
    >>> with remat.integrations.accelerate.budget(accelerator, "2GiB") as run:  # doctest: +SKIP
    ...     train(accelerator)
    """
    log, held = accelerator.log, Held(budget, choices)
    own = vars(accelerator).get("log")  # that the program set in place of the method of the class

    def with_counters(values: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return log({**values, **metrics(run)}, *args, **kwargs)

    run = held.enter()
    accelerator.log = with_counters
    try:
        yield run
    finally:
        if vars(accelerator).get("log") is with_counters:  # the program has set none since
            del accelerator.log
            if own is not None:
                accelerator.log = own
        held.leave()
