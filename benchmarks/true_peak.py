"""The true peak of a computation: what the allocator saw, measured apart from Remat.

On CPU the allocator's own events are read from `torch.profiler` and summed in the order of time, starting
from the bytes of the tensors that exist. On CUDA the caching allocator keeps the peak itself.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.profiler import ProfilerActivity, profile

# A row of the allocator's log: time in ns, bytes taken (positive) or given back (negative).
MemoryEvent = tuple[int, int]


def true_peak(fn: Callable[[], object], device: torch.device | str = "cpu") -> int:
    """The most bytes held on `device` at any moment of `fn()`, those resident before the call included.

    On CPU, memory taken before the call counts to the end even if `fn` gives it back, because the profiler
    does not report such a release: the number is never too small.
    """
    device = torch.device(device)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        fn()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    resident = resident_bytes(device)
    return resident + highest_sum(cpu_memory_events(fn))


def resident_bytes(device: torch.device | str = "cpu") -> int:
    """Bytes of all distinct storages on `device` under tensors and gradients in Python's reach."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    return sum(resident_storages(device).values())


def resident_storages(device: torch.device | str = "cpu") -> dict[int, int]:
    """Bytes of each storage on `device` under tensors and gradients in Python's reach, by its address."""
    kind, storages = torch.device(device).type, {}
    for tensor in living_tensors():
        if tensor.device.type == kind and tensor.layout is torch.strided:
            while is_functorch_wrapped_tensor(tensor):
                tensor = get_unwrapped(tensor)
            storage = tensor.untyped_storage()
            if storage.device.type == kind:  # a compiler's fake tensors have no memory
                storages[storage._cdata] = storage.nbytes()
    return storages


def living_tensors() -> Iterator[torch.Tensor]:
    """Every tensor the garbage collector knows, and the gradient of every leaf."""
    # type() rather than isinstance(): lazy proxies of other libraries answer isinstance by importing things.
    for tensor in [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]:
        yield tensor
        if tensor.is_leaf and tensor.grad is not None:
            yield tensor.grad


def cpu_memory_events(fn: Callable[[], object]) -> list[MemoryEvent]:
    """The CPU allocator's log of `fn()`, in order of time."""
    with silent_stderr(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        recorder = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        with recorder:
            fn()
    events = recorder.profiler.kineto_results.events()
    log = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    return sorted(log, key=lambda event: event[0])


def highest_sum(log: Iterable[MemoryEvent]) -> int:
    """The highest running total of a log that starts at 0 bytes."""
    held = peak = 0
    for _, taken in log:
        held += taken
        peak = max(peak, held)
    return peak


@contextmanager
def silent_stderr() -> Iterator[None]:
    """Drops what the profiler's C++ side prints on every start about devices that are not there."""
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)
