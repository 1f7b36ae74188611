"""Processes that ``torch.multiprocessing`` starts to train in."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.multiprocessing

#: A function that processes run: it gets their numbers and further arguments.
Work = Callable[..., object]


@contextmanager
def started_processes(start: Callable[[Work, Callable[[Work], Any]], Any]) -> Iterator[None]:
    """While this is active, ``spawn`` and ``start_processes`` call ``start`` with their function and what starts one.

    That ``spawn`` finds the other in its own module, which has the name of the function, is not public.
    """
    places = (sys.modules["torch.multiprocessing.spawn"], torch.multiprocessing)
    usual = torch.multiprocessing.start_processes

    @functools.wraps(usual)
    def start_processes(fn: Work, *args: Any, **kwargs: Any) -> Any:
        return start(fn, lambda work: usual(work, *args, **kwargs))

    for place in places:
        place.start_processes = start_processes  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for place in places:
            place.start_processes = usual  # type: ignore[attr-defined]
