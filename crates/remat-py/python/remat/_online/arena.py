"""The preloaded allocator: all tensors of the CPU in one arena of exactly the budget."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _native
from .._errors import RematError

#: Bytes of one block.
SMALLEST_ARENA = 64

# The environment variable that is set while a program is started again; it holds the LD_PRELOAD of before.
_STARTED = "REMAT_ARENA_PRELOADED"


@dataclass(frozen=True)
class ArenaStats:
    """Counters of an arena during one run."""

    #: Bytes of the arena: the budget without the bytes of tensors that existed before.
    capacity: int
    #: The true peak: most bytes of the arena in use at any moment, workspace included.
    high_water: int
    #: Times that no free block was large enough.
    shortages: int
    #: The part of the arena that was free once such a block had been made, on average and at most (Coop, section 4.1).
    fragmentation_mean: float
    fragmentation_max: float
    #: Bytes evicted for these blocks, and the bytes of them that the blocks do not cover.
    evicted_bytes: int
    unused_evicted_bytes: int
    #: Bytes copied to other places of the arena, where that was cheaper than evicting.
    moved_bytes: int
    #: Searches for storages to evict, and the seconds that all of them took.
    searches: int
    search_seconds: float
    #: Allocations that found no block when they were made. More was evicted for them, or they were refused.
    exhaustions: int
    #: Allocations that must not be refused and that the system served outside of the arena.
    spills: int

    def __str__(self) -> str:
        fmt = _native.format_bytes
        return (
            f"arena: true peak {fmt(self.high_water)} of {fmt(self.capacity)} ({self.high_water / self.capacity:.1%}), "
            f"fragmentation {self.fragmentation_mean:.1%} (at most {self.fragmentation_max:.1%}) at {self.shortages} "
            f"shortages, {self.exhaustions} exhaustions, {self.spills} spills"
        )


class _Statistics(ctypes.Structure):
    """``struct remat_arena_statistics``."""

    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in (
                *("capacity", "in_use", "high_water", "free_bytes", "largest_free", "blocks"),
                *("allocations", "frees", "exhaustions", "refusals", "spills", "wrong_frees"),
            )
        ),
        ("fragmentation_mean", ctypes.c_double),
        ("fragmentation_max", ctypes.c_double),
    ]


def arena_library() -> str:
    """Path of the allocator that ``pool="arena"`` needs preloaded with ``LD_PRELOAD``.

    Raises :class:`remat.RematError` where Remat was built without it, as on other systems than Linux.

    >>> import remat
    >>> remat.arena_library().endswith(".so")
    True
    """
    path = Path(_native.__file__).with_name("libremat_alloc.so")
    if not path.is_file():
        raise RematError(
            f"the allocator {path} is not there: it comes with wheels for Linux (cargo build -p remat-alloc)"
        )
    return str(path)


def _functions() -> ctypes.CDLL:
    functions = ctypes.CDLL(arena_library())
    functions.remat_arena_open.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    return functions


def preloaded() -> bool:
    """Whether the allocations of this process go through the preloaded allocator."""
    # An arena of 0 bytes is refused: nothing is opened.
    return bool(_functions().remat_arena_open(0, 0) != errno.ENOTSUP)


def start_preloaded() -> None:
    """Starts this program again with the allocator preloaded; returns only where it is preloaded already."""
    before = os.environ.pop(_STARTED, None)
    if before is not None:
        # The script and the programs it starts see the environment as it was.
        set_preload(before)
    library = arena_library()
    if preloaded():
        return
    if before is not None or any(c in library for c in ": \t\n"):
        raise RematError(f"the allocator {library} cannot be preloaded here: the dynamic linker does not take it")
    os.environ[_STARTED] = os.environ.get("LD_PRELOAD", "")
    sys.stdout.flush()
    sys.stderr.flush()
    with preloading():
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def set_preload(libraries: str | None) -> None:
    """Sets what programs preload that are started from here on."""
    if libraries:
        os.environ["LD_PRELOAD"] = libraries
    else:
        os.environ.pop("LD_PRELOAD", None)


@contextmanager
def preloading() -> Iterator[None]:
    """Programs that are started while this is active have the allocator preloaded."""
    before = os.environ.get("LD_PRELOAD")
    set_preload(f"{arena_library()} {before or ''}".rstrip())
    try:
        yield
    finally:
        set_preload(before)


class Arena:
    """The arena of this process during one run; ``RematError`` where the allocator is not preloaded."""

    def __init__(self) -> None:
        if not preloaded():
            raise RematError(
                "pool='arena' needs the allocator preloaded: start with `remat run --pool arena --budget N SCRIPT`, "
                f"or with LD_PRELOAD={arena_library()}"
            )
        self._functions = _functions()
        self._before = _Statistics()

    def open(self, size: int) -> None:
        """From here on new tensors lie in an arena of ``size`` bytes."""
        fmt = _native.format_bytes
        number = self._functions.remat_arena_open(size, 0)
        if number:
            raise RematError(f"no arena of {fmt(size)} ({size} bytes) can be opened: {os.strerror(number)}")
        self._functions.remat_arena_restart_peak()
        self._before = self.read()

    def close(self) -> None:
        """From here on the system allocates new tensors."""
        self._functions.remat_arena_close()

    def read(self) -> _Statistics:
        """All counters since the process first opened the arena."""
        found = _Statistics()
        self._functions.remat_arena_read(ctypes.byref(found))
        return found

    def stats(self, counts: dict[str, Any]) -> ArenaStats:
        """Counters since :meth:`open`; ``counts`` are those of the session."""
        now, before = self.read(), self._before
        shortages, capacity = counts["shortages"], max(now.capacity, 1)
        return ArenaStats(
            capacity=now.capacity,
            high_water=counts["high_water"],
            shortages=shortages,
            fragmentation_mean=counts["free_after"] / max(shortages, 1) / capacity,
            fragmentation_max=counts["most_free_after"] / capacity,
            evicted_bytes=counts["evicted_bytes"],
            unused_evicted_bytes=counts["unused_evicted_bytes"],
            moved_bytes=counts["moved_bytes"],
            searches=counts["searches"],
            search_seconds=counts["search_seconds"],
            exhaustions=now.exhaustions - before.exhaustions,
            spills=now.spills - before.spills,
        )
