"""Programs on several processes: each enters a budget of its own.

A launcher such as ``torchrun`` starts Python anew for each process, where no budget would be in force. So ``remat run``
starts the launcher, and each process is a ``remat run``. Processes that the program starts itself: ``spawned.py``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from .._outputs import absolute, check_distinct
from .choices import PLANS

#: Modules that start the program in processes of their own.
LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "lightning.fabric.cli",
    "lightning_fabric.cli",
    "deepspeed.launcher.runner",
)

#: Most processes that `--nproc` starts: a slip of the pen would take all memory.
MOST_PROCESSES = 1024

#: Stands for the number of a process in the name of a file.
_RANK = "{rank}"

#: Options that name files which a run writes.
_FILES = ("trace", "report", "plan_out", "timeline")

_COMMANDS = ("torchrun", "accelerate", "accelerate-launch", "fabric", "deepspeed")


def launcher_of(script: str | None, module: str | None) -> str | None:
    """The launcher that a command names as its program."""
    if module is not None:
        return module if module in LAUNCHERS else None
    name = os.path.basename(script or "")
    return name if name in _COMMANDS else None


def check_distinct_files(options: argparse.Namespace) -> None:
    """``ValueError`` for a file to write that a command names twice."""
    written = {f"--{name.replace('_', '-')}": getattr(options, name) for name in _FILES}
    plan = None if options.plan in PLANS else options.plan
    check_distinct({**written, "--plan": plan, "the script": options.script})


def refusal(launcher: str) -> str:
    """Why a launcher is not run inside a budget, and the way out."""
    return (
        f"{launcher} starts processes of its own, which would run without a budget: have each enter one, with "
        "`remat run --budget BYTES --nproc N train.py` or `torchrun ... -m remat run --budget BYTES train.py`"
    )


def not_measured(launcher: str) -> str:
    """Why a launcher is not measured, and the way out."""
    return (
        f"{launcher} starts processes of its own, which would not be measured: measure the program that it starts, "
        "`remat measure train.py`"
    )


def launch(options: argparse.Namespace, argv: list[str]) -> None:
    """Goes on as torch's launcher, which starts ``remat run ARGV`` in each process. Does not return.

    ``ValueError`` for a file that all processes would write.
    """
    for name in _FILES:
        path = getattr(options, name)
        if path is not None and _RANK not in path:
            flag = name.replace("_", "-")
            raise ValueError(f"--{flag} {path!r}: {options.nproc} processes would write it; put {_RANK} into its name")
    command = [sys.executable, "-m", LAUNCHERS[0], "--standalone", "--nproc-per-node", str(options.nproc)]
    sys.stdout.flush()
    sys.stderr.flush()
    # Without "--" the launcher takes what the program is given for options of its own, where that begins like one.
    os.execv(sys.executable, [*command, "-m", "--", "remat", "run", *_without_nproc(options, argv)])


def _without_nproc(options: argparse.Namespace, argv: list[str]) -> list[str]:
    """The arguments without ``--nproc``, of which the last holds, up to the program: what follows is its own."""
    named = [] if options.script is None else [options.script]
    program = [*(options.module or options.code or []), *named, *options.args]
    at = len(argv) - len(program)
    kept, words = [], iter(argv[:at])
    for word in words:
        if word == "--nproc":
            next(words)  # its number
        elif not word.startswith("--nproc="):
            kept.append(word)
    return kept + argv[at:]


def from_here(options: argparse.Namespace) -> argparse.Namespace:
    """The options with absolute names of files, for a program that may change to another folder."""
    here = _with_files(options, absolute)
    if here.plan is not None and here.plan not in PLANS:
        here.plan = absolute(here.plan)
    return here


def of_rank(options: argparse.Namespace) -> argparse.Namespace:
    """The options with the number of this process in the names of files."""
    return _with_files(options, lambda path: path.replace(_RANK, _rank()))


def of_started(options: argparse.Namespace, number: int) -> argparse.Namespace:
    """The options of a process that this one starts, by its number. It writes files whose names tell them apart."""
    return _with_files(options, lambda path: path.replace(_RANK, f"{_rank()}-{number}") if _RANK in path else None)


def _with_files(options: argparse.Namespace, own: Callable[[str], str | None]) -> argparse.Namespace:
    paths = {name: getattr(options, name) for name in _FILES}
    return argparse.Namespace(**{**vars(options), **{name: path and own(path) for name, path in paths.items()}})


def _rank() -> str:
    return os.environ.get("RANK", "0")
