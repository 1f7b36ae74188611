"""``remat measure``: what a program takes without a budget, and what its step would cost within smaller ones."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import _native
from .._errors import RematError
from .._outputs import absolute, check_distinct, check_output
from . import peaks
from .choices import make_cache_folder_absolute
from .endings import at_signal
from .floor import Floor, floor_of_file
from .launch import launcher_of, not_measured
from .program import Arguments, Program, add_arguments, fail, find, missing, parse
from .standard_error import tell
from .tracebacks import own_frames_hidden

if TYPE_CHECKING:
    from .run import Run

_EXAMPLES = """examples:
  remat measure train.py --epochs 3
  remat measure --ratio 0.8,0.6,0.5 -m train
  remat measure --out step.trace.zst train.py

The program runs without a budget. It need not run for long: a step is known once it came three or four times, and
Ctrl-C ends the program then. The table says what the step costs by plan within so many bytes; watching ops comes on
top. With --out the step stays in a file for remat simulate, min-budget, plan step and figures.
"""


#: The file of the step where no name is given.
_STEP = "step.trace.zst"

_STANDARD_OUTPUT = 1


def parser() -> argparse.ArgumentParser:
    """The arguments of ``remat measure``."""
    p = Arguments(
        prog="remat measure",
        usage="remat measure [options] (SCRIPT | -m MODULE | -c CODE) [ARGUMENT ...]",
        description="Run a Python program without a budget, and tell its peak and what smaller budgets would cost it.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--device", help="the device that is measured (default: the accelerator if there is one, else cpu)")
    p.add_argument("--ratio", metavar="R,..", help="budgets, as parts of the peak (default: 0.9 to 0.2)")
    p.add_argument("--seconds", metavar="N", help="search so long for the plan of a budget at most")
    p.add_argument("--out", metavar="FILE", help="keep the step in a file; .zst and .gz are packed")
    p.add_argument("--json", action="store_true", help="a line of JSON for the program, and one for each budget")
    add_arguments(p)
    return p


def main(argv: list[str]) -> int:
    """Runs ``remat measure ARGV`` and returns the exit code."""
    options = parse(parser(), argv)
    wrong = missing(options)
    if wrong is not None:
        return fail(wrong)
    launcher = launcher_of(options.script, options.module and options.module[0])
    if launcher is not None:
        return fail(not_measured(launcher))
    try:
        _check(options)
    except (ValueError, OSError) as error:
        return fail(str(error))
    named = peaks.named(options)
    program = find(options)
    if isinstance(program, int):
        return program
    make_cache_folder_absolute()
    owner = os.getpid()
    with _temporary_folder() as folder:
        first = os.path.join(folder, "first.trace.zst")
        try:
            run = _start(options.device, first)
            namespace = program.become_main()
        except (ValueError, RuntimeError) as error:
            return fail(str(error).splitlines()[0])
        own_frames_hidden(main.__code__)
        out = options.out if options.out is not None else os.path.join(folder, _STEP)
        try:
            ended = _end_of(program, namespace)
        finally:
            if os.getpid() == owner:
                try:
                    step = run._mode.write_measured(out)
                finally:
                    run._stop()
        if os.getpid() != owner:  # a child that the program forked, and that came to its end
            if ended is not None:
                raise ended
            return 0
        floor = _floor(first, step)
        peak = run.stats().peak
        if step is not None or _is_whole(ended):
            _keep(*named, run, peak, floor)
        heard = _tell(peak, step, floor, options.json)
        if step is None:
            return _nothing_repeats(ended)
        code = _table(out, folder, options) if heard else 0
        if code == 0 and isinstance(ended, SystemExit):
            raise ended
        return code


@contextmanager
def _temporary_folder() -> Iterator[str]:
    """A folder that is there while this is active: SIGTERM and SIGHUP remove it as they end the program.

    Children of a fork, which leave it too, leave it in place.
    """
    folder, owner = tempfile.mkdtemp(), os.getpid()
    undo = at_signal(lambda _: shutil.rmtree(folder, ignore_errors=True))
    try:
        yield folder
    finally:
        undo()
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)


def _end_of(program: Program, namespace: dict[str, Any]) -> BaseException | None:
    """Runs the program. Returns the SystemExit or KeyboardInterrupt that ended it; nothing where its last line did.

    Other errors are raised.
    """
    from .spawned import processes_told_of  # torch is loaded by now

    try:
        with processes_told_of():
            program.run(namespace)
    except (SystemExit, KeyboardInterrupt) as error:
        return error
    return None


def _is_whole(ended: BaseException | None) -> bool:
    """Whether a program that ended so ran to its end."""
    return ended is None or (isinstance(ended, SystemExit) and ended.code in (None, 0))


#: As much as the search takes, by far.
_MOST_SECONDS = 1e9


def _check(options: argparse.Namespace) -> None:
    """``ValueError`` or ``OSError`` for arguments that would fail once the program has run. Their file is absolute."""
    for ratio in [] if options.ratio is None else options.ratio.split(","):
        if not _is_number_to(ratio, math.inf):
            raise ValueError(f"--ratio {options.ratio!r}: expected numbers above 0, such as 0.8,0.6")
    if options.seconds is not None and not _is_number_to(options.seconds, _MOST_SECONDS):
        raise ValueError(f"--seconds {options.seconds!r}: expected a number of seconds above 0, such as 10")
    if options.out is not None:
        options.out = absolute(options.out)
        check_distinct({"--out": options.out, "the script": options.script})
        check_output("step", options.out)
        _check_read_again(options.out)


def _check_read_again(out: str) -> None:
    """``ValueError`` for a file of the step that is not there afterwards: a pipe, a device, standard output."""
    if out == "-" or (os.path.exists(out) and not os.path.isfile(out)):
        raise ValueError(f"--out {out!r}: the step is read again for the table: name a file")


def _is_number_to(text: str, most: float) -> bool:
    try:
        number = float(text)
    except ValueError:
        return False
    return math.isfinite(number) and 0 < number <= most


def _start(device: str | None, trace: str) -> Run:
    from .._memory.budgets import budgets_of
    from .._torch_internals import eager
    from .choices import DEFAULT_POLICIES, POOLS
    from .run import Run, Settings

    run = Run(budgets_of(None, device or eager.usual_device()), Settings(DEFAULT_POLICIES[POOLS[0]], trace=trace))
    run._start()
    run._mode.trace_floor("announced")
    run._mode.measure_steps()
    return run


def _floor(first: str, step: tuple[int, int, bool] | None) -> Floor | None:
    """The floor of the run until the step was known, or of all of it if none repeats."""
    try:
        if step is not None and not step[2]:
            raise RematError("no floor is known: more than 1048576 ops ran before the step was known; measure fewer")
        return floor_of_file(first)
    except RematError as error:
        tell(f"remat: {error}\n")
        return None


def _keep(program: str | None, arguments: list[str], run: Run, peak: int, floor: Floor | None) -> None:
    """Keeps the peak for ``remat run --budget 50%peak``."""
    needed, works = (floor.needed, floor.works) if floor is not None else (None, None)
    try:
        peaks.keep(program, peaks.Peak(arguments, run._budgets[0].name, peak, needed, works))
    except OSError as error:
        tell(f"remat: the peak is not kept: {error}\n")


def _tell(peak: int, step: tuple[int, int, bool] | None, floor: Floor | None, as_json: bool) -> bool:
    """Prints what is known of the run. Returns whether anybody reads standard output, which may be ``head``."""
    try:
        _print(peak, step, floor, as_json)
    except BrokenPipeError:
        # Python writes what is left in its buffer as it ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, _STANDARD_OUTPUT)
        os.close(nowhere)
        return False
    return True


def _print(peak: int, step: tuple[int, int, bool] | None, floor: Floor | None, as_json: bool) -> None:
    if as_json:
        import json

        ops, at_rest, _ = step or (None, None, None)
        needed, works = (floor.needed, floor.works) if floor is not None else (None, None)
        told = {"peak_bytes": peak, "step_ops": ops, "rest_bytes": at_rest}
        print(json.dumps(told | {"floor_bytes": works, "needed_bytes": needed}), flush=True)
        return
    fmt = _native.format_bytes
    known = f"; a step of {step[0]} ops repeats, {fmt(step[1])} of it at rest" if step is not None else ""
    print(f"peak {fmt(peak)}{known}", flush=True)
    if floor is not None:
        print(_floor_line(floor), flush=True)


def _floor_line(floor: Floor) -> str:
    fmt = _native.format_bytes
    refused = f"every run in less than {fmt(floor.needed)} is refused"
    if floor.works is None:
        return f"floor above the peak: at first sight an op is given more than it takes; {refused}"
    return f"floor {fmt(floor.works)}: the smallest budget found for a first run, which has seen no op; {refused}"


def _nothing_repeats(ended: BaseException | None) -> int:
    tell("remat: no step repeated, so there is no table: let the program run four steps that are alike at least\n")
    if isinstance(ended, SystemExit):
        raise ended
    return 1


def _table(step: str, folder: str, options: argparse.Namespace) -> int:
    words = ["remat", "plan", "step", step if options.out is not None else _STEP]
    words += ["--ratio", options.ratio] if options.ratio else ["--curve"]
    words += ["--seconds", options.seconds] if options.seconds else []
    words += ["--json"] if options.json else []
    with _within(folder):
        return _native.cli(words, folder)


@contextmanager
def _within(folder: str) -> Iterator[None]:
    """While this is active, names are of files in a folder. A temporary one is not told: it is gone afterwards."""
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))  # Linux enters a folder that cannot be read
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)
