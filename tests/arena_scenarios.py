"""Runs scenarios within arenas, each in a child of its own: same bits, a true peak within the arena.

    LD_PRELOAD=$(python -c 'import remat; print(remat.arena_library())') \\
        python tests/arena_scenarios.py 0.6 coop [NAME ...]

A line for each says SAME, DIFFERENT or what went wrong, at which share of the true peak, and what the allocator saw. A
budget that is refused is tried again at the smallest that the refusal names. Without names all scenarios run.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

import remat
import torch
from bits import Bits, bits, differences
from scenarios import SCENARIOS, Scenario

SEED = 7
AMPLE = 4 << 30
TRIES = 12
PROCESSOR_SECONDS = 300


def plain(scenario: Scenario) -> Bits:
    """The bits of a run, and of the random numbers that come after it."""
    torch.manual_seed(SEED)
    return bits([scenario.run(), torch.get_rng_state()])


def within(scenario: Scenario, size: int, policy: str) -> tuple[Bits, remat.Run]:
    """The bits of a run in an arena."""
    with remat.budget(size, pool="arena", policy=policy) as run:
        return plain(scenario), run


def compared(scenario: Scenario, share: float, policy: str) -> str:
    """The verdict on a scenario."""
    once = plain(scenario)
    if differences(once, plain(scenario)):
        return "SKIPPED: two plain runs already differ"
    _, ample = within(scenario, AMPLE, policy)
    seen = ample.stats().arena
    assert seen is not None
    size = ample.base + int(share * seen.high_water)
    for _ in range(TRIES):
        gc.collect()
        try:
            found, run = within(scenario, size, policy)
        except remat.BudgetError as error:
            size = max(error.smallest, size * 21 // 20)
            continue
        stats = run.stats()
        assert stats.arena is not None and stats.arena.high_water <= stats.arena.capacity, stats
        different = differences(once, found)
        said = f"DIFFERENT {different[:2]}" if different else "SAME"
        at = (size - run.base) / max(seen.high_water, 1)
        return f"{said} at {at:.2f}, {stats.evictions} evictions, {stats.arena}"
    return f"REFUSED up to {size} bytes"


def main(share: str, policy: str, *names: str) -> int:
    """The number of scenarios that went wrong."""
    torch.set_num_threads(1)
    wrong = 0
    for name in names or tuple(SCENARIOS):
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
            try:
                said = compared(SCENARIOS[name], float(share), policy)
            except BaseException as error:
                said = f"RAISED {type(error).__name__}: {error}"
            print(name, said, flush=True)
            os._exit(0 if said.startswith(("SAME", "SKIPPED")) else 1)
        ended = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(ended):
            print(name, f"ENDED by signal {os.WTERMSIG(ended)}", flush=True)
        wrong += ended != 0
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 100))
