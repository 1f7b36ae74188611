"""Processor time that watching ops adds to a training step of many small ops, natively and through Python.

Each way runs in a process of its own. `--quick` takes fewer steps.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings


def train(steps: int, budget: str | None) -> tuple[float, float, int]:
    """Milliseconds a step, the loss, and ops a step."""
    import remat
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layer = lambda: torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))  # noqa: E731
    model = torch.nn.Sequential(*(layer() for _ in range(20)))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 64)

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(x) * 2).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    def timed() -> tuple[float, float]:
        for _ in range(8):
            step()
        started = time.process_time()
        for _ in range(steps):
            loss = step()
        return (time.process_time() - started) / steps * 1e3, loss

    if budget is None:
        return *timed(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with remat.budget(budget) as run:
            took, loss = timed()
            return took, loss, run.stats().ops // (steps + 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three steps in place of thirty")
    parser.add_argument("--budget", default="1GiB", help="the budget (default 1GiB: nothing is evicted)")
    parser.add_argument("--way", choices=["plain", "python", "native"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    steps = 3 if asked.quick else 30
    if asked.way:
        took, loss, ops = train(steps, None if asked.way == "plain" else asked.budget)
        print(took, loss, ops)
        return
    print("| way | ms a step | added us an op | loss |\n| --- | ---: | ---: | ---: |")
    plain = 0.0
    for way in ("plain", "python", "native"):
        command = [sys.executable, __file__, "--way", way, "--budget", asked.budget, *(["--quick"] * asked.quick)]
        environment = {**os.environ, "REMAT_DISPATCH": "native" if way == "native" else "python"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        took, loss, ops = map(float, done.stdout.split())
        plain = plain or took
        added = f"{(took - plain) / ops * 1e3:.2f}" if ops else ""
        print(f"| {way} | {took:.2f} | {added} | {loss} |")


if __name__ == "__main__":
    main()
