"""Compiled graphs: the cuts that Remat and torch choose, how long choosing takes, and what the steps take.

    python benchmarks/cuts.py [--quick] [--models NAMES] [--json FILE]
    python benchmarks/cuts.py --latency [--quick] [--models NAMES] [--json FILE]
    python benchmarks/cuts.py --batch SHARE [--quick] [--models NAMES] [--json FILE]
    python benchmarks/cuts.py --forecast [--quick] [--models NAMES] [--json FILE]

The first cuts joint graphs and generates no code. Networkx's minimum cut is given the very network that Remat's solver
makes of a joint graph; what torch's partitioner saves is worth what Remat's capacities say. The exit code is 1 if a
minimum cut is not one. The second compiles, and measures steps and their true peaks; its exit code is 1 if a loss is
not that of plain eager within a tolerance, or a peak exceeds its budget. The third finds the largest batch within a
share of the peak of eager code. The fourth compares forecasts of memory with the allocator; its exit code is 1 if one
is off by more than 5%.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from compiled_steps import MIB, NOT_AT_ALL, PROGRAMS, StepRow, budgets_known, program, step_rows
from cut_quality import CutRow, cut_row
from forecasts import ARCHITECTURES, forecast_rows, forecast_table
from joint_models import MODELS, make
from largest_batch import batch_rows, batch_table
from speed import machine, table
from timing import cell, keep_freed_blocks


def main() -> int:
    """Measures, prints, and answers with the exit code."""
    args = arguments()
    if args.latency:
        keep_freed_blocks()
    torch.set_num_threads(args.threads)
    here = machine("cpu")
    print("machine: " + ", ".join(f"{name} {value}" for name, value in here.items()), flush=True)
    if args.batch is not None:
        return batches(args)
    if args.forecast:
        return forecasts(args)
    rows: list[CutRow] | list[StepRow] = latency_rows(args) if args.latency else cut_rows(args)
    if args.json:
        kind = "step" if args.latency else "cut"
        lines = [{"kind": "machine", **here}, *({"kind": kind, **asdict(row)} for row in rows)]
        args.json.write_text("".join(json.dumps(line) + "\n" for line in lines))
    failures = [f"{label(row)}: {row.broken()}" for row in rows if row.broken()]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small models, one round: no measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row as a line of JSON")
    parser.add_argument("--rounds", type=int, help="turns of every peer (cuts 3, steps 7; 1 with --quick)")
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads")
    parser.add_argument("--latency", action="store_true", help="compile, and measure steps and peaks")
    parser.add_argument("--batch", type=float, metavar="SHARE", help="largest batch within a share of eager's peak")
    parser.add_argument("--forecast", action="store_true", help="compare forecasts of memory with the allocator")
    parser.add_argument("--models", help="which, with commas between")
    return parser.parse_args()


def named(args: argparse.Namespace, known: Iterable[str]) -> list[str]:
    """The models that were asked for."""
    names = args.models.split(",") if args.models else list(known)
    if unknown := set(names) - set(known):
        sys.exit(f"no such model: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return names


def cut_rows(args: argparse.Namespace) -> list[CutRow]:
    """The cuts of all models."""
    rows: list[CutRow] = []
    for name in named(args, MODELS):
        model, inputs = make(name, args.quick)
        row = cut_row(name, model, inputs, args.rounds or (1 if args.quick else 3))
        print(f"{name}: {row.nodes} nodes", file=sys.stderr, flush=True)
        rows.append(row)
    print("\n### What is cut\n\n" + quality_table(rows))
    print("\n### How long it takes\n\n" + time_table(rows))
    return rows


def quality_table(rows: Sequence[CutRow]) -> str:
    """Costs and bans."""
    header = ["model", "nodes", "our cut, KiB", "networkx, KiB", "torch's choice, KiB", "torch / ours"]
    header += ["bans", "only ours", "only torch's", "banned by us, recomputed by torch"]
    cells = [
        [
            row.model,
            str(row.nodes),
            f"{row.cost / 1024:.1f}",
            f"{row.networkx_cost / 1024:.1f}",
            "" if row.torch_cost is None else f"{row.torch_cost / 1024:.1f}",
            "" if row.torch_cost is None else f"{row.torch_cost / max(1, row.cost):.4f}",
            str(row.bans),
            str(row.bans_only_ours),
            str(row.bans_only_torchs),
            str(row.torch_recomputes_banned),
        ]
        for row in rows
    ]
    return table(header, cells)


def quotient(over: float, under: float) -> float | None:
    """One time over another, if both are there."""
    return over / under if over and under else None


def time_table(rows: Sequence[CutRow]) -> str:
    """Seconds and ratios; no ratio where one of its times is too short for the clock."""
    ratios: list[tuple[str, Any]] = [
        ("networkx / solver", lambda row: quotient(row.networkx_s, row.solver_s)),
        ("networkx / with JSON", lambda row: quotient(row.networkx_s, row.plan_cut_s)),
        ("torch's solver / solver", lambda row: quotient(row.torch_solver_s, row.solver_s)),
        ("our pass / torch's", lambda row: quotient(row.pass_s, row.torch_pass_s)),
    ]
    header = ["model", "vertices", "edges", "solver, ms", "with JSON, ms", "networkx, ms", "torch's solver, ms"]
    header += ["our pass, ms", "torch's pass, ms", *(name for name, _ in ratios)]
    cells = []
    for row in rows:
        times = [row.solver_s, row.plan_cut_s, row.networkx_s, row.torch_solver_s, row.pass_s, row.torch_pass_s]
        cells.append(
            [row.model, str(row.vertices), str(row.edges)]
            + [f"{1e3 * seconds:.2f}" for seconds in times]
            + [cell(ratio(row), ".2f") for _, ratio in ratios]
        )
    told = [[found for row in rows if (found := ratio(row))] for _, ratio in ratios]
    means = [cell(geometric_mean(found) if found else None, ".2f") for found in told]
    cells.append(["geometric mean", *[""] * 8, *means])
    return table(header, cells)


def label(row: CutRow | StepRow) -> str:
    """The model or program of a row."""
    return row.model if isinstance(row, CutRow) else f"{row.program}, {row.label}"


def batches(args: argparse.Namespace) -> int:
    """The largest batch of each way to run a program; the exit code."""
    for name in named(args, PROGRAMS):
        made = batch_rows(program(name, args.quick), args.batch)
        print(f"\n### {made[0].program}\n\n{table(*batch_table(made))}", flush=True)
        if args.json:
            with args.json.open("a") as file:
                file.writelines(json.dumps({"kind": "batch", **asdict(row)}) + "\n" for row in made)
    return 0


def forecasts(args: argparse.Namespace) -> int:
    """Forecasts and measured peaks."""
    names = ["vision_transformer"] if args.quick else named(args, ARCHITECTURES)
    rows = []
    for row in forecast_rows(names):
        rows.append(row)
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps({"kind": "forecast", **asdict(row)}) + "\n")
    print("\n" + forecast_table(rows))
    failures = [f"{row.model}: {row.broken()}" for row in rows if row.broken()]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def latency_rows(args: argparse.Namespace) -> list[StepRow]:
    """The steps of all programs."""
    if not budgets_known():
        print("\nremat.compile takes no budget here: rows with one are left out")
    rows: list[StepRow] = []
    for name in named(args, PROGRAMS):
        made = step_rows(program(name, args.quick), args.rounds or (1 if args.quick else 7), 2 if args.quick else 5)
        print(f"\n### {made[0].program}: base {made[0].base / MIB:.1f} MiB\n\n{step_table(made)}", flush=True)
        rows += made
    print("\n### Geometric means over the programs\n\n" + mean_table(rows))
    return rows


def step_table(rows: Sequence[StepRow]) -> str:
    """One program."""
    header = [
        "run",
        "budget MiB",
        "true peak MiB",
        "peak / budget",
        "ms / step",
        "time / torch.compile",
        "first step, s",
    ]
    header += ["loss"]
    cells = [
        [
            row.label,
            cell(row.budget and row.budget / MIB, ".1f"),
            cell(row.peak and row.peak / MIB, ".1f"),
            cell(row.peak / row.budget if row.peak and row.budget else None, ".4f"),
            cell(row.ms, ".1f"),
            cell(row.over_torch, ".3f"),
            cell(row.compiled_s, ".1f"),
            row.failure or ("same" if row.same_loss else "DIFFERENT"),
        ]
        for row in rows
    ]
    return table(header, cells)


def mean_table(rows: Sequence[StepRow]) -> str:
    """Times and peaks over those of the others, of the programs that ran."""
    without = {row.program: row.peak for row in rows if row.label == NOT_AT_ALL}
    cells = []
    for name in dict.fromkeys(row.label for row in rows):
        ran = [row for row in rows if row.label == name and row.peak and row.over_torch]
        if not ran:
            continue
        times = geometric_mean(row.over_torch or 1 for row in ran)
        peaks = geometric_mean((row.peak or 1) / (without[row.program] or 1) for row in ran)
        cells.append([name, str(len(ran)), f"{times:.3f}", f"{peaks:.3f}"])
    return table(["run", "programs", "time / torch.compile", "peak / nothing recomputed"], cells)


if __name__ == "__main__":
    sys.exit(main())
