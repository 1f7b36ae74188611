"""Arenas against counted bytes: the five examples at 90 to 20% of their true peak, by four ways of evicting.

    python benchmarks/pools.py [--quick] [--models resnet,unet,gpt,lstm,treelstm] [--shares 90,80,...] [--rounds N]
                               [--json]

Every run is a process of its own. The true peak is the high-water mark of an arena that is never short; shares are of
it, and contenders at one share have the same bytes. `coop`, `dte` and `dtr-eq` place all tensors in a preloaded arena;
`counted` counts bytes under `dtr-eq`, with the system's allocator. Losses and weights must be those of the plain run,
bit for bit. Times are medians of steps over the plain run's, rounds in alternating order. The lowest working budget is
found by bisection; runs that take more than 60 s are given up.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from timing import in_turn

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MIB = 1 << 20

# Options of each example: seconds a run, tens of MiB of activations.
MODELS = {
    "resnet": ["--batch", "32"],
    "unet": ["--batch", "4"],
    "gpt": ["--batch", "8"],
    "lstm": ["--batch", "16", "--context", "32", "--depth", "8", "--width", "96"],
    "treelstm": ["--batch", "16", "--width", "256", "--smallest", "40", "--optimizer", "sgd"],
}
# Contender -> pool and policy.
CONTENDERS = {
    "coop": ("arena", "coop"),
    "dte": ("arena", "dte"),
    "dtr-eq": ("arena", "dtr-eq"),
    "counted": ("fungible", "dtr-eq"),
}
WARMUP = 1
# Seconds after which a run that does little but recompute is given up.
LIMIT = 60


@dataclass
class Outcome:
    """One run of an example."""

    fits: bool
    #: What was printed: losses and the digest of the weights.
    said: str = ""
    #: Of each step after the first, as far as they were printed.
    seconds: list[float] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def step(self) -> float:
        """The median step."""
        return median(self.seconds[WARMUP:])


class Clock:
    """Passes lines on, and notes when a step's was written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.moments: list[float] = []

    def write(self, text: str) -> int:
        """A line, or a part of one."""
        if text.startswith("step "):
            self.moments.append(time.perf_counter())
        self.lines.append(text)
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""


def child(example: str, pool: str, policy: str, budget: int, arguments: list[str]) -> None:
    """Runs an example within a budget, 0 for none, and prints what was seen as JSON."""
    import dataclasses

    import remat

    sys.path.insert(0, str(EXAMPLES))
    sys.argv = [example, *arguments]
    clock, out = Clock(), sys.stdout
    script = str(EXAMPLES / f"{example}.py")
    seen: dict[str, Any] = {"fits": True, "stats": {}, "error": ""}
    sys.stdout = clock  # type: ignore[assignment]
    try:
        if budget == 0:
            runpy.run_path(script, run_name="__main__")
        else:
            with remat.budget(budget, pool=pool, policy=policy) as run:
                runpy.run_path(script, run_name="__main__")
            seen["stats"] = dataclasses.asdict(run.stats())
    except remat.BudgetError as error:
        seen.update(fits=False, error=str(error))
    finally:
        sys.stdout = out
    moments = clock.moments
    seen["seconds"] = [after - before for before, after in itertools.pairwise(moments)]
    seen["said"] = "".join(clock.lines)
    print(json.dumps(seen))


