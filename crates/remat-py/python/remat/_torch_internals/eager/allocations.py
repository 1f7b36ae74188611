"""Bytes that the allocator gives out while something runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from ..._errors import RematError
from .tensors import tensors_of

_T = TypeVar("_T")


def measured_call(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, int | None]:
    """Runs an op and measures its workspace: the most bytes that it allocated on top of those that it leaves.

    ``None`` where it cannot be measured (a profiler of the program's own is active).
    """
    kwargs = kwargs or {}
    tensors = tensors_of(args) + tensors_of(kwargs)
    cuda = next((t.device for t in tensors if t.device.type == "cuda"), None)
    if cuda is None and torch.autograd._profiler_enabled():
        return call(*args, **kwargs), None
    result, left, peak = allocations(lambda: call(*args, **kwargs), cuda or torch.device("cpu"))
    return result, max(0, peak - max(left, 0))


def allocations(call: Callable[[], _T], device: torch.device) -> tuple[_T, int, int]:
    """Runs a call; returns its result, the bytes that it leaves allocated on a device, and the most bytes during it.

    Raises ``RematError`` on the CPU while a profiler of the program's own is active: torch has but one.
    """
    if device.type == "cuda":
        return _allocations_cuda(call, device)
    if torch.autograd._profiler_enabled():
        raise RematError("bytes cannot be measured while a profiler is active: measure before it starts")
    _profile_memory()
    try:
        result = call()
    finally:
        records = torch.autograd._disable_profiler_legacy()
    level, peak = _level_and_peak(records)
    return result, level, peak


class Allocations:
    """Counts the bytes that the allocator gives out between two points of a program, on one thread."""

    def __init__(self, device: torch.device, base: int) -> None:
        self._device, self._base = device, base

    @classmethod
    def start(cls, device: torch.device) -> Allocations | None:
        """Counts from here on; ``None`` while a profiler of the program's own is active."""
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            return cls(device, torch.cuda.memory_allocated(device))
        if torch.autograd._profiler_enabled():
            return None
        _profile_memory()
        return cls(device, 0)

    def stop(self) -> int:
        """Ends the count; returns the most bytes on top of those at the start."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return torch.cuda.max_memory_allocated(self._device) - self._base
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


def _allocations_cuda(call: Callable[[], _T], device: torch.device) -> tuple[_T, int, int]:
    torch.cuda.synchronize(device)
    base = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return result, torch.cuda.memory_allocated(device) - base, peak - base
