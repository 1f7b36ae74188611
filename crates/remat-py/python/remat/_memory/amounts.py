"""Amounts of memory as users write them: bytes, a share of a device, or what is free there.

Nothing here needs torch: what is wrong with an amount is said before torch is loaded.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from .. import _native

#: Bytes as an int, or a text: ``"6GiB"``, ``"80%"`` of the device's memory, ``"auto"``; for ``remat run`` also
#: ``"50%peak"``, of the peak that ``remat measure`` found.
Budget = str | int

#: The part of what is free that ``auto`` leaves to others: one in so many.
LEFT_BY_AUTO = 16


@dataclass(frozen=True)
class Amount:
    """An amount that was understood."""

    #: Bytes, if it names them.
    bytes: int | None = None
    #: The share of a device's memory, above 0 and at most 1, if it names one.
    share: float | None = None
    #: The share of a program's measured peak, above 0 and at most 1, if it names one.
    of_peak: float | None = None

    @property
    def is_relative(self) -> bool:
        """Whether it depends on a device."""
        return self.bytes is None and self.of_peak is None


#: What is free on the device.
AUTO = Amount()


def amount_of(budget: Budget) -> Amount:
    """The amount that a budget names; ``ValueError`` for one that makes no sense.

    >>> amount_of("80%").share
    0.8
    >>> amount_of("2KiB").bytes
    2048
    >>> amount_of("50%peak").of_peak
    0.5
    """
    if isinstance(budget, bool) or not isinstance(budget, (str, int)):
        raise ValueError(f"budget {budget!r}: expected bytes as an int or a text such as '6GiB', '80%' or 'auto'")
    text = str(budget).strip()
    if text == "auto":
        return AUTO
    if text.endswith("%"):
        return Amount(share=_share(budget, text, "the device's memory"))
    if text.endswith("%peak"):
        return Amount(of_peak=_share(budget, text.removesuffix("peak"), "the measured peak"))
    return Amount(bytes=_native.parse_bytes(text))


def _share(budget: Budget, text: str, whole: str) -> float:
    try:
        percent = float(text[:-1])
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise ValueError(f"budget {budget!r}: expected a share of {whole} above 0% and at most 100%, e.g. 80%")
    return percent / 100


def main_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """Bytes of main memory that this process may use, and those of them that are free, within the limit of its control
    group if it has one."""
    page = int(os.sysconf("SC_PAGE_SIZE"))
    total = int(os.sysconf("SC_PHYS_PAGES")) * page
    free = _of_table(proc / "meminfo", "MemAvailable:", 1024) or int(os.sysconf("SC_AVPHYS_PAGES")) * page
    for folder in _groups(proc, cgroup):
        for names in _GROUP_FILES:
            limit, used = _number(folder / names.limit), _number(folder / names.used)
            if limit is None or used is None:
                continue
            # Pages of files are given up when memory is short.
            used -= min(used, _of_table(folder / "memory.stat", names.inactive, 1) or 0)
            total = min(total, limit)
            free = min(free, max(limit - used, 0))
    return total, free


class _GroupFiles(NamedTuple):
    """Where a control group tells of memory: files of its limit and of what it uses, and a line of `memory.stat`."""

    limit: str
    used: str
    inactive: str


#: Of versions 2 and 1.
_GROUP_FILES = (
    _GroupFiles("memory.max", "memory.current", "inactive_file"),
    _GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _groups(proc: Path, cgroup: Path) -> list[Path]:
    """The folders of the process's control groups and of those around them."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            top = cgroup
        elif "memory" in controllers.split(","):
            top = cgroup / "memory"
        else:
            continue
        own = top / path.lstrip("/")
        folders += [own, *(folder for folder in own.parents if folder == top or top in folder.parents)]
    return folders


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None  # no such file, or "max"


def _of_table(path: Path, name: str, unit: int) -> int | None:
    try:
        words = (line.split() for line in path.read_text().splitlines())
        return next(int(line[1]) * unit for line in words if line[:1] == [name])
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def auto_of(free: int) -> int:
    """The budget of ``auto`` where so many bytes can be had."""
    return free - free // LEFT_BY_AUTO
