"""A forked process that checks the items whose names it receives, and sends a verdict on each."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import BinaryIO

import torch
from true_peak import true_peak

from .check import State, Verdict

PROCESSOR_SECONDS = 60
"""An item that computes for longer is ended by a signal, with the process."""
DIES_WITH_PARENT = 1
"""`PR_SET_PDEATHSIG` of Linux."""


Check = Callable[[str], Verdict]
"""The check of an item, by its name."""


def _checked(name: str, check: Check) -> Verdict:
    started = time.process_time()
    try:
        verdict = check(name)
    except Exception as error:
        verdict = Verdict(name, State.FAILING, f"the check itself failed: {type(error).__name__}: {error}"[:300])
    verdict.seconds = round(time.process_time() - started, 3)
    return verdict


def _prepare(errors: BinaryIO) -> None:
    """Sends output to a file, and loads and sets aside all that torch loads lazily.

    Scans for live tensors need not see that.
    """
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)
    os.environ["REMAT_RECORD"] = "always"  # what left no record could not be dropped
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    for stream in (1, 2):
        os.dup2(errors.fileno(), stream)
    faulthandler.enable(sys.stderr)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with true_peak():
        torch.zeros(1)
    gc.collect()
    gc.freeze()


def work(connection: Connection, errors: BinaryIO, check: Check) -> None:
    """Checks items until an empty name comes."""
    _prepare(errors)
    while name := connection.recv():
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        connection.send(_checked(name, check))
        signal.setitimer(signal.ITIMER_PROF, 0)
