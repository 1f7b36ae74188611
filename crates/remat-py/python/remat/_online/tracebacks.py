"""Tracebacks of a program that Remat runs, without the frames of Remat."""

from __future__ import annotations

import os
import sys
import threading
import types
from types import TracebackType

from .. import _native

_HERE = os.path.dirname(os.path.abspath(_native.__file__)) + os.sep


def _without_own_frames(trace: TracebackType | None, main: types.CodeType) -> TracebackType | None:
    """A traceback without the frames of this package and without those that led to ``main``."""
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code is main:
            kept.clear()
        elif not trace.tb_frame.f_code.co_filename.startswith(_HERE):
            kept.append(trace)
        trace = trace.tb_next
    shown: TracebackType | None = None
    for trace in reversed(kept):
        shown = TracebackType(shown, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return shown


def _hide_own_frames(error: BaseException, main: types.CodeType) -> None:
    """Takes this package's frames out of the traceback of an exception, and of all exceptions that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        link.__traceback__ = _without_own_frames(link.__traceback__, main)
        waiting += [link.__cause__, link.__context__]


def own_frames_hidden(main: types.CodeType) -> None:
    """Has tracebacks show the program's own frames alone, as under plain Python.

    Neither those of this package are shown nor those that led to ``main``, which runs the program.
    """
    show, show_in_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        value.__traceback__ = trace
        _hide_own_frames(value, main)
        show(kind, value, value.__traceback__)

    def hook_in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None:
            show_in_thread(args)
            return
        _hide_own_frames(args.exc_value, main)
        shown = (args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread)
        show_in_thread(threading.ExceptHookArgs(shown))

    sys.excepthook, threading.excepthook = hook, hook_in_thread
