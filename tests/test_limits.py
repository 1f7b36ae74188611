"""The limits of tests: work ends by processor time, waiting ends, and waiting for a child that works does not."""

from __future__ import annotations

import signal
import time

import pytest
from limits import limited
from process import PYTHON, ran


def test_one_that_computes_for_ever_ends() -> None:
    with pytest.raises(TimeoutError, match="processor time"), limited(processor_seconds=0.2):
        while True:
            pass


def test_one_that_waits_for_ever_ends() -> None:
    with pytest.raises(TimeoutError, match="stuck"), limited(looks=3, seconds_between_looks=0.05):
        time.sleep(3600)


def test_waiting_for_a_child_that_works_is_work() -> None:
    work = "import time\nwhile time.process_time() < 2: pass\nprint('done')"
    with limited(looks=2, seconds_between_looks=0.6):
        assert ran([*PYTHON, "-c", work]).out == "done\n"


def test_nothing_is_left_after() -> None:
    before = signal.getsignal(signal.SIGPROF), signal.getsignal(signal.SIGALRM)
    with limited(processor_seconds=0.2, looks=1, seconds_between_looks=0.05):
        pass
    assert (signal.getsignal(signal.SIGPROF), signal.getsignal(signal.SIGALRM)) == before
    assert signal.getitimer(signal.ITIMER_PROF) == signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    time.sleep(0.1)
