"""Time of a replayed op, on a program with many small ones: a recurrent network, unrolled, in 45% of its span.

Each way runs in a process of its own, on one thread. `--quick` takes fewer steps; `--dropout 0.1` draws random numbers
between two cells.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

LENGTH, WIDTH = 64, 64


def train(steps: int, fraction: float | None, dropout: float) -> list[float]:
    """Milliseconds of processor time a step, the loss, ops and replays a step, microseconds a replay."""
    import remat
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    cell, head = torch.nn.GRUCell(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
    x = torch.randn(LENGTH, 16, WIDTH)

    def step() -> float:
        for parameter in (*cell.parameters(), *head.parameters()):
            parameter.grad = None
        torch.manual_seed(0)
        state, losses = torch.zeros(16, WIDTH), []
        for at in range(LENGTH):
            # By hand: the cell of torch is two large ops.
            gates = x[at] @ cell.weight_ih.t() + cell.bias_ih
            hidden = state @ cell.weight_hh.t() + cell.bias_hh
            reset, update = torch.sigmoid(gates[:, : 2 * WIDTH] + hidden[:, : 2 * WIDTH]).chunk(2, 1)
            fresh = torch.tanh(gates[:, 2 * WIDTH :] + reset * hidden[:, 2 * WIDTH :])
            state = (1 - update) * fresh + update * state
            if dropout:
                state = torch.nn.functional.dropout(state, dropout)
            losses.append(head(state).square().mean())
        loss = torch.stack(losses).mean()
        loss.backward()
        return loss.item()

    def timed() -> tuple[float, float]:
        started = time.process_time()
        for _ in range(steps):
            loss = step()
        return (time.process_time() - started) / steps * 1e3, loss

    if fraction is None:
        for _ in range(4):
            step()
        return [*timed(), 0, 0, 0]
    measured = remat.measure(step)
    with remat.budget(measured.fraction(fraction), plan="off") as run:
        for _ in range(8):
            step()
        before = run.stats()
        took, loss = timed()
        after = run.stats()
    replays = after.recomputed - before.recomputed
    seconds = after.recompute_seconds - before.recompute_seconds
    return [took, loss, (after.ops - before.ops) / steps, replays / steps, seconds / max(replays, 1) * 1e6]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two steps in place of twenty, and one run of each way")
    parser.add_argument("--fraction", type=float, default=0.45, help="the budget's part of the span (default 0.45)")
    parser.add_argument("--dropout", type=float, default=0.0, help="the part of each state that is dropped (default 0)")
    parser.add_argument("--way", choices=["plain", "python", "native"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    steps = 2 if asked.quick else 20
    if asked.way:
        print(*train(steps, None if asked.way == "plain" else asked.fraction, asked.dropout))
        return
    print("| way | ms a step | ops | replays | us a replay | loss |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for way in ("plain", "python", "native"):
        command = [sys.executable, __file__, "--way", way, "--fraction", str(asked.fraction)]
        command += ["--dropout", str(asked.dropout)]
        environment = {**os.environ, "REMAT_DISPATCH": "native" if way == "native" else "python"}
        found = []
        for _ in range(1 if asked.quick else 3):
            done = subprocess.run(
                [*command, *(["--quick"] * asked.quick)], env=environment, stdout=subprocess.PIPE, text=True, check=True
            )
            found.append([float(value) for value in done.stdout.split()])
        took, loss, ops, replays, each = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {way} | {took:.2f} | {ops:.0f} | {replays:.0f} | {each:.2f} | {loss} |")


if __name__ == "__main__":
    main()
