"""``remat run``: runs an unmodified program inside a budget."""

from __future__ import annotations

import argparse
import os
import sys

from .._outputs import check_output
from .._timeline.target import check_timeline
from .choices import COSTS, DEFAULT_POLICIES, POOLS, make_cache_folder_absolute
from .launch import MOST_PROCESSES, check_distinct_files, from_here, launch, launcher_of, of_rank, refusal
from .program import STANDARD_INPUT, Arguments, add_arguments, fail, find, missing, number, parse, whole_number
from .reports import Reports, log_of
from .run_options import budget_of_options, in_bytes
from .tracebacks import own_frames_hidden

_EXAMPLES = """examples:
  remat run --budget 2GiB train.py --epochs 3
  remat run --budget 512MB --policy lru --trace step.trace.zst train.py
  remat run --budget cuda:0=6GiB --budget cpu=8GiB train.py
  remat run --budget 2GiB --pool arena train.py
  remat run --budget 2GiB --plan-out train.plan.json train.py
  remat run --budget 80% -m train --epochs 3
  remat run --budget 50%peak train.py
  remat run --budget 2GiB --timeline run.html train.py
  remat run --budget auto --report run.json train.py
  remat run --budget 2GiB --nproc 2 --report run-{rank}.json train.py

The program sees its own arguments, exit code, signals and tracebacks. A short report ends the run (on stderr), after
Ctrl-C, SIGTERM and SIGHUP too. On a terminal a line tells of the run meanwhile; REMAT_LOG=report leaves it out,
REMAT_LOG=off the report as well.
Plans of steps are kept in ~/.cache/remat for the next run; REMAT_CACHE names another folder, "off" keeps none.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments of ``remat run``."""
    p = Arguments(
        prog="remat run",
        usage="remat run [options] --budget [DEVICE=]BYTES (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]",
        description="Run a Python program with every tensor storage of a device kept inside a number of bytes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument(
        "--budget",
        action="append",
        required=True,
        metavar="[DEVICE=]BYTES",
        help="6GiB, 512MB, cuda:0=6GiB; 80%% of the device's memory; auto: what is free there; 50%%peak: of the peak "
        "that remat measure found for this program",
    )
    counted, arena = (DEFAULT_POLICIES[pool] for pool in POOLS)
    p.add_argument("--policy", help=f"eviction policy (default: {counted}, in an arena {arena}; list: remat policies)")
    p.add_argument("--device", help="device the budget is of (default: the accelerator if used, else cpu)")
    p.add_argument("--trace", metavar="FILE", help="record the run; .zst and .gz are packed")
    p.add_argument(
        "--timeline",
        metavar="FILE",
        help="show memory over time by kind, evictions and replays: a page (.html), a trace for Perfetto (.json), a "
        "snapshot for torch's memory_viz (.pickle)",
    )
    p.add_argument("--report", metavar="FILE", help="write what the run came to as JSON, after an error too")
    p.add_argument("--seed", type=whole_number, default=0, help="seed of the random policy (default: 0)")
    p.add_argument("--thrash-limit", type=number, metavar="X", help="give up at X times the script's own op time")
    p.add_argument(
        "--pool",
        choices=POOLS,
        default=POOLS[0],
        help="what bounds memory: counted bytes (default), or on the CPU one arena of so many bytes",
    )
    p.add_argument(
        "--costs",
        choices=COSTS,
        default=COSTS[0],
        help="what an op costs: its time as measured (default), or a reckoning by its bytes, so that runs are alike",
    )
    p.add_argument(
        "--plan",
        metavar="auto|off|FILE",
        help="auto: plan steps that repeat in the background, and follow the plan; off: leave all to the policy; FILE: "
        "follow the plans that --plan-out wrote (default: auto; off with --policy or --costs bytes)",
    )
    p.add_argument("--plan-out", metavar="FILE", help="write the plans of the run, for --plan")
    p.add_argument(
        "--nproc",
        type=whole_number,
        metavar="N",
        help="run the program in N processes of torch.distributed, each inside the budget; {rank} in the name of a "
        "file stands for the process",
    )
    add_arguments(p)
    return p


def _check(options: argparse.Namespace) -> str | None:
    """The fault of arguments taken together; ``None`` if there is none."""
    wrong = missing(options)
    if wrong is not None:
        return wrong
    launcher = launcher_of(options.script, options.module and options.module[0])
    if launcher is not None:
        return refusal(launcher)
    if options.nproc is not None and not 1 <= options.nproc <= MOST_PROCESSES:
        return f"--nproc {options.nproc}: expected a number of processes of this machine, from 1 to {MOST_PROCESSES}"
    if options.nproc is not None and options.script == STANDARD_INPUT:
        return "--nproc: processes cannot share a program on standard input; save it as a file, or give it by -c"
    return None


def _check_files(options: argparse.Namespace) -> None:
    """``ValueError`` or ``OSError`` for a file that cannot be written."""
    check_timeline(options.timeline)
    if options.report == "-":
        raise ValueError("--report '-': standard output is the program's: name a file")
    for what in ("trace", "report", "timeline"):
        path = getattr(options, what)
        if path is not None and (what, path) != ("trace", "-"):
            check_output(what, path)


def main(argv: list[str]) -> int:
    """Runs ``remat run ARGV`` and returns the exit code; an exit of the program itself is passed on."""
    options = parse(parser(), argv)
    wrong = _check(options)
    if wrong is not None:
        return fail(wrong)
    try:
        log = log_of(os.environ)
        given = from_here(options)
        here = of_rank(given)
        check_distinct_files(here)
        if options.nproc is not None:
            launch(options, argv)
        options = here
        _check_files(options)
        if options.pool == "arena":
            from .arena import start_preloaded

            start_preloaded()  # before the program is found, which may be on standard input
    except (ValueError, RuntimeError, OSError) as error:
        return fail(str(error))
    program = find(options)
    if isinstance(program, int):
        return program
    given.argv = program.argv
    make_cache_folder_absolute()
    try:
        given.budget = options.budget = in_bytes(options)
        context = budget_of_options(options)
        namespace = program.become_main()
        run = context.__enter__()
    except (ValueError, RuntimeError, OSError) as error:
        return fail(str(error).splitlines()[0])
    own_frames_hidden(main.__code__)
    from .spawned import each_within_budget  # torch is loaded by now

    with each_within_budget(given), Reports(run, log, options.report, program.argv):
        try:
            program.run(namespace)
        finally:
            context.__exit__(*sys.exc_info())
    return 0
