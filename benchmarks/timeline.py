"""Time that a timeline adds to training steps: ResNet-20 of `examples`, and a tiny Llama.

    python benchmarks/timeline.py [--models resnet20,llama] [--rounds 5] [--steps 10]

Both ways run in one process inside the same budget and take turns, in an order that is reversed every round. Times are
processor time on one thread, medians of the rounds; the warm-up steps, in which lines are looked up, are told apart. A
budget of 60 is the bytes at rest and 60% of the span from there to the peak. Decisions go by bytes (`costs="bytes"`),
so that both ways drop and recompute the same. The exit code is 1 if a loss differs in one bit.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import remat
import torch
from small_models import MODELS, Step
from timing import heading, keep_freed_blocks, line

#: Steps of a turn before time is taken: by then workspaces are measured, costs are frozen and lines are known.
WARMUP = 8


def resnet20() -> Step:
    """ResNet-20 of `examples/resnet.py` on images of 32 x 32, with momentum."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    from resnet import ResNet

    model, images, labels = ResNet(), torch.randn(64, 1, 32, 32), torch.randint(0, 10, (64,))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


HEADER = ["model", "budget", "ops", "off ms", "on ms", "on / off", "range", "warm-up + ms", "losses"]

STEPS: dict[str, Callable[[], Step]] = {"resnet20": resnet20, "llama": MODELS["llama"]}


@dataclass(frozen=True)
class Turn:
    """Some steps in one way; milliseconds of processor time a step, of the warm-up altogether."""

    warmup_ms: float
    ms: float
    ops: int
    losses: list[float]


def turn(model: str, budget: int, steps: int, timeline: str | None) -> Turn:
    """Trains anew from the same seed."""
    torch.manual_seed(0)
    step = STEPS[model]()
    gc.collect()
    with remat.budget(budget, costs="bytes", timeline=timeline) as run:
        began = time.process_time()
        losses = [step() for _ in range(WARMUP)]
        warm, before = time.process_time(), run.stats().ops
        losses += [step() for _ in range(steps)]
        ended = time.process_time()
        ops = (run.stats().ops - before) // steps
    return Turn((warm - began) * 1e3, (ended - warm) / steps * 1e3, ops, losses)


def main() -> int:
    """Measures and prints line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet20,llama", help="of resnet20,llama (default both)")
    parser.add_argument("--budgets", default="ample,60", help="ample, or percents (default ample,60)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each way (default 5)")
    parser.add_argument("--steps", type=int, default=10, help="timed steps of a turn (default 10)")
    parser.add_argument("--quick", action="store_true", help="one round of one step, with an ample budget")
    asked = parser.parse_args()
    unknown = [model for model in asked.models.split(",") if model not in STEPS]
    if unknown:
        parser.error(f"--models {unknown[0]}: expected {', '.join(STEPS)}")
    keep_freed_blocks()
    torch.set_num_threads(1)
    budgets, rounds, steps = asked.budgets.split(","), asked.rounds, asked.steps
    if asked.quick:
        budgets, rounds, steps = ["ample"], 1, 1
    print(heading(HEADER, texts=2))
    same = True
    with tempfile.TemporaryDirectory() as folder:
        for model in asked.models.split(","):
            for budget in budgets:
                same &= row(model, budget, rounds, steps, f"{folder}/run.html")
    return 0 if same else 1


def row(model: str, budget: str, rounds: int, steps: int, file: str) -> bool:
    """One model with one budget; whether all losses are the same."""
    given = 1 << 31
    if budget != "ample":
        torch.manual_seed(0)
        step = STEPS[model]()
        step()
        given = remat.measure(step).fraction(int(budget) / 100)
        del step
    pairs: list[tuple[Turn, Turn]] = []
    for number in range(rounds):
        ways = [None, file] if number % 2 == 0 else [file, None]
        taken = {way: turn(model, given, steps, way) for way in ways}
        pairs.append((taken[None], taken[file]))
    ratios = sorted(on.ms / off.ms for off, on in pairs)
    same = all(on.losses == off.losses for off, on in pairs)
    print(
        line(
            [
                model,
                budget if budget == "ample" else f"{budget}%",
                str(pairs[0][0].ops),
                f"{statistics.median(off.ms for off, _ in pairs):.2f}",
                f"{statistics.median(on.ms for _, on in pairs):.2f}",
                f"{statistics.median(ratios):.3f}",
                f"{ratios[0]:.3f} to {ratios[-1]:.3f}",
                f"{statistics.median(on.warmup_ms - off.warmup_ms for off, on in pairs):.0f}",
                "same bits" if same else "DIFFERENT",
            ]
        ),
        flush=True,
    )
    return same


if __name__ == "__main__":
    sys.exit(main())
