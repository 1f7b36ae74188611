"""The news of a run from ``remat run``: a line on a terminal while it goes on, and a report at its end."""

from __future__ import annotations

import _thread
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, get_args

from .. import _native
from .._outputs import write_whole
from .endings import at_signal
from .standard_error import is_a_terminal, tell

if TYPE_CHECKING:
    from .run import Run, Stats

#: What is told: nothing, the report, or the report and on a terminal the line.
Log = Literal["off", "report", "status"]

#: Seconds between two lines.
_PAUSE = 1.0


def log_of(environment: Mapping[str, str]) -> Log:
    """The choice of ``REMAT_LOG``; ``ValueError`` for one that there is not."""
    asked = environment.get("REMAT_LOG", "status")
    if asked not in get_args(Log):
        raise ValueError(f"REMAT_LOG {asked!r}: expected off, report or status")
    return asked  # type: ignore[return-value]


def status_line(stats: Stats) -> str:
    """A run in a line: how long, how far, the budget in use, what it costs."""
    fmt = _native.format_bytes
    steps = f", {stats.plan.steps} steps as planned" if stats.plan is not None and stats.plan.steps else ""
    of = f" of {fmt(stats.budget)}" if stats.budget else ""
    return (
        f"remat: {stats.seconds:.0f} s{steps}, {stats.ops} ops, {fmt(stats.used)}{of} in use, "
        f"{stats.evictions} evictions, {stats.slowdown:.2f} times as long"
    )


class Reports:
    """Tells of a run from its beginning to its end, however that comes."""

    def __init__(self, run: Run, log: Log, file: str | None, argv: list[str]) -> None:
        self._run = run
        self._log = log
        self._file = file
        self._argv = argv
        self._pid = os.getpid()
        self._latest: Stats | None = None
        self._ended = threading.Event()
        self._written = False
        self._told = threading.RLock()  # a signal may end the program as the report is written
        self._shows = log == "status" and is_a_terminal()
        self._undo: Callable[[], None] = lambda: None

    def __enter__(self) -> Reports:
        if self._shows:
            # Not a `threading.Thread`, of which the program would see one more.
            _thread.start_new_thread(self._show, ())
        self._undo = at_signal(self._signalled)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a child of a fork; the report is its parent's
        try:
            self._tell(self._run.stats(), _end_of(value))
        finally:
            self._undo()

    def _tell(self, stats: Stats | None, end: str) -> None:
        self._ended.set()
        with self._told:
            unwritten = self._write(_report(stats, end, self._argv))
            self._written = True
            if self._shows:
                tell("\r\x1b[K")
            if unwritten is not None:
                tell(f"remat: the report {self._file!r} was not written: {unwritten.strerror}\n")
            if self._log != "off":
                tell(f"remat: {stats or 'ended amid an op, without figures'}\n")

    def _write(self, report: dict[str, Any]) -> OSError | None:
        """Writes the file, if there is to be one. A program that has run does not fail for it."""
        if self._file is None:
            return None
        try:
            write_whole(self._file, f"{json.dumps(report, indent=2)}\n".encode())
        except OSError as error:
            return error
        return None

    def _show(self) -> None:
        while not self._ended.wait(_PAUSE):
            stats = self._stats()
            with self._told:
                if stats is not None and not self._ended.is_set():
                    self._latest = stats
                    tell(f"\r\x1b[K{status_line(stats)}")

    def _stats(self) -> Stats | None:
        try:
            return self._run.stats()
        except RuntimeError:
            return None  # this thread is amid an op

    def _signalled(self, number: signal.Signals) -> None:
        if not self._written:
            self._tell(self._stats() or self._latest, number.name)


def _end_of(error: BaseException | None) -> str:
    """How a program ended."""
    if error is None:
        return "done"
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
        return "done" if code == 0 else f"exit {code}"
    return f"{type(error).__name__}: {_text_of(error)}"


def _text_of(error: BaseException) -> str:
    """The text of an error, of whatever class of the program; one that has none reads as in Python's tracebacks."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def _report(stats: Stats | None, end: str, argv: list[str]) -> dict[str, Any]:
    """The report for programs."""
    told: dict[str, Any] = {"format": "remat-run", "version": 1, "argv": argv, "end": end, "at": time.time()}
    if stats is not None:
        told |= {"slowdown": stats.slowdown, **asdict(stats)}
    return told
