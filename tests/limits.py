"""Limits of tests by the work they do, so that other work on the machine cannot make a test fail.

A test may use so many seconds of processor time, and must use some every few minutes. One that computes for ever ends
by the first limit, one that waits for ever by the second. The time of its child processes counts for the second.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

PROCESSOR_SECONDS = 300
"""Of a test, and of each process that it starts."""
LOOKS, SECONDS_BETWEEN_LOOKS = 15, 60
"""A test that uses no processor time between so many looks is stuck."""
PROGRESS = 0.02
"""Seconds of processor time between two looks that count as work: less is an interpreter's idle threads."""


def _ticks(process: str) -> tuple[int, int]:
    """A process's parent, and the processor time of it and its ended children."""
    try:
        fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    return int(fields[1]), sum(int(ticks) for ticks in fields[11:15])


def processor_time() -> float:
    """Seconds that this process and its descendants have used."""
    processes = {int(name): _ticks(name) for name in os.listdir("/proc") if name.isdigit()}
    family = {os.getpid()}
    while True:
        more = {process for process, (parent, _) in processes.items() if parent in family} - family
        if not more:
            break
        family |= more
    return sum(processes[process][1] for process in family if process in processes) / os.sysconf("SC_CLK_TCK")


@contextmanager
def limited(
    processor_seconds: float = PROCESSOR_SECONDS,
    looks: int = LOOKS,
    seconds_between_looks: float = SECONDS_BETWEEN_LOOKS,
) -> Iterator[None]:
    """Raises `TimeoutError` in the block once it has computed for too long, or is stuck."""
    idle, seen = 0, processor_time()

    def computed_too_long(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"the test used more than {processor_seconds} s of processor time")

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal idle, seen
        now = processor_time()
        idle = 0 if now - seen >= PROGRESS else idle + 1
        seen = now
        if idle >= looks:
            raise TimeoutError(f"the test was stuck for {idle * seconds_between_looks} s")

    before = signal.signal(signal.SIGPROF, computed_too_long), signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_PROF, processor_seconds)
    signal.setitimer(signal.ITIMER_REAL, seconds_between_looks, seconds_between_looks)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])