def run(model: str, steps: int, pool: str, policy: str, budget: int) -> Outcome:
    """One run in a process of its own; a crash is an error with its last line, not a refusal."""
    import remat

    environment = dict(os.environ)
    if pool == "arena":
        environment["LD_PRELOAD"] = remat.arena_library()
    arguments = [*MODELS[model], "--steps", str(steps), "--threads", "1"]
    command = [sys.executable, __file__, "--child", model, pool, policy, str(budget), *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return Outcome(False, error=f"gave up after {LIMIT} s")
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Outcome(False, error=f"failed: {last}")
    return Outcome(**json.loads(done.stdout))


def true_peak(model: str, steps: int) -> int:
    """The high-water mark of an arena that is never short."""
    ample = run(model, steps, "arena", "coop", 16 << 30)
    assert ample.fits, ample.error
    return int(ample.stats["arena"]["high_water"])


def lowest(model: str, pool: str, policy: str, peak: int, tried: Iterable[tuple[float, bool]], within: float) -> float:
    """The lowest share of the peak that two steps work in, to `within`; none below is known to."""
    tried = list(tried)
    above = min((share for share, fits in tried if fits), default=1.5)
    below = max((share for share, fits in tried if not fits and share < above), default=0.0)
    while above - below > within:
        middle = (above + below) / 2
        if run(model, 2, pool, policy, int(middle * peak)).fits:
            above = middle
        else:
            below = middle
    return above


def measured(model: str, shares: list[int], steps: int, rounds: int, within: float) -> list[dict[str, Any]]:
    """A row for every contender and share."""
    peak = true_peak(model, 3)
    plain: list[Outcome] = []
    seen: dict[tuple[str, int], list[Outcome]] = {}
    for turn in range(rounds):
        plain.append(run(model, steps, "fungible", "dtr-eq", 0))
        for share in shares:
            for name in in_turn(list(CONTENDERS), turn):
                outcomes = seen.setdefault((name, share), [])
                if all(outcome.fits for outcome in outcomes):
                    outcomes.append(run(model, steps, *CONTENDERS[name], peak * share // 100))
                    print(f"{model} {name} {share}%: {outcomes[-1].error or 'ran'}", file=sys.stderr)
    rows = []
    for name, (pool, policy) in CONTENDERS.items():
        tried = [(share / 100, all(o.fits for o in seen[name, share])) for share in shares]
        least = lowest(model, pool, policy, peak, tried, within)
        for share in shares:
            rows.append(row(model, name, share, peak, least, plain, seen[name, share]))
    return rows


def row(
    model: str, name: str, share: int, peak: int, least: float, plain: list[Outcome], outcomes: list[Outcome]
) -> dict[str, Any]:
    """The row of a contender at a share."""
    found: dict[str, Any] = {"model": model, "peak": peak, "contender": name, "share": share, "lowest": least}
    last = outcomes[-1]
    if not last.fits:
        return {**found, "fits": False, "error": last.error}
    stats, arena = last.stats, last.stats["arena"] or {}
    searches = arena.get("searches", 0)
    return {
        **found,
        "fits": True,
        "same_bits": all(outcome.said == plain[0].said for outcome in outcomes),
        "time": median(outcome.step / eager.step for outcome, eager in zip(outcomes, plain, strict=False)),
        "evictions": stats["evictions"],
        "recomputed": stats["recomputed"] / stats["ops"],
        "deciding": stats["decide_seconds"] / stats["seconds"],
        "peak_of_budget": arena["high_water"] / arena["capacity"] if arena else None,
        "fragmentation": arena.get("fragmentation_mean"),
        "search_us": 1e6 * arena["search_seconds"] / searches if searches else None,
        "exhaustions": arena.get("exhaustions"),
        "spills": arena.get("spills"),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a table a model."""
    lines = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        lines += [f"\n{model}: true peak {mine[0]['peak'] / MIB:.1f} MiB\n"]
        shares = [row["share"] for row in mine if row["contender"] == "coop"]
        lines += ["| run | lowest | " + " | ".join(f"{share}%" for share in shares) + " |"]
        lines += ["| --- | ---: |" + " ---: |" * len(shares)]
        for name in CONTENDERS:
            cells = [cell(row) for row in mine if row["contender"] == name]
            least = next(row["lowest"] for row in mine if row["contender"] == name)
            lines.append(f"| {name} | {least:.0%} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(row: dict[str, Any]) -> str:
    """Time over the plain run's; in an arena fragmentation and microseconds a search."""
    if not row["fits"]:
        first = row["error"].split()[0]
        return {"failed:": "**failed**", "gave": "given up"}.get(first, "refused")
    text = f"{row['time']:.2f}" + ("" if row["same_bits"] else " **other bits**")
    if row["fragmentation"] is not None:
        search = f", {row['search_us']:.1f} us" if row["search_us"] is not None else ""
        text += f" ({row['fragmentation']:.1%}{search})"
    return text + (f" {row['spills']} spills" if row["spills"] else "")


def main() -> None:
    """Runs what is asked for."""
    if sys.argv[1:2] == ["--child"]:
        example, pool, policy, budget, *arguments = sys.argv[2:]
        return child(example, pool, policy, int(budget), arguments)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one example, three steps, one share: no measurement")
    parser.add_argument("--models", default=",".join(MODELS), help="which examples")
    parser.add_argument("--shares", default="90,80,70,60,50,40,30,20", help="percent of the true peak")
    parser.add_argument("--steps", type=int, default=8, help="training steps a run")
    parser.add_argument("--rounds", type=int, default=1, help="turns of all runs")
    parser.add_argument("--json", action="store_true", help="a line of JSON a row instead of tables")
    args = parser.parse_args()
    if args.quick:
        args.models, args.shares, args.steps, args.rounds = "lstm", "90", 3, 1
    models = [name for name in re.split(r"[, ]+", args.models) if name]
    for name in models:
        if name not in MODELS:
            parser.error(f"model {name!r}: expected some of {', '.join(MODELS)}")
    rows = []
    for name in models:
        shares = [int(share) for share in args.shares.split(",")]
        rows += measured(name, shares, args.steps, args.rounds, 0.9 if args.quick else 0.021)
    print("\n".join(map(json.dumps, rows)) if args.json else table(rows))


if __name__ == "__main__":
    main()
