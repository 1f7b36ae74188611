"""Processor time from `import remat` to the end of the first steps inside a budget, each in a process of its own.

    python benchmarks/start.py [--models perceptron,gru,bert,llama] [--steps 5] [--rounds 3] [--quick]

The plain program has run before in the same process, so that what torch itself does at first is done, and its optimizer
has loaded what torch loads for optimizers. The budget is ample. Times are medians of so many rounds. The last column
is a step in a budget of its own, with entering and leaving it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import process_time

import torch
from small_models import MODELS
from timing import heading, line

AMPLE = 1 << 30


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default="perceptron,gru,bert,llama", help="of dispatch.py, with commas between")
    parser.add_argument("--steps", type=int, default=5, help="first steps inside the budget (default 5)")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each model (default 3)")
    parser.add_argument("--quick", action="store_true", help="the perceptron alone, in one process")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(started(options.one, options.steps)))
        return 0
    models, rounds = options.models.split(","), options.rounds
    if options.quick:
        models, rounds = ["perceptron"], 1
    unknown = [name for name in models if name not in MODELS]
    if unknown or min(options.steps, options.rounds) < 1:
        parser.error(f"no such model: {unknown[0]}" if unknown else "--steps and --rounds must be at least 1")
    steps = [f"step {number}" for number in range(1, options.steps + 1)]
    print(heading(["model", "plain step ms", "import ms", "enter ms", *steps, "budget a step"]))
    for name in models:
        command = [sys.executable, __file__, "--one", name, "--steps", str(options.steps)]
        environment = {**os.environ, "REMAT_CACHE": "off"}
        times = [
            json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)
            for _ in range(rounds)
        ]
        print(line([name, *(f"{1e3 * median(values):.0f}" for values in zip(*times, strict=True))]), flush=True)
    return 0


def started(model: str, steps: int) -> list[float]:
    """Seconds of a plain step, the import, entering a budget, the first steps in it, and one in a budget of its own."""
    torch.set_num_threads(1)
    times = [median(timed(step) for step in [built(model)] * 5)]
    times.append(timed(lambda: importlib.import_module("remat").budget))
    step = built(model)
    budget = sys.modules["remat"].budget(AMPLE)
    times.append(timed(budget.__enter__))
    times += [timed(step) for _ in range(steps)]
    budget.__exit__(None, None, None)

    def in_a_budget() -> None:
        with budget:
            step()

    times.append(median(timed(in_a_budget) for _ in range(5)))
    return times


def built(model: str) -> Callable[[], object]:
    """A model's training step, always the same one."""
    torch.manual_seed(0)
    return MODELS[model]()


def timed(action: Callable[[], object]) -> float:
    """Seconds of processor time that an action takes."""
    begun = process_time()
    action()
    return process_time() - begun


if __name__ == "__main__":
    sys.exit(main())
