"""``remat run``: runs an unmodified script inside a budget."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import types
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _native
from .choices import COSTS, DEFAULT_POLICIES, POOLS

if TYPE_CHECKING:
    from .budget import budget

_EXAMPLES = """examples:
  remat run --budget 2GiB train.py --epochs 3
  remat run --budget 512MB --policy lru --trace step.trace.zst train.py
  remat run --budget cuda:0=6GiB --budget cpu=8GiB train.py
  remat run --budget 2GiB --pool arena train.py
  remat run --budget 2GiB --plan-out train.plan.json train.py

The script sees its own arguments, exit code, signals and tracebacks. A short report ends the run (on stderr).
Plans of steps are kept in ~/.cache/remat for the next run; REMAT_CACHE names another folder, "off" keeps none.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments of ``remat run``."""
    p = argparse.ArgumentParser(
        prog="remat run",
        description="Run a Python script with every tensor storage of a device kept inside a number of bytes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument(
        "--budget",
        action="append",
        required=True,
        metavar="[DEVICE=]BYTES",
        help="e.g. 6GiB, 512MB, cuda:0=6GiB",
    )
    counted, arena = (DEFAULT_POLICIES[pool] for pool in POOLS)
    p.add_argument("--policy", help=f"eviction policy (default: {counted}, in an arena {arena}; list: remat policies)")
    p.add_argument("--device", help="device the budget is of (default: the accelerator if used, else cpu)")
    p.add_argument("--trace", metavar="FILE", help="record the run; .zst and .gz are packed")
    p.add_argument("--seed", type=int, default=0, help="seed of the random policy (default: 0)")
    p.add_argument("--thrash-limit", type=float, metavar="X", help="give up at X times the script's own op time")
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
        "follow the plans that --plan-out wrote (default: auto; off with --policy, --pool arena or --costs bytes)",
    )
    p.add_argument("--plan-out", metavar="FILE", help="write the plans of the run, for --plan")
    p.add_argument("script", help="the script to run")
    p.add_argument("args", nargs=argparse.REMAINDER, help="its arguments")
    return p


def _fail(message: str) -> int:
    print(f"remat: {message}", file=sys.stderr)
    return 2


def _budget_argument(given: list[str]) -> str | dict[str, str]:
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    table = {}
    for item in given:
        device, sign, amount = item.partition("=")
        if not sign:
            raise ValueError(f"budget {item!r}: with several budgets name the device, e.g. cpu={item}")
        table[device] = amount
    return table


def _load(script: str) -> types.CodeType:
    with open(script, "rb") as file:
        source = file.read()
    return compile(source, script, "exec")


def _become_main(script: str, args: list[str]) -> dict[str, Any]:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = module
    sys.argv = [script, *args]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    return module.__dict__


_HERE = os.path.dirname(os.path.abspath(_native.__file__)) + os.sep


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package and without those that led to :func:`main`."""
    kept: list[TracebackType] = []
    while trace is not None:
        if trace.tb_frame.f_code is main.__code__:
            kept.clear()
        elif not trace.tb_frame.f_code.co_filename.startswith(_HERE):
            kept.append(trace)
        trace = trace.tb_next
    shown: TracebackType | None = None
    for trace in reversed(kept):
        shown = TracebackType(shown, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)
    return shown


def _hide_own_frames(error: BaseException) -> None:
    """Takes this package's frames out of the traceback of an exception, and of all exceptions that led to it."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        link.__traceback__ = _without_own_frames(link.__traceback__)
        waiting += [link.__cause__, link.__context__]


def _own_frames_hidden() -> None:
    """Has tracebacks show the script's own frames alone, as under plain Python."""
    show, show_in_thread = sys.excepthook, threading.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        value.__traceback__ = trace
        _hide_own_frames(value)
        show(kind, value, value.__traceback__)

    def hook_in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None:
            show_in_thread(args)
            return
        _hide_own_frames(args.exc_value)
        shown = (args.exc_type, args.exc_value, args.exc_value.__traceback__, args.thread)
        show_in_thread(threading.ExceptHookArgs(shown))

    sys.excepthook, threading.excepthook = hook, hook_in_thread


def _budget(options: argparse.Namespace) -> budget:
    """The budget that the command asks for.

    One that names no device moves to the first accelerator that the script uses.
    """
    asked = _budget_argument(options.budget)
    for amount in asked.values() if isinstance(asked, dict) else (asked,):
        _native.parse_bytes(amount)
    if options.policy is not None:
        _native.check_policy(options.policy)
    # Torch takes a second or two to load: what is wrong with the arguments is said before.
    from .budget import budget

    context = budget(
        asked,
        policy=options.policy,
        device=options.device,
        trace=options.trace,
        seed=options.seed,
        thrash_limit=options.thrash_limit,
        pool=options.pool,
        costs=options.costs,
        plan=options.plan,
        plan_out=options.plan_out,
    )
    names_device = isinstance(asked, dict) or options.device is not None
    return context if names_device or options.pool == "arena" else context._following_accelerator()


def main(argv: list[str]) -> int:
    """Runs ``remat run ARGV`` and returns the exit code; an exit of the script itself is passed on."""
    options = parser().parse_args(argv)
    try:
        code = _load(options.script)
    except OSError as error:
        return _fail(f"cannot read the script {options.script!r}: {error.strerror}")
    except (SyntaxError, ValueError) as error:
        # Python prints it without a traceback too: nothing ran.
        sys.excepthook(type(error), error.with_traceback(None), None)
        return 1
    if options.pool == "arena":
        from .arena import start_preloaded

        try:
            start_preloaded()
        except (RuntimeError, OSError) as error:
            return _fail(str(error))
    try:
        context = _budget(options)
        namespace = _become_main(options.script, options.args)
        run = context.__enter__()
    except (ValueError, RuntimeError, OSError) as error:
        return _fail(str(error).splitlines()[0])
    _own_frames_hidden()
    try:
        exec(code, namespace)
    finally:
        context.__exit__(None, None, None)
        print(f"remat: {run.stats()}", file=sys.stderr)
    return 0
