"""Statistics that the caching allocator of an accelerator keeps: bytes of the blocks that it gave out.

From torch 2.9 on they are those of ``torch.accelerator``, for every accelerator whose allocator keeps any. Before, the
device's module (``torch.cuda``, ``torch.xpu``) has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .devices import blank_storage, device_module, index_of, on_accelerator


@dataclass(eq=False)
class Statistics:
    """The statistics of one device's allocator."""

    _read: Callable[[], Any]
    _restart: Callable[[], Any]
    _watches: list[Watch] = field(default_factory=list)

    def allocated(self) -> int:
        """Bytes of the blocks that are given out now. Blocks are of the allocator's sizes, not of the tensors'."""
        return int(self._read()["allocated_bytes"]["all"]["current"])

    def watch(self) -> Watch:
        """Watches for the peak from here on. Torch's own peak starts anew; watches that go on know the one before."""
        bytes_ = self._read()["allocated_bytes"]["all"]
        for watch in self._watches:
            watch.see(int(bytes_["peak"]))
        self._restart()
        self._watches.append(Watch(self, int(bytes_["current"])))
        return self._watches[-1]


@dataclass(eq=False)
class Watch:
    """A peak that is watched for."""

    _statistics: Statistics
    #: Bytes that were given out at its start.
    base: int
    _seen: int = 0

    def see(self, peak: int) -> None:
        """Takes in the peak up to now."""
        self._seen = max(self._seen, peak)

    def peak(self) -> int:
        """Most bytes given out since the start."""
        self.see(int(self._statistics._read()["allocated_bytes"]["all"]["peak"]))
        return self._seen

    def stop(self) -> int:
        """Ends the watch; returns the peak."""
        peak = self.peak()
        self._statistics._watches.remove(self)
        return peak


def statistics_of(device: torch.device) -> Statistics | None:
    """The statistics of a device; ``None`` for the CPU, and for accelerators that keep none."""
    return _statistics(device.type, index_of(device)) if on_accelerator(device) else None


@functools.cache
def _statistics(kind: str, index: int) -> Statistics | None:
    blank_storage(torch.device(kind, index), 1)  # there are no statistics before the first allocation
    for found in (_of_accelerator(index), _of_module(kind, index)):
        if found is not None:
            try:
                found.allocated()
            except (AttributeError, KeyError, RuntimeError, NotImplementedError, TypeError):
                continue  # an allocator without statistics says so by an error
            return found
    return None


def _of_accelerator(index: int) -> Statistics | None:
    internals: Any = torch._C
    read = getattr(internals, "_accelerator_getDeviceStats", None)
    restart = getattr(internals, "_accelerator_resetPeakStats", None)
    if read is None or restart is None:
        return None
    return Statistics(lambda: read(index), lambda: restart(index))


def _of_module(kind: str, index: int) -> Statistics | None:
    module = device_module(torch.device(kind, index))
    read = getattr(getattr(module, "memory", None), "memory_stats_as_nested_dict", None)
    restart = getattr(module, "reset_peak_memory_stats", None)
    if read is None or restart is None:
        return None
    return Statistics(lambda: read(index), lambda: restart(index))


def block_size(device: torch.device) -> int:
    """Bytes of the smallest block that a device's allocator gives out; sizes are multiples of it. 1 for the CPU."""
    return _block_size(device.type, index_of(device)) if on_accelerator(device) else 1


@functools.cache
def _block_size(kind: str, index: int) -> int:
    device = torch.device(kind, index)
    statistics = statistics_of(device)
    if statistics is None:
        return 1
    before = statistics.allocated()
    probe = blank_storage(device, 1)
    size = statistics.allocated() - before
    del probe
    return max(size, 1)
