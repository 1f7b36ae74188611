"""The cost of Remat: added time per op without memory pressure, and time against memory under budgets.

    python benchmarks/speed.py [--quick] [--json FILE]

Peers run in the same process and take turns, in an order that is reversed every round. Times are medians,
ratios are medians of the ratios within a round. Peaks are the allocator's (`true_peak.py`), taken in runs
of their own. The exit code is 1 if a loss differs from plain eager's in one bit, a peak exceeds its
budget or Remat's own policy cannot meet a budget. That a policy given with `--policy` cannot is a result.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from overhead import OverheadRow, measure_overhead, programs
from timing import cell, heading, keep_freed_blocks, line
from under_budget import BudgetRow, Schedule, measure_budgets
from workloads import Workload, gpt, resnet

MIB = 1 << 20
BUDGETS_EXPLAINED = """\
Remat p% has the budget base + p% of (peak - base). The peak is plain eager's true peak; the base is what can
never be dropped: parameters, buffers, optimizer state and the batch, all resident before the step."""


def main() -> int:
    """Measures, prints, and answers with the exit code."""
    args = arguments()
    keep_freed_blocks()
    torch.set_num_threads(args.threads)
    schedule = Schedule(args.rounds or (3 if args.quick else 9), warmup=2, steps=2 if args.quick else 4)
    here = machine(args.device)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in here.items()), flush=True)

    overhead: list[OverheadRow] = []
    if not args.no_overhead:
        print("\n## Added time per op, no memory pressure (limit 12 us)\n")
        for name, program in programs(args.device).items():
            overhead += measure_overhead(name, program, args.device, schedule.rounds, repeats=10 if args.quick else 40)
        print(overhead_table(overhead), flush=True)

    print("\n## Time against memory (deciding: limit 3% of the time)\n")
    print(BUDGETS_EXPLAINED)
    budgets: list[BudgetRow] = []
    policies = args.policy.split(",") if args.policy else [None]
    for work in workloads(args.quick, args.device, args.models.split(",")):
        rows = measure_budgets(work, args.device, schedule, policies)
        budgets += rows
        print(f"\n### {work.name}: base {rows[0].base / MIB:.1f} MiB\n\n{budget_table(rows)}", flush=True)
        del work

    if args.json:
        write_json(args.json, here, overhead, budgets)
    broken = [row for row in budgets if row.broken() and not (args.policy and row.failure)]
    for row in broken:
        print(f"{row.workload}, {row.label}: {row.broken()}", file=sys.stderr)
    return 1 if broken else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small models, few rounds: no measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row as a line of JSON")
    parser.add_argument("--rounds", type=int, help="turns of every peer (9, or 3 with --quick)")
    parser.add_argument("--threads", type=int, default=2, help="torch.set_num_threads")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--policy", help="one or several, with commas between (default: Remat's own)")
    parser.add_argument("--models", default="resnet,gpt", help="which workloads, with commas between")
    parser.add_argument("--no-overhead", action="store_true", help="leave the added time per op out")
    return parser.parse_args()


def workloads(quick: bool, device: str, models: Sequence[str]) -> Iterator[Workload]:
    """The two workloads, one after the other so that only one is resident."""
    if "resnet" in models:
        yield resnet(device, batch=32 if quick else 64, depth=3, width=8 if quick else 16)
        gc.collect()
    if "gpt" in models and quick:
        yield gpt(device, batch=8, depth=4, width=64, context=64)
    elif "gpt" in models:
        yield gpt(device, batch=16, depth=4, width=128, context=128)


def machine(device: str) -> dict[str, Any]:
    """Where the numbers come from."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def cpu_model() -> str:
    """The processor's name as Linux gives it, else as Python does."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def overhead_table(rows: Iterable[OverheadRow]) -> str:
    """The table of added time per op."""
    return table(
        ["program", "ops", "mode", "us / op", "added us / op"],
        [[r.program, str(r.ops), r.mode, f"{r.us_per_op:.2f}", f"{r.added_us_per_op:.2f}"] for r in rows],
    )


def budget_table(rows: Iterable[BudgetRow]) -> str:
    """The table of one workload."""
    header = ["run", "budget MiB", "true peak MiB", "peak / budget", "ms / step", "time / eager", "limit"]
    header += ["evictions / step", "recomputed / step", "recomputing", "deciding", "losses"]
    return table(header, [budget_cells(row) for row in rows])


def budget_cells(row: BudgetRow) -> list[str]:
    """One line of a workload's table."""
    return [
        row.label,
        cell(row.budget and row.budget / MIB, ".1f"),
        cell(row.peak and row.peak / MIB, ".1f"),
        cell(row.peak_over_budget, ".4f"),
        cell(row.ms_per_step, ".1f"),
        cell(row.time_ratio, ".3f"),
        cell(row.time_ratio_limit, ".2f"),
        cell(row.evictions_per_step, ".1f"),
        cell(row.recomputed_per_step, ".1f"),
        cell(row.recomputing_share, ".1%"),
        cell(row.deciding_share, ".2%"),
        row.failure or ("same bits" if row.same_losses else "DIFFERENT"),
    ]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table; the first column is text, the others are numbers."""
    return "\n".join([heading(header), *map(line, rows)])


def write_json(path: Path, here: dict[str, Any], overhead: Iterable[OverheadRow], budgets: Iterable[BudgetRow]) -> None:
    """One object a line: the machine, then every row, each with its kind."""
    rows = [{"kind": "machine", **here}]
    rows += [{"kind": "overhead", **asdict(row)} for row in overhead]
    rows += [{"kind": "budget", **asdict(row)} for row in budgets]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
