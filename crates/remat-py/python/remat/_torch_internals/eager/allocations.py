"""Bytes that the allocator gives out while something runs: by an accelerator's statistics, or torch's CPU profiler."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from ..._errors import RematError
from .devices import on_accelerator
from .statistics import Statistics, statistics_of
from .tensors import home

_T = TypeVar("_T")

#: Ops that have a tensor take over other memory. They allocate none, and torch's profiler would complain of the block
#: that the tensor lets go of, which it has not seen.
_TAKING_OVER = frozenset(getattr(torch.ops.aten.set_, name)._op for name in torch.ops.aten.set_.overloads())


def measured_call(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, int | None]:
    """Runs an op and measures its workspace: the most bytes that it allocated on top of those that it leaves.

    ``None`` where it cannot be measured: on the CPU while a profiler of the program's own is active, and on
    accelerators whose allocators keep no statistics.
    """
    kwargs = kwargs or {}
    if call in _TAKING_OVER:
        return call(*args, **kwargs), 0
    device = home(args, kwargs)
    give_way()
    if not (statistics_of(device) if on_accelerator(device) else not torch.autograd._profiler_enabled()):
        return call(*args, **kwargs), None
    result, left, peak = allocations(lambda: call(*args, **kwargs), device)
    return result, max(0, peak - max(left, 0))


def allocations(call: Callable[[], _T], device: torch.device) -> tuple[_T, int, int]:
    """Runs a call; returns its result, the bytes that it leaves allocated on a device, and the most bytes during it.

    Raises ``RematError`` on the CPU while a profiler of the program's own is active, for torch has but one, and on
    accelerators whose allocators keep no statistics.
    """
    if on_accelerator(device):
        return _allocations_on(device, call)
    give_way()
    if torch.autograd._profiler_enabled():
        raise RematError("bytes cannot be measured while a profiler is active: measure before it starts")
    _profile_memory()
    try:
        result = call()
    finally:
        records = torch.autograd._disable_profiler_legacy()
    level, peak = _level_and_peak(records)
    return result, level, peak


def wait_for_autograd(device: torch.device) -> None:
    """Waits until autograd's thread of an accelerator has let go of what it ran last; the CPU has no such thread.

    The thread tells of the end of a backward pass before it frees the last node, with the tensors that this holds.
    Bytes that are counted from then on would be too few. It runs one node after another: once it has run that of a
    tensor without numbers, which takes no bytes, nothing is held.
    """
    if on_accelerator(device) and torch._C._current_graph_task_id() == -1:  # -1: no backward pass runs this
        with torch.inference_mode(False), torch.enable_grad():
            empty = torch.empty(0, device=device, requires_grad=True)
            torch.autograd.grad(empty * 1, empty, torch.empty(0, device=device))


def _allocations_on(device: torch.device, call: Callable[[], _T]) -> tuple[_T, int, int]:
    statistics = statistics_of(device)
    if statistics is None:
        raise RematError(f"bytes cannot be measured on {device}: its allocator keeps no statistics")
    watch = statistics.watch()
    try:
        result = call()
    finally:
        peak = watch.stop()
    return result, statistics.allocated() - watch.base, peak - watch.base


@dataclass(frozen=True)
class Segment:
    """A part of a program between two marks; bytes are on top of those at the start of the count."""

    name: str
    #: Bytes at its beginning.
    level: int
    #: Most bytes in it.
    peak: int


class Allocations:
    """Counts the bytes that the allocator gives out between two points of a program, on one thread.

    On the CPU it gives way to every other use of torch's profiler.
    """

    def __init__(self, statistics: Statistics | None) -> None:
        self._statistics = statistics
        self._stopped = False
        self._segments: list[Segment] = []
        if statistics is not None:
            self._base = statistics.allocated()
            self._watch = statistics.watch()

    @classmethod
    def start(cls, device: torch.device) -> Allocations | None:
        """Counts from here on; ``None`` where that cannot be measured (see :func:`measured_call`)."""
        if on_accelerator(device):
            statistics = statistics_of(device)
            return None if statistics is None else cls(statistics)
        give_way()
        if torch.autograd._profiler_enabled():
            return None
        _others_first()
        _profile_memory()
        _here.count = cls(None)
        return _here.count

    @property
    def counts(self) -> bool:
        """Whether it still counts, here: on its own thread, and nothing else uses torch's profiler."""
        return not self._stopped if self._statistics is not None else _here.count is self

    def mark(self, name: str) -> None:
        """Begins a segment."""
        if not self.counts:
            return
        if self._statistics is None:
            with torch.autograd.profiler.record_function(_MARK + name):
                pass
        else:
            self._cut(self._statistics, name)

    def _cut(self, statistics: Statistics, name: str) -> None:
        peak = self._watch.stop() - self._base
        self._watch = statistics.watch()
        level = self._watch.base - self._base
        if self._segments:
            latest = self._segments[-1]
            self._segments[-1] = replace(latest, peak=max(latest.peak, peak))
        self._segments.append(Segment(name, level, level))

    def stop(self) -> list[Segment]:
        """Ends the count; returns the segments from the first mark on."""
        if self.counts:
            self._stopped = True
            if self._statistics is not None:
                self._cut(self._statistics, "")
                self._watch.stop()
                self._segments.pop()
            else:
                _here.count = None
                self._segments = _segments(torch.autograd._disable_profiler_legacy())
        return self._segments


class _Here(threading.local):
    """The count that is under way on the CPU, on this thread: torch has one profiler a thread."""

    count: Allocations | None = None


_here = _Here()


def give_way() -> None:
    """Ends a count that is under way on this thread: torch's profiler is needed for something else."""
    if _here.count is not None:
        _here.count.stop()


atexit.register(give_way)


def _others_first() -> None:
    """Has counts give way to the program's own profilers, once for the process."""
    profiler: Any = torch.autograd.profiler
    enable = profiler._enable_profiler
    if getattr(enable, "_gives_way", False):
        return

    @functools.wraps(enable)
    def giving_way(*args: Any, **kwargs: Any) -> Any:
        give_way()
        return enable(*args, **kwargs)

    giving_way._gives_way = True  # type: ignore[attr-defined]
    profiler._enable_profiler = giving_way


#: Before the names of marks in the profiler's records.
_MARK = "remat: "


def _segments(records: Any) -> list[Segment]:
    found: list[Segment] = []
    level = 0
    for thread in records:
        for event in thread:
            if event.kind() == "push" and event.name().startswith(_MARK):
                found.append(Segment(event.name().removeprefix(_MARK), level, level))
            elif event.kind() == "memory_alloc":
                level += event.cpu_memory_usage()
                if found and level > found[-1].peak:
                    found[-1] = replace(found[-1], peak=level)
    return found


def _profile_memory() -> None:
    config = torch.autograd.ProfilerConfig(
        torch.autograd.ProfilerState.CPU,
        False,
        True,
        False,
        False,
        False,
        torch._C._profiler._ExperimentalConfig(),
    )
    torch.autograd._enable_profiler_legacy(config)


def _level_and_peak(records: Any) -> tuple[int, int]:
    level = peak = 0
    for thread in records:
        for event in thread:
            if event.kind() == "memory_alloc":
                level += event.cpu_memory_usage()
                peak = max(peak, level)
    return level, peak
