"""Counts the instructions that a budget adds to training steps, with valgrind's callgrind.

    python benchmarks/instructions.py
    python benchmarks/instructions.py --models perceptron,gru,llama --budgets ample,70

A step runs plain and within each budget, each in a process of its own. Counts differ by less than 1% from run to run
and do not depend on what else the machine does, so two builds can be told apart that times cannot. They do not show
what waits for memory; `--caches` counts misses, too, in caches of 32 KiB for instructions and for data and of 512 KiB
for both.

Without `--models` the step is one of 20 small layers. A budget of 70 is the bytes at rest and 70% of the span from
there to the peak. Its steps are counted as they are planned: a process without valgrind makes the plan first and leaves
it in a cache of plans. Costs are bytes, so that no plan depends on the clock.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import remat
import torch
from dispatch import planned
from small_models import MODELS
from timing import heading, line

WARMUP = 20
LAYERS = 20


def step_of() -> Callable[[], object]:
    """A step of small layers."""
    layers = [torch.nn.Linear(8, 8) for _ in range(LAYERS)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    x = torch.randn(4, 8)

    def step() -> None:
        hidden = x
        for layer in layers:
            hidden = torch.relu(layer(hidden)) + hidden
        hidden.sum().backward()
        with torch.no_grad():
            for parameter in parameters:
                parameter.add_(parameter.grad, alpha=-0.001)
                parameter.grad = None

    return step


def counted(step: Callable[[], object], steps: int) -> None:
    """Runs steps while valgrind counts."""

    def control(what: str) -> None:
        command = ["callgrind_control", "-i", what, str(os.getpid())]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    control("on")
    for _ in range(steps):
        step()
    control("off")


def made(model: str) -> Callable[[], object]:
    """The step of a model, from the same seed."""
    torch.manual_seed(0)
    return step_of() if model == "layers" else MODELS[model]()


def bytes_of(model: str, budget: str) -> int:
    """A budget, in bytes."""
    if budget == "ample":
        return 1 << 30
    step = made(model)
    step()
    return remat.measure(step).fraction(int(budget) / 100)


def within(model: str, budget: str, given: int, steps: int) -> None:
    """The process under valgrind, or without it if no steps count. Prints what is known of the steps that count."""
    torch.set_num_threads(1)
    step = made(model)
    if budget == "plain":
        for _ in range(WARMUP):
            step()
        counted(step, steps)
        return
    ample = budget == "ample"
    with remat.budget(given, costs="bytes", plan="off" if ample else "auto") as run:
        if ample:
            for _ in range(WARMUP):
                step()
        else:
            planned(run, step)
        before = run.stats()
        if steps:
            counted(step, steps)
        after = run.stats()
    unrecorded = after.plan.unrecorded - before.plan.unrecorded if after.plan and before.plan else 0
    print("found", after.ops - before.ops, after.recomputed - before.recomputed, unrecorded)


# Of all that valgrind counts, by place: misses of instructions, and misses of the larger cache by whoever.
CODE_MISSES, LAST_MISSES = (3,), (6, 7, 8)
CACHES = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=32768,8,64", "--LL=524288,8,64"]


@dataclass(frozen=True)
class Counted:
    """Some steps, counted."""

    #: Instructions, and what else was counted.
    events: list[int]
    ops: int
    recomputed: int
    unrecorded: int

    def sum(self, places: tuple[int, ...]) -> int:
        """The sum of some events."""
        return sum(self.events[place] for place in places)


def count(model: str, budget: str, steps: int, caches: bool) -> Counted:
    """Counts the instructions of the steps, and their ops where the session counts them."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "REMAT_CACHE": str(Path(folder) / "plans")}
        given = 0 if budget == "plain" else bytes_of(model, budget)
        inner = [sys.executable, __file__, "--within", budget, "--models", model, "--bytes", str(given)]
        if budget not in ("plain", "ample"):
            first = subprocess.run(
                [*inner, "--steps", "0"], env=environment, capture_output=True, text=True, check=False
            )
            if first.returncode != 0:
                raise SystemExit(f"{model} at {budget}%: {(first.stderr.strip().splitlines() or ['failed'])[-1]}")
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        valgrind.append(f"--callgrind-out-file={Path(folder) / 'out'}")
        command = [*valgrind, *(CACHES if caches else []), *inner, "--steps", str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    found = re.search(r"Collected : ([\d ]+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"valgrind failed: {done.stderr.strip().splitlines()[-1:]}")
    ops = re.search(r"^found (\d+) (\d+) (\d+)$", done.stdout, re.MULTILINE)
    events = [int(number) for number in found[1].split()]
    return Counted(events, *(int(number) for number in ops.groups())) if ops else Counted(events, 0, 0, 0)


HEADER = [
    "model",
    "budget",
    "ops",
    "plain, million",
    "million",
    "over plain",
    "added an op",
    "recomputed",
    "unrecorded",
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="layers", help=f"of layers,{','.join(MODELS)} (default layers)")
    parser.add_argument("--budgets", default="ample", help="ample, or percents such as 70,45 (default ample)")
    parser.add_argument("--steps", type=int, default=10, help="steps that are counted (default 10)")
    parser.add_argument("--quick", action="store_true", help="one step")
    parser.add_argument("--caches", action="store_true", help="count misses of caches, too; takes twice as long")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    models, budgets = given.models.split(","), given.budgets.split(",")
    for name in models:
        if name != "layers" and name not in MODELS:
            parser.error(f"--models: {name!r} is not one of layers,{','.join(MODELS)}")
    for budget in budgets:
        if budget != "ample" and not budget.isdecimal():
            parser.error(f"--budgets: {budget!r} is neither `ample` nor a percentage such as 70")
    if given.within is not None:
        within(models[0], given.within, given.bytes, given.steps)
        return 0
    if given.steps < 1:
        parser.error(f"--steps: {given.steps} counts nothing: at least 1")
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not there: install it (apt-get install valgrind)")
    steps = 1 if given.quick else given.steps
    misses = {"instructions missed": CODE_MISSES, "missed beyond 512 KiB": LAST_MISSES} if given.caches else {}
    print(heading([*HEADER, *(f"{title}, thousand: {way}" for title in misses for way in ("plain", "within"))]))
    for model in models:
        usual = count(model, "plain", steps, given.caches)
        plain = usual.events[0]
        for budget in budgets:
            it = count(model, budget, steps, given.caches)
            ops, all_of_it = it.ops // steps, it.events[0]
            numbers = [f"{plain / steps / 1e6:.2f}", f"{all_of_it / steps / 1e6:.2f}"]
            numbers += [f"{all_of_it / plain:.3f}", f"{(all_of_it - plain) / max(it.ops, 1):.0f}"]
            numbers += [str(it.recomputed // steps), str(it.unrecorded // steps)]
            numbers += [f"{way.sum(at) / steps / 1e3:.0f}" for at in misses.values() for way in (usual, it)]
            shown = budget if budget == "ample" else f"{budget}%"
            print(line([model, shown, str(ops), *numbers]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
