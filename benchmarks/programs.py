"""Runs programs on packages of other people plain and within budgets, in one process each and by `remat run`.

    python benchmarks/programs.py [--only REGEX] [--jobs N] [--steps N] [--pool arena] [--quick] [--json]
    python benchmarks/programs.py --steady SECONDS [--only REGEX] [--jobs N] [--quick] [--json]
    python benchmarks/programs.py --list
    python benchmarks/programs.py --one NAME

Budgets of 70% and 45% leave so much of the span between the most bytes while the optimizer steps (parameters,
gradients, state and what it computes with) and the peak. Each program runs without Remat, then within 70% without
Remat having seen it before, within 45% after that, and cold by `remat run` within either. Compared are every bit of
the results, the peak that the allocator saw with the budget, and processor time on one thread. *Planned* are the steps
that ran as planned: few programs have any in the usual four steps, most in `--steps 40`.

With `--pool arena` each program runs plain and cold by `remat run --pool arena` alone. The peak is the arena's own, and
*spilled* are blocks that the system gave to a library for want of room.

With `--steady` what is compared is the time of steps once they have settled. Each program trains without Remat for so
many seconds, 24 to 400 steps, and for as many steps within an ample budget, within 70% and within 45% of its span. A
step ends with that of an optimizer; the last third of the steps counts, in processor time of the thread that trains.

The exit code is 1 if bits differ where the program repeats its own, a true peak is above its budget, or a program
fails in another way than by a refusal.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from third_party import catalogue
from third_party.catalogue import PROGRAMS, SHARES, load
from timing import cell, heading, line

#: Steps that are more than any program is run for with `--steady`.
ENDLESS = 10_000

#: Seconds that a process may take.
LATEST = 900

PLAIN = ("program", "plain s", "MiB", "at rest")

TITLES = {
    "fungible": (
        *PLAIN,
        *("70%: peak", "time", "planned", "45%: peak", "time", "planned"),
        *("run 70%", "run 45%", "bits"),
    ),
    "arena": (*PLAIN, "arena 70%", "spilled", "arena 45%", "spilled", "bits"),
}

STEADY = (
    "program",
    "steps",
    "ms",
    "ample",
    *(f"{of}{share}" for share in list(SHARES)[1:] for of in ("", "recomputing ", "planned ")),
)


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="programs whose names match")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument(
        "--quick", action="store_true", help="those that take a second or so and need no further packages"
    )
    parser.add_argument("--steps", type=int, default=catalogue.STEPS, help="steps of most programs (default 4)")
    parser.add_argument("--pool", choices=list(TITLES), default="fungible", help="memory of budgets (default fungible)")
    parser.add_argument(
        "--steady", type=float, metavar="SECONDS", help="compare settled steps, after so many seconds without Remat"
    )
    parser.add_argument("--json", action="store_true", help="a line of JSON for each program")
    parser.add_argument("--list", action="store_true", help="the programs' names")
    parser.add_argument("--one", metavar="NAME", help="run one program as its user would, and print its digest")
    parser.add_argument("--observe", metavar="NAME", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 1:
        parser.error(f"--steps {options.steps}: a program trains for a step or more")
    if options.steady is not None and not 0 < options.steady < LATEST:
        parser.error(f"--steady {options.steady}: a program trains for more than 0 s and less than {LATEST}")
    if options.steady is not None and options.pool == "arena":
        parser.error("--steady runs budgets of the fungible pool in one process, and an arena needs one from its start")
    catalogue.STEPS = options.steps if options.steady is None else ENDLESS
    load()
    for name in [*([options.one] if options.one else []), *(options.observe or [])]:
        if name not in PROGRAMS:
            parser.error(f"there is no program {name!r}; --list tells which there are")
    if options.one or options.observe:
        return here(options.one, options.observe or [], options.pool, options.steady)
    chosen = [
        name
        for name, program in PROGRAMS.items()
        if re.search(options.only, name) and (program.small or not options.quick)
    ]
    if not chosen:
        parser.error(f"--only {options.only!r} matches no program; --list tells which there are")
    if options.list:
        print("\n".join(chosen))
        return 0
    if options.steady is not None:
        return run_steady(chosen, options.jobs, options.steady, options.json)
    return run(chosen, options.jobs, options.pool, options.json)


def here(one: str | None, observed: list[str], pool: str, seconds: float | None) -> int:
    """Runs one program as its user would, or observes several, in this process."""
    import torch
    from third_party import observe, steady

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if one is not None:
        with contextlib.redirect_stdout(io.StringIO()):
            found = observe.once(PROGRAMS[one])
        print(found)
    for name in observed:
        program = PROGRAMS[name]
        if seconds is not None:
            with contextlib.redirect_stdout(io.StringIO()):
                found = steady.row_of(program, seconds)
            print(json.dumps(found), flush=True)
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            usual = observe.plain(program)
            shares = observe.SHARES if pool == "fungible" else ()
            within = {f"{share:.0%}": asdict(observe.budgeted(program, usual, share)) for share in shares}
        budgets = {f"{share:.0%}": usual.budget(share) for share in observe.SHARES}
        row = {"program": name, "package": program.package, "plain": asdict(usual), "within": within}
        print(json.dumps(row | {"budgets": budgets, "run": {}}), flush=True)
    return 0


def run(names: list[str], jobs: int, pool: str, as_json: bool) -> int:
    """Runs programs in processes of their own and tells of each as soon as those before it are done."""
    if not as_json:
        print(heading(TITLES[pool]), flush=True)
    wrong, rows = [], []
    with ThreadPoolExecutor(jobs) as threads:
        for name, row in zip(names, threads.map(lambda name: observed(name, pool), names), strict=True):
            rows.append(row)
            faults = list(faults_of(row))
            wrong += [f"{name}: {fault}" for fault in faults]
            print(json.dumps(row) if as_json else table_row(row, pool), flush=True)
            sys.stderr.write(f"{len(rows)} of {len(names)}: {name}{': ' if faults else ''}{'; '.join(faults)}\n")
    if not as_json:
        print("\n" + "\n".join(summary(rows, pool)))
    for fault in wrong:
        print(fault, file=sys.stderr)
    return 1 if wrong else 0


def observed(name: str, pool: str) -> dict[str, Any]:
    """A program's row: without Remat, inside budgets, and cold by `remat run`."""
    done = _process([str(Path(__file__).resolve()), "--pool", pool, "--observe", name])
    if done.returncode:
        return {"program": name, "package": PROGRAMS[name].package, "failure": _last(done.stderr)}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    row["run"] = {share: _by_command(name, budget, pool) for share, budget in row["budgets"].items()}
    return row


