"""The peak that the CPU allocator saw: the profiler's ``[memory]`` events on top of what was resident before.

It shares no code with Remat, so a wrong account in Remat cannot hide here.
"""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile


@dataclass
class Peak:
    """Bytes resident at the start and at the highest point; all but `base` are filled in when the block ends.

    `left` are those resident at the end. The profiler misses what threads free that it does not know: `left` is then
    more than what is really there, and `highest` too high by as much at most.
    """

    base: int = 0
    highest: int = 0
    left: int = 0
    events: int = 0
    since: int = 0

    def restart(self) -> None:
        """Only what is resident from here on counts."""
        time.sleep(0.01)  # the profiler's clock and this one agree to within microseconds
        self.since = time.time_ns()
        time.sleep(0.01)


def live_tensors() -> list[torch.Tensor]:
    """Every tensor a Python object exists for, gradients included."""
    found: list[torch.Tensor] = []
    for thing in gc.get_objects():
        # `type` and not `isinstance`: a proxy's `__class__` would run code of its own.
        if issubclass(type(thing), torch.Tensor):
            found.append(thing)
            if thing.is_leaf and thing.grad is not None:
                found.append(thing.grad)
    return found


def resident_bytes() -> int:
    """The sum of the CPU storages of all live tensors, each storage counted once."""
    sizes: dict[int, int] = {}
    for tensor in live_tensors():
        if tensor.layout is torch.strided and tensor.device.type == "cpu":
            try:
                storage = tensor.untyped_storage()
            except (RuntimeError, NotImplementedError):
                continue  # functorch wrappers have no storage of their own
            if storage.device.type == "cpu":  # a compiler's fake tensors have no memory
                sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def room(extra: int) -> int:
    """A budget of `extra` bytes on top of what other tests may have left resident."""
    gc.collect()
    return resident_bytes() + extra


@contextmanager
def true_peak() -> Iterator[Peak]:
    """Measures the block: ``with true_peak() as peak: ...`` and then `peak.highest`.

    Inside a budget, enter it before the budget's tensors are made: counting what is there asks every tensor for its
    storage, which makes Remat bring it back and pin it.
    """
    gc.collect()
    peak = Peak(base=resident_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False)
        session.start()
    try:
        yield peak
    finally:
        session.stop()
        assert session.profiler is not None and session.profiler.kineto_results is not None
        changes = sorted(
            (
                (event.start_ns(), event.nbytes())
                for event in session.profiler.kineto_results.events()
                if event.name() == "[memory]" and event.device_type() == torch.autograd.DeviceType.CPU
            ),
            key=lambda change: change[0],
        )
        now = peak.base
        peak.highest = peak.base + sum(change for when, change in changes if when < peak.since)
        for when, change in changes:
            now += change
            if when >= peak.since:
                peak.highest = max(peak.highest, now)
        peak.left, peak.events = now, len(changes)
