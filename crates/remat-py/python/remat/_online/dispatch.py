"""The two ways by which torch's ops reach a session: natively, or through a dispatch mode of Python."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from .. import _native
from .._errors import RematError
from .._torch_internals import eager
from .._warnings import warn

WAYS = ("native", "python")


class Dispatch(Protocol):
    """A way by which ops of a thread reach a session."""

    #: ``"native"`` or ``"python"``.
    name: str

    def enter(self) -> None:
        """Has ops of this thread reach the session."""

    def leave(self) -> None:
        """Ends that for this thread, and the session's part in other threads."""

    def forget(self) -> None:
        """Lets go of what replays needed while the budget was left."""

    def drop(self) -> None:
        """Ends that in a forked child, whose stack of modes may have grown since."""

    def in_thread(self) -> Any:
        """A context in which ops of a new thread reach the session."""


class PythonDispatch:
    """Through a dispatch mode: torch enters Python for every op."""

    name = "python"

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        if eager.objects_race() and eager.watch_storages() is None:
            self._mode.watch_storages()

    def enter(self) -> None:
        self._mode.__enter__()

    def leave(self) -> None:
        self._mode.__exit__(None, None, None)

    def forget(self) -> None:
        pass

    def drop(self) -> None:
        eager.drop_mode(self._mode)

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        eager.push_mode(self._mode)
        try:
            yield
        finally:
            eager.pop_mode()


class NativeDispatch:
    """Through a fallback on torch's dispatcher: Python is entered for what is new."""

    name = "native"

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._mode.watch_storages()
        self._graphs: Any = None
        self._compile = torch.compile

    def enter(self) -> None:
        self._mode.enter_native(eager)
        # Code that is compiled stays so: each of its graphs is one op to the budget.
        if "torch._dynamo" in sys.modules:
            self._watch_graphs()
        else:
            torch.compile = self._compile_first
        _native.include_native(True)

    def _watch_graphs(self) -> None:
        from .._torch_internals.compiled import CompiledGraphs

        self._graphs = CompiledGraphs()
        self._graphs.enter()

    def _compile_first(self, *args: Any, **kwargs: Any) -> Any:
        torch.compile = self._compile
        self._watch_graphs()
        return torch.compile(*args, **kwargs)

    def leave(self) -> None:
        _native.include_native(False)
        _native.leave_native()
        torch.compile = self._compile
        if self._graphs is not None:
            self._graphs.leave()

    def forget(self) -> None:
        if self._graphs is not None:
            self._graphs.forget()

    def drop(self) -> None:
        self.leave()

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        _native.include_native(True)
        try:
            yield
        finally:
            _native.include_native(False)


#: By then a program has shown in some step how much it needs.
FIRST_OPS = 1024


def always_recorded() -> int | None:
    """How many of a run's first ops are recorded, however little memory the run needs; ``None`` for all.

    The environment variable ``REMAT_RECORD`` says: ``always``, or a number of ops. Raises ``ValueError`` for anything
    else.
    """
    asked = os.environ.get("REMAT_RECORD", "")
    if asked == "always":
        return None
    if asked and not (asked.isascii() and asked.isdigit() and len(asked) <= 18):
        raise ValueError(f"REMAT_RECORD={asked!r}: expected 'always' or a number of ops, e.g. {FIRST_OPS}")
    return int(asked) if asked else FIRST_OPS


def way_for() -> type[PythonDispatch] | type[NativeDispatch]:
    """The way that the environment variable ``REMAT_DISPATCH`` asks for.

    Without it, that is ``native`` where this build of torch allows it and the tests ran with its release. Elsewhere a
    warning says why it is not, once.

    Raises ``ValueError`` for a way that does not exist, and ``RematError`` for ``native`` where it is asked for and
    not possible.
    """
    asked = os.environ.get("REMAT_DISPATCH", "")
    if asked not in ("", *WAYS):
        raise ValueError(f"REMAT_DISPATCH={asked!r}: expected {' or '.join(map(repr, WAYS))}")
    if asked == "python":
        return PythonDispatch
    reason = (None if asked else eager.not_run_natively()) or eager.prepare_native()
    if reason is None:
        if parts := eager.parts_through_python():
            _say_parts_once(parts)
        return NativeDispatch
    if asked == "native":
        raise RematError(f"REMAT_DISPATCH=native: {reason}; unset the variable to use a dispatch mode of Python")
    _say_once(reason)
    return PythonDispatch


@functools.cache
def _say_parts_once(parts: tuple[str, ...]) -> None:
    """The same bits in more time: in the report of a run, and once for all runs."""
    what = "native dispatch leaves a part to Python, which takes longer, with this build of torch"
    warn(f"{what}: {'; '.join(parts)}")


@functools.cache
def _say_once(reason: str) -> None:
    why = f"every op goes through Python, which takes longer, because native dispatch is not possible: {reason}"
    warn(f"{why}; REMAT_DISPATCH=python chooses that without a warning")
