"""Taking time fairly: warm-up, turns in alternating order, waiting for the accelerator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import TypeVar

import torch

Peer = TypeVar("Peer")


def timed(fn: Callable[[], object], device: str, warmup: int, repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls after `warmup` calls."""
    for _ in range(warmup):
        fn()
    seconds = []
    for _ in range(repeats):
        synchronize(device)
        began = perf_counter()
        fn()
        synchronize(device)
        seconds.append(perf_counter() - began)
    return seconds


def synchronize(device: str) -> None:
    """Waits for the accelerator, if there is one."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def in_turn(peers: Sequence[Peer], turn: int) -> Iterable[Peer]:
    """The peers in order, backwards in every other turn."""
    return peers if turn % 2 == 0 else reversed(peers)
