"""Counts the instructions that a budget adds to an op where nothing is short, with valgrind's callgrind.

    python benchmarks/instructions.py

A step of 20 small layers, their backward pass and the update of their parameters runs plain and within an ample budget,
each in a process of its own. Counts differ by less than 1% from run to run and do not depend on what else the machine
does, so two builds can be told apart that times cannot.
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
from pathlib import Path

import remat
import torch

WARMUP = 20
LAYERS = 20


def step_of() -> Callable[[], None]:
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


def counted(step: Callable[[], None], steps: int) -> None:
    """Runs steps while valgrind counts."""

    def control(what: str) -> None:
        command = ["callgrind_control", "-i", what, str(os.getpid())]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    control("on")
    for _ in range(steps):
        step()
    control("off")


def within(way: str, steps: int) -> None:
    """The process under valgrind. Prints the ops of the steps that count."""
    torch.set_num_threads(1)
    step = step_of()
    if way == "plain":
        for _ in range(WARMUP):
            step()
        counted(step, steps)
        return
    with remat.budget("1GiB") as run:
        for _ in range(WARMUP):
            step()
        before = run.stats()
        counted(step, steps)
        print("ops", run.stats().ops - before.ops)


def instructions(way: str, steps: int) -> tuple[int, int]:
    """Instructions of the steps, and their ops where the session counts them."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        command = [*valgrind, f"--callgrind-out-file={Path(folder) / 'out'}", sys.executable, __file__]
        environment = {**os.environ, "REMAT_CACHE": "off"}
        done = subprocess.run(
            [*command, "--within", way, "--steps", str(steps)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    found = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode != 0 or found is None:
        raise SystemExit(f"valgrind failed: {done.stderr.strip().splitlines()[-1:]}")
    ops = re.search(r"^ops (\d+)$", done.stdout, re.MULTILINE)
    return int(found[1]), int(ops[1]) if ops else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10, help="steps that are counted (default 10)")
    parser.add_argument("--quick", action="store_true", help="one step")
    parser.add_argument("--within", choices=["plain", "native"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.within is not None:
        within(given.within, given.steps)
        return 0
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not there: install it (apt-get install valgrind)")
    steps = 1 if given.quick else given.steps
    plain, _ = instructions("plain", steps)
    native, ops = instructions("native", steps)
    print(f"{ops} ops: {plain / ops:.0f} instructions an op plain, {native / ops:.0f} within an ample budget")
    print(f"added: {(native - plain) / ops:.0f} an op, {native / plain - 1:.0%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
