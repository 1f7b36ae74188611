"""Taking time fairly: warm-up, turns in alternating order, waiting for the accelerator; and telling of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import TypeVar

import torch

Peer = TypeVar("Peer")

# glibc gives freed blocks of 128 KiB and more back to the kernel and faults them in again, zeroed, at a cost that
# depends on all that ran before.
_KEEP_FREED = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}


def keep_freed_blocks() -> None:
    """Has glibc keep the blocks that this process frees, for every peer alike: starts the program anew if need be."""
    if any(os.environ.get(name) != value for name, value in _KEEP_FREED.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **_KEEP_FREED})


def timed(
    fn: Callable[[], object], device: str, warmup: int, repeats: int, clock: Callable[[], float] = perf_counter
) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` calls, by a clock."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        synchronize(device)
        began = clock()
        fn()
        synchronize(device)
        seconds.append(clock() - began)
    return seconds


def synchronize(device: str) -> None:
    """Waits for the accelerator, if there is one."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def in_turn(peers: Sequence[Peer], turn: int) -> Iterable[Peer]:
    """The peers in order, backwards in every other turn."""
    return peers if turn % 2 == 0 else reversed(peers)


def cell(value: float | None, form: str) -> str:
    """A number in a given form, or nothing."""
    return "" if value is None else format(value, form)


def heading(titles: Sequence[str], texts: int = 1) -> str:
    """The first two lines of a markdown table, whose first columns are text and whose others are numbers."""
    return f"{line(titles)}\n|{' --- |' * texts}{' ---: |' * (len(titles) - texts)}"


def line(cells: Sequence[str]) -> str:
    """A line of a markdown table."""
    return f"| {' | '.join(cells)} |"