def run_steady(names: list[str], jobs: int, seconds: float, as_json: bool) -> int:
    """Runs programs in processes of their own for the time of their settled steps."""
    if not as_json:
        print(heading(STEADY), flush=True)
    rows = []
    with ThreadPoolExecutor(jobs) as threads:
        for row in threads.map(lambda name: settled(name, seconds), names):
            rows.append(row)
            print(json.dumps(row) if as_json else steady_row(row), flush=True)
            sys.stderr.write(f"{len(rows)} of {len(names)}: {row['program']}\n")
    if not as_json:
        print("\n" + "\n".join(steady_summary(rows)))
    failed = [row for row in rows if "steps" not in row]
    for row in failed:
        print(f"{row['program']}: {row['failure']}", file=sys.stderr)
    return 1 if failed else 0


def settled(name: str, seconds: float) -> dict[str, Any]:
    """A program's row of settled steps."""
    done = _process([str(Path(__file__).resolve()), "--steady", str(seconds), "--observe", name])
    if done.returncode:
        return {"program": name, "package": PROGRAMS[name].package, "failure": _last(done.stderr), "within": {}}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def steady_row(row: dict[str, Any]) -> str:
    """A line of the table of settled steps."""
    if row.get("failure"):
        return line([row["program"], row["failure"], *[""] * (len(STEADY) - 2)])
    cells = [row["program"], str(row["steps"]), f"{row['seconds'] * 1e3:.1f}"]
    for name, found in row["within"].items():
        if found is None:
            cells += ["refused", "", ""]
        elif name == "ample":
            cells.append(f"{found['time']:.2f}")
        else:
            cells += [f"{found['time']:.2f}", f"{found['recomputing']:.0%}", f"{min(found['planned'], 1):.0%}"]
    return line(cells)


def steady_summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Medians and 90th percentiles by the length of a step without Remat."""
    yield heading(["step without Remat", *(f"{name}: {of}" for name in SHARES for of in ("programs", "median", "90%"))])
    for title, least, most in (
        ("up to 30 ms", 0, 0.03),
        ("30 to 100 ms", 0.03, 0.1),
        ("more", 0.1, 1e9),
        ("all", 0, 1e9),
    ):
        cells = [title]
        for name in SHARES:
            times = sorted(
                row["within"][name]["time"]
                for row in rows
                if not row.get("failure") and least < row["seconds"] <= most and row["within"][name]
            )
            cells.append(str(len(times)))
            cells += [f"{times[round(at * (len(times) - 1))]:.2f}" for at in (0.5, 0.9)] if times else ["", ""]
        yield line(cells)


def _by_command(name: str, budget: int, pool: str) -> dict[str, Any]:
    """`remat run`, in a process that has seen nothing yet."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        own = ["-m", "remat", "run", "--pool", pool, "--budget", str(budget), "--report", str(report)]
        done = _process([*own, str(Path(__file__).resolve()), "--one", name])
        told = json.loads(report.read_text()) if report.exists() else {}
    lines, arena = done.stdout.split(), told.get("arena") or {}
    return {
        "digest": lines[-1] if lines and not done.returncode else None,
        "failure": _last(done.stderr) if done.returncode else None,
        "peak": arena.get("high_water", told.get("peak", 0)) / budget,
        "spilled": arena.get("spills"),
    }


