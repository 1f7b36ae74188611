"""Peaks that ``remat measure`` found, kept for ``remat run --budget 50%peak``."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

from .. import _native
from .choices import cache_folder
from .floor import Floor
from .program import STANDARD_INPUT

#: Measurements that are kept of a program, the latest first.
_KEPT = 16


@dataclass(frozen=True)
class Peak:
    """A program's peak, as measured with such arguments."""

    arguments: list[str]
    device: str
    #: In bytes, like the next two.
    peak: int
    #: The floor of the run (:class:`Floor`); ``None`` if it is not known.
    needed: int | None
    works: int | None


def named(options: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The program that a command names, the same wherever it is started from, and its arguments.

    ``None`` for a program on standard input, which has no name.
    """
    if options.module is not None:
        return f"-m {options.module[0]}", options.module[1:]
    if options.code is not None:
        return f"-c {options.code[0]}", options.code[1:]
    return None if options.script == STANDARD_INPUT else os.path.realpath(options.script), options.args


def keep(program: str | None, measured: Peak) -> None:
    """Keeps a measurement. One with the same arguments on the same device gives way to it."""
    path = None if program is None else _file(program)
    if path is None:
        return
    others = [p for p in _kept(path) if (p.arguments, p.device) != (measured.arguments, measured.device)]
    told = {"remat-peaks": 1, "program": program, "measured": [asdict(p) for p in (measured, *others)][:_KEPT]}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        with open(descriptor, "w") as file:
            json.dump(told, file)
        os.replace(partial, path)
    except BaseException:
        os.unlink(partial)
        raise


def peak_of(program: str | None, arguments: list[str], device: str | None) -> Peak:
    """The measurement of a program on a device, or on any: one with the same arguments if there is one, else the
    latest. ``ValueError`` where there is none.
    """
    if program is None:
        raise ValueError("no peak is kept of a program on standard input: save it as a file, or give bytes")
    path = _file(program)
    if path is None:
        raise ValueError("REMAT_CACHE=off keeps no peaks: give bytes, or leave REMAT_CACHE out for `remat measure` too")
    kept = [peak for peak in _kept(path) if device is None or _without_zero(device) == _without_zero(peak.device)]
    if not kept:
        where = "" if device is None else f" on {device}"
        name = program if program.startswith("-m ") else "-c CODE" if program.startswith("-c ") else program
        raise ValueError(f"no peak of {name}{where} was measured: run `remat measure` with it first, or give bytes")
    return next((peak for peak in kept if peak.arguments == arguments), kept[0])


def budget_of(share: float, program: str | None, arguments: list[str], device: str | None) -> tuple[int, str]:
    """The bytes of a share of a program's peak, and the line that says so.

    ``ValueError`` where no peak is known, ``BudgetError`` for a budget below the floor.
    """
    measured = peak_of(program, arguments, device)
    budget = max(int(share * measured.peak), 1)
    fmt = _native.format_bytes
    of = f"{100 * share:.4g}% of the peak of {fmt(measured.peak)} that `remat measure` found"
    if measured.arguments != arguments:
        return budget, f"{fmt(budget)} is {of} with other arguments: {shlex.join(measured.arguments) or 'none'}"
    if measured.needed is not None and budget < measured.needed:
        raise Floor(measured.needed, measured.works).refusal(budget, measured.device)
    return budget, f"{fmt(budget)} is {of}"


def _without_zero(device: str) -> str:
    """A device without the number 0, which may be left out."""
    return device.removesuffix(":0")


def _file(program: str) -> str | None:
    folder = cache_folder()
    if folder is None:
        return None
    name = hashlib.sha256(os.fsencode(program)).hexdigest()[:32]
    return os.path.join(folder, "peaks", f"{name}.json")


def _kept(path: str) -> list[Peak]:
    """The measurements in a file; none in one that is not there, or that another version wrote."""
    try:
        with open(path) as file:
            told = json.load(file)
        if told.get("remat-peaks") != 1:
            return []
        return [_read(peak) for peak in told["measured"]]
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return []


def _read(told: dict[str, Any]) -> Peak:
    """A measurement in a file; ``TypeError`` for something else."""
    peak = Peak(**told)
    texts = [peak.device, *peak.arguments]
    numbers = [peak.peak, *(size for size in (peak.needed, peak.works) if size is not None)]
    sound = [isinstance(text, str) for text in texts] + [isinstance(number, int) for number in numbers]
    if not all(sound) or not isinstance(peak.arguments, list):
        raise TypeError
    return peak
