"""Two threads, fixed seeds, and a limit on every test: a replay that never ends must fail, not hang."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest
import torch
import torch._dynamo
import torch.utils.data
from true_peak import true_peak

SECONDS_PER_TEST = 120


def _expired(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"the test ran longer than {SECONDS_PER_TEST} s")


@pytest.fixture(autouse=True)
def _limited_and_seeded() -> Iterator[None]:
    torch.set_num_threads(2)
    torch.manual_seed(0)
    gc.collect()
    before = signal.signal(signal.SIGALRM, _expired)
    signal.alarm(SECONDS_PER_TEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def pytest_sessionstart() -> None:
    """Loads what torch loads lazily and sets it all aside: the scans for live tensors need not see it.

    A shell starts what it runs in the background with interrupts ignored, and so would be the programs under test.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if size := os.environ.get("REMAT_TEST_ARENA"):
        # `scripts/checker`: all tensors of all tests lie in an arena of so many bytes.
        opened: int = ctypes.CDLL(None).remat_arena_open(ctypes.c_uint64(int(size)), ctypes.c_uint64(64))
        assert opened == 0, f"no arena of {size} bytes: {os.strerror(opened)}"
    with true_peak():
        torch.zeros(1)
    gc.collect()
    gc.freeze()
