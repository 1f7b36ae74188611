"""The time that ops take on a device. Launching one takes another time, which says nothing about the op."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from .devices import device_module, index_of, on_accelerator, synchronizer

#: Starts a measurement; the function that it returns ends it and gives the nanoseconds.
Clock = Callable[[], Callable[[], int]]


def clock_of(device: torch.device) -> Clock | None:
    """The clock of a device; ``None`` for the CPU, which computes while it is called.

    Two events of the current stream measure the work between them. Nothing needs to wait before the first; the second
    is waited for. Where a device has no events with times, all its work is waited for before and after.
    """
    return _clock(device.type, index_of(device)) if on_accelerator(device) else None


@functools.cache
def _clock(kind: str, index: int) -> Clock:
    device = torch.device(kind, index)
    for make in (_event_of_torch, _event_of_module):
        clock = functools.partial(_by_events, make, device)
        try:
            clock()()
        except (AttributeError, RuntimeError, NotImplementedError, TypeError):
            continue  # a device without such events says so by an error
        return clock
    return functools.partial(_by_waiting, device)


def _event_of_torch(device: torch.device) -> Any:
    event = torch.Event(device, enable_timing=True)
    event.record(torch.accelerator.current_stream(device.index))
    return event


def _event_of_module(device: torch.device) -> Any:
    event = device_module(device).Event(enable_timing=True)
    event.record()
    return event


def _by_events(make: Callable[[torch.device], Any], device: torch.device) -> Callable[[], int]:
    before = make(device)

    def stop() -> int:
        after = make(device)
        after.synchronize()
        return round(before.elapsed_time(after) * 1e6)

    return stop


def _by_waiting(device: torch.device) -> Callable[[], int]:
    wait = synchronizer(device) or (lambda: None)
    wait()
    before = time.perf_counter_ns()

    def stop() -> int:
        wait()
        return time.perf_counter_ns() - before

    return stop
