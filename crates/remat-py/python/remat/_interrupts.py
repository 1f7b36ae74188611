"""Exceptions of signal handlers, which Python raises in the middle of whatever runs."""

from __future__ import annotations

import signal
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

import torch


def raise_interrupt(error: BaseException) -> None:
    """Raises an error again if a handler of a signal raised it, such as one that ends a call after some time.

    To be called where errors of a guarded call stand for an answer: those of a handler are nobody's answer.

    Up to Python 3.11 a ``RuntimeError`` replaces whatever is raised in ``__set_name__``, an interrupt too. Modules that
    torch imports while it works out a shape define many classes.
    """
    cause: BaseException | None = error
    while cause is not None:
        if not isinstance(cause, Exception):
            raise cause
        cause = cause.__cause__
    codes = _codes(error.__traceback__)
    if codes and not codes.isdisjoint(_handlers()):
        raise error


#: Where no handler is written: this package, and torch's calls of ops. To ask for all handlers takes a tenth of a ms.
_NONE_HERE = (str(Path(__file__).parent), torch._ops.__file__)


def _codes(traceback: TracebackType | None) -> set[CodeType]:
    """The code of the frames through which an error came, and which may be handlers."""
    found = set()
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_NONE_HERE):
            found.add(code)
        traceback = traceback.tb_next
    return found


def _handlers() -> set[CodeType]:
    """The code of all handlers that are written in Python."""
    found = (_code(signal.getsignal(number)) for number in range(1, signal.NSIG))
    return {code for code in found if code is not None}


def _code(handler: Any) -> CodeType | None:
    for _ in range(_WRAPPED):
        if callable(handler) and not hasattr(handler, "__code__"):
            # A method, a partial function, an object that can be called.
            handler = getattr(handler, "__func__", None) or getattr(handler, "func", None) or type(handler).__call__
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None


#: How often a handler may be wrapped in another callable.
_WRAPPED = 4