def _process(words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "REMAT_CACHE": "off", "PYTHONWARNINGS": "ignore"}
    try:
        return subprocess.run(
            [sys.executable, *words, "--steps", str(catalogue.STEPS)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LATEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"took more than {LATEST} s")


def _last(text: str) -> str:
    """The line of stderr that names the error."""
    lines = [one for one in text.splitlines() if one.strip()]
    named = [one for one in lines if re.match(r"[\w.]*(Error|Exception)\b", one) or one.startswith("remat: ")]
    return (named or lines or ["no reason was given"])[-1][:300]


def is_refusal(failure: str | None) -> bool:
    """Whether a program ended because its budget was too small."""
    return failure is not None and "BudgetError" in failure


def faults_of(row: dict[str, Any]) -> Iterator[str]:
    """The ways in which Remat broke a promise."""
    if row.get("failure"):
        yield row["failure"]
        return
    repeats = row["plain"]["repeats"]
    for share, within in row["within"].items():
        if within["failure"] and not is_refusal(within["failure"]):
            yield f"{share}: {within['failure']}"
        if within["same"] is False and repeats:
            yield f"{share}: other bits"
        if (within["peak"] or 0) > 1:
            yield f"{share}: a true peak of {within['peak']:.1%} of the budget"
    for share, cold in row["run"].items():
        if cold["failure"] and not is_refusal(cold["failure"]):
            yield f"remat run, {share}: {cold['failure']}"
        if cold["digest"] not in (None, row["plain"]["digest"]) and repeats:
            yield f"remat run, {share}: other bits"
        if cold["peak"] > 1:
            yield f"remat run, {share}: a peak of {cold['peak']:.1%} of the budget"


def table_row(row: dict[str, Any], pool: str) -> str:
    """A line of the table; a refused budget says at which share of the span the program runs instead."""
    if row.get("failure"):
        return line([row["program"], row["failure"], *[""] * (len(TITLES[pool]) - 2)])
    usual, mib = row["plain"], 1 << 20
    cells = [row["program"], f"{usual['seconds']:.2f}", f"{usual['peak'] / mib:.1f}", f"{usual['at_rest'] / mib:.1f}"]
    for within in row["within"].values():
        if within["failure"]:
            cells += ["refused" if is_refusal(within["failure"]) else "failed", reason_of(within), ""]
        else:
            cells += [f"{within['peak']:.3f}", f"{within['time']:.2f}", str(within["planned"])]
    for cold in row["run"].values():
        cells.append(
            ("refused" if is_refusal(cold["failure"]) else "failed") if cold["failure"] else f"{cold['peak']:.3f}"
        )
        cells += [cell(cold["spilled"], "d")] if pool == "arena" else []
    cells.append(
        ("same" if not any("bits" in fault for fault in faults_of(row)) else "differ") if usual["repeats"] else "vary"
    )
    return line(cells)


def reason_of(within: dict[str, Any]) -> str:
    """Why a budget was refused, as far as a second run tells."""
    if within["holds_once_seen"]:
        return "holds once seen"
    return f"one op needs {cell(within['needs'], '.0%')} of it" if (within["needs"] or 0) > 1 else ""


def summary(rows: list[dict[str, Any]], pool: str) -> Iterator[str]:
    """A table by package, and the programs in all."""
    titles = ["package", "programs", "70%", "45%", "remat run 70%", "remat run 45%", "broken promises"]
    titles += ["45%, once seen", "45%: one op needs more"]
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * (len(titles) - 1))
    for row in rows:
        of = counts[row["package"]]
        of[0] += 1
        if row.get("failure"):
            of[5] += 1
            continue
        for at, ways in ((1, row["within"]), (3, row["run"])):
            for offset, way in enumerate(ways.values()):
                of[at + offset] += way["failure"] is None
        of[5] += any(True for _ in faults_of(row))
        if tight := row["within"].get("45%"):
            of[6] += (tight["failure"] is None) or tight["holds_once_seen"] is True
            of[7] += (tight["needs"] or 0) > 1
    # In an arena programs run by the command alone.
    shown = range(len(titles)) if pool == "fungible" else (0, 1, 4, 5, 6)
    yield heading([titles[at] for at in shown])
    for package, of in [
        *sorted(counts.items()),
        ("all", [sum(column) for column in zip(*counts.values(), strict=True)]),
    ]:
        cells = [package, *map(str, of)]
        yield line([cells[at] for at in shown])


if __name__ == "__main__":
    sys.exit(main())
