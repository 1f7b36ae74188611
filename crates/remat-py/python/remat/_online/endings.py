"""The end by SIGTERM: runs finish their files, and the signal then ends the program as without a handler."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_actions: list[Callable[[], None]] = []
_pid = 0


def at_sigterm(action: Callable[[], None]) -> Callable[[], None]:
    """Has ``action`` called before SIGTERM ends the program; those that came later are called first.

    Nothing is done where the program has a handler of its own, or outside of the main thread. Returns what ends it.
    """
    global _pid
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM)
    if main and handler is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _ended)
        _pid = os.getpid()
    elif main and handler is _ended and _pid != os.getpid():
        _actions.clear()  # of the process that forked this one
        _pid = os.getpid()
    _actions.append(action)

    def undo() -> None:
        if action in _actions:
            _actions.remove(action)
        here = threading.current_thread() is threading.main_thread()
        if not _actions and here and signal.getsignal(signal.SIGTERM) is _ended:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    return undo


def _ended(number: int, _frame: FrameType | None) -> Any:
    signal.signal(number, signal.SIG_DFL)
    try:
        if os.getpid() == _pid:
            for action in reversed(_actions):
                action()
    finally:
        os.kill(os.getpid(), number)
