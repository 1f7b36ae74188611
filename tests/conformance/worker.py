"""A process that checks the items which it reads by name from its input, and writes what it finds, a line each."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import warnings
from dataclasses import asdict

import torch
from true_peak import true_peak

from .check import State, Verdict, check
from .items import Item

PROCESSOR_SECONDS = 60
"""An item that computes for longer is ended by a signal, with the process."""


def _told(verdict: Verdict) -> str:
    return json.dumps({**asdict(verdict), "state": verdict.state.value})


def _checked(name: str, samples: int) -> Verdict:
    started = time.process_time()
    try:
        verdict = check(Item.named(name), samples)
    except Exception as error:
        verdict = Verdict(name, State.FAILING, f"the check itself failed: {type(error).__name__}: {error}"[:300])
    verdict.seconds = time.process_time() - started
    return verdict


def prepared() -> None:
    """Loads what torch loads lazily, and sets it all aside: the scans for live tensors need not see it."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with true_peak():
        torch.zeros(1)
    gc.collect()
    gc.freeze()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    samples = int(sys.argv[1])
    # Libraries print to the standard output: what is written for the reader goes to a copy of it.
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    prepared()
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
        print(_told(_checked(line.strip(), samples)), file=told)
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
