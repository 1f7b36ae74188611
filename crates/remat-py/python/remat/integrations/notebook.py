"""A cell magic for notebooks: ``%load_ext remat``, then ``%%remat 2GiB`` at the top of a cell."""

from __future__ import annotations

import argparse
import html
import shlex
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import HTML, display

from .. import _native
from .._online.budget import budget as enter
from .._online.run import Stats


class CellFailed(Exception):
    """A cell within a budget ended by an error that IPython has shown, and would show once more if it came again."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the cell ended by {type(error).__name__}")
        #: The error.
        self.error = error

    def _render_traceback_(self) -> list[str]:
        return []


class _Helped(Exception):
    """The help was asked for, and shown."""


class _Parser(argparse.ArgumentParser):
    """Tells what is wrong with a magic's line in the cell, and does not end the kernel."""

    def error(self, message: str) -> Any:
        raise UsageError(f"%%remat: {message}")

    def exit(self, status: int = 0, message: str | None = None) -> Any:
        raise _Helped


def _parser() -> _Parser:
    parser = _Parser(prog="%%remat", description="Run a cell inside a byte budget.")
    parser.add_argument("budget", help="such as 2GiB, 80%% of the device's memory, or auto")
    parser.add_argument("--device", help="the device that it is of (default: the accelerator in use, else cpu)")
    parser.add_argument("--plan", help="auto (the default), off, or a file of plans to follow")
    return parser


def register(shell: InteractiveShell) -> None:
    """Gives a shell the magic."""

    def remat(line: str, cell: str) -> None:
        """Runs the cell inside a budget and shows what it came to."""
        try:
            given = _given(line)
        except _Helped:
            return
        try:
            context = enter(given.pop("budget"), **given)
        except (ValueError, OSError) as error:
            raise UsageError(f"%%remat: {error}") from None
        with context as run:
            done = shell.run_cell(cell)
        failed = done.error_before_exec or done.error_in_exec
        display(HTML(report(run.stats(), failed)))  # type: ignore[no-untyped-call]
        if failed is not None:
            raise _shown(failed)  # what runs cells one after another stops here

    shell.register_magic_function(remat, magic_kind="cell")  # type: ignore[no-untyped-call,call-arg,arg-type]


def _given(line: str) -> dict[str, Any]:
    """The budget and the choices that a magic's line gives; ``UsageError`` for one that makes no sense."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        way_out = "quotes come in pairs, a backslash before another character"
        raise UsageError(f"%%remat: {line!r}: {error}; {way_out}") from None
    return {name: value for name, value in vars(_parser().parse_args(words)).items() if value is not None}


def _shown(error: BaseException) -> BaseException:
    """The error of a cell, which has shown it, as one that IPython shows no more."""
    if isinstance(error, _SHOWN_ANYHOW):
        return CellFailed(error)
    try:
        error._render_traceback_ = list  # type: ignore[attr-defined]
    except Exception:  # its class may refuse attributes in any way
        return CellFailed(error)
    return error


#: Errors that IPython shows in ways of its own.
_SHOWN_ANYHOW = (SyntaxError, SystemExit, UsageError)


def report(stats: Stats, error: BaseException | None = None) -> str:
    """Counters of a run as a table in HTML. A refused budget comes with the one to try next.

    >>> import torch, remat
    >>> from remat.integrations.notebook import report
    >>> with remat.budget("64MiB") as run:
    ...     x = torch.ones(1024).exp()
    >>> "64.00 MiB" in report(run.stats())
    True
    """
    fmt, seconds = _native.format_bytes, max(stats.seconds, 1e-9)
    rows = {
        "peak": f"{fmt(stats.peak)} of {fmt(stats.budget)}" if stats.budget else fmt(stats.peak),
        "evictions": f"{stats.evictions:,}",
        "ops": f"{stats.ops:,}, and {stats.recomputed:,} recomputed",
        "time": f"{stats.seconds:.2f} s, {stats.slowdown:.2f} times as long as without recomputing and deciding",
        "recomputing": f"{stats.recompute_seconds / seconds:.1%}",
        "deciding": f"{stats.decide_seconds / seconds:.1%}",
    }
    suggested = getattr(error, "suggested", None)
    if suggested is not None:
        rows["to try next"] = f"%%remat {fmt(suggested)}"
    cells = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(text)}</td></tr>" for name, text in rows.items())
    return f"<table><caption>remat</caption>{cells}</table>"
