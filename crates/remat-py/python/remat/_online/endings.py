"""The end by a signal: runs finish their files, and the signal then ends the program as without a handler."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Signals that ask a program to end: by `kill`, and as its terminal goes away.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

#: What is done at the end, given the signal.
Action = Callable[[signal.Signals], None]

_actions: list[Action] = []
_pid = 0

#: Whether signals wait now, and the one that does.
_puts_off = False
_waiting: int | None = None


def at_signal(action: Action) -> Callable[[], None]:
    """Has ``action`` called before SIGTERM or SIGHUP ends the program; those that came later are called first.

    Nothing is done for a signal that the program handles or ignores itself (`nohup`), or outside of the main thread.
    Returns what ends it.
    """
    global _pid
    if threading.current_thread() is threading.main_thread():
        if _pid != os.getpid():
            _actions.clear()  # of the process that forked this one
            _pid = os.getpid()
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _ended)
    _actions.append(action)

    def undo() -> None:
        if action in _actions:
            _actions.remove(action)
        if not _actions and threading.current_thread() is threading.main_thread():
            for number in _handled():
                signal.signal(number, signal.SIG_DFL)

    return undo


@contextmanager
def put_off() -> Iterator[None]:
    """Has a first SIGTERM or SIGHUP that is handled here wait while this is active, which is to be short."""
    global _puts_off, _waiting
    if _puts_off or threading.current_thread() is not threading.main_thread():
        yield
        return
    _puts_off = True
    try:
        yield
    finally:
        _puts_off = False
        number, _waiting = _waiting, None
        if number is not None:
            _end_by(number)


def _handled() -> list[signal.Signals]:
    return [number for number in _SIGNALS if signal.getsignal(number) is _ended]


def _ended(number: int, _frame: FrameType | None) -> Any:
    global _waiting
    for other in _handled():
        # SIGHUP often comes twice, of the system and of a shell, or after SIGTERM. A second SIGTERM does not wait.
        signal.signal(other, signal.SIG_IGN if other == signal.SIGHUP else signal.SIG_DFL)
    if _puts_off and os.getpid() == _pid:
        _waiting = number
        return
    _end_by(number)


def _end_by(number: int) -> None:
    try:
        if os.getpid() == _pid:
            for action in reversed(_actions):
                action(signal.Signals(number))
    finally:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_forking = threading.local()


def _forks() -> None:
    """Has signals wait as a process is forked: Python forgets one that comes to the child before it knows itself."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _handled() else None


def _has_forked() -> None:
    mask, _forking.mask = getattr(_forking, "mask", None), None
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _forked() -> None:
    """A forked process has no files to finish. A handler in Python waits for calls of C to return, which may never be:
    workers of a pool wait for a lock that their parent holds as it ends them.
    """
    global _puts_off, _waiting
    _puts_off, _waiting = False, None  # the thread that writes is not there any more
    _actions.clear()
    for number in _handled():
        signal.signal(number, signal.SIG_DFL)
    _has_forked()


os.register_at_fork(before=_forks, after_in_parent=_has_forked, after_in_child=_forked)
