"""Bytes that the allocator gives out while something runs: by an accelerator's statistics, or torch's CPU profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..._errors import RematError
from .devices import on_accelerator
from .statistics import Watch, statistics_of
from .tensors import home

_T = TypeVar("_T")


def measured_call(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, int | None]:
    """Runs an op and measures its workspace: the most bytes that it allocated on top of those that it leaves.

    ``None`` where it cannot be measured: on the CPU while a profiler of the program's own is active, and on
    accelerators whose allocators keep no statistics.
    """
    kwargs = kwargs or {}
    device = home(args, kwargs)
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
    if torch.autograd._profiler_enabled():
        raise RematError("bytes cannot be measured while a profiler is active: measure before it starts")
    _profile_memory()
    try:
        result = call()
    finally:
        records = torch.autograd._disable_profiler_legacy()
    level, peak = _level_and_peak(records)
    return result, level, peak


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


class Allocations:
    """Counts the bytes that the allocator gives out between two points of a program, on one thread."""

    def __init__(self, watch: Watch | None) -> None:
        self._watch = watch

    @classmethod
    def start(cls, device: torch.device) -> Allocations | None:
        """Counts from here on; ``None`` where that cannot be measured (see :func:`measured_call`)."""
        if on_accelerator(device):
            statistics = statistics_of(device)
            return None if statistics is None else cls(statistics.watch())
        if torch.autograd._profiler_enabled():
            return None
        _profile_memory()
        return cls(None)

    def stop(self) -> int:
        """Ends the count; returns the most bytes on top of those at the start."""
        if self._watch is not None:
            return self._watch.stop() - self._watch.base
        return _level_and_peak(torch.autograd._disable_profiler_legacy())[1]


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
