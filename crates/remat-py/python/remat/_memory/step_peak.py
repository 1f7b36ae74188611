"""The most bytes resident on a device while a step runs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch

from .._torch_internals import eager
from .resident import resident


def step_peak(step: Callable[[], Any], device: torch.device | None = None) -> int:
    """Runs ``step`` and returns the peak of the device's allocator in bytes, with those that were there before.

    Raises ``RematError`` on the CPU while a profiler of the program's own is active, and on accelerators whose
    allocators keep no statistics.
    """
    device = device or eager.usual_device()
    gc.collect()
    eager.wait_for_autograd(device)
    base = resident(device)
    _, _, peak = eager.allocations(step, device)
    return base + peak
