"""The moment at which a backward pass has returned to the program.

Autograd's own callbacks come before: whatever they change of a thread's state, its profiler included, is undone.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch


class _Here(threading.local):
    """How many backward passes are under way on this thread, one inside the other."""

    depth = 0


_here = _Here()
_waiting: list[Callable[[], object]] = []


def after_backward(call: Callable[[], object]) -> None:
    """Calls a function once when the next backward pass has returned; see :func:`prepare_backward`."""
    _waiting.append(call)


def prepare_backward() -> None:
    """Has backward passes that begin from here on say that they have returned, once for the process."""
    autograd: Any = torch.autograd
    run = autograd._engine_run_backward
    if getattr(run, "_says_so", False):
        return

    @functools.wraps(run)
    def saying_so(*args: Any, **kwargs: Any) -> Any:
        _here.depth += 1
        try:
            return run(*args, **kwargs)
        finally:
            _here.depth -= 1
            if _waiting and not _here.depth:
                calls, _waiting[:] = list(_waiting), []
                for call in calls:
                    call()

    saying_so._says_so = True  # type: ignore[attr-defined]
    autograd._engine_run_backward = saying_so
