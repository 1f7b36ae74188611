"""The preloaded allocator: programs that run under it, and its C functions as such a program calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from process import PYTHON, Ended, ran

_PACKAGE = find_spec("remat")  # found, not imported: most programs here do without
assert _PACKAGE is not None and _PACKAGE.origin is not None
LIBRARY = Path(_PACKAGE.origin).with_name("libremat_alloc.so")
MiB = 1 << 20


def in_arena(size: int | str, script: Path, *arguments: str) -> Ended:
    """Runs a program inside an arena of so many bytes."""
    return ran(["env", f"LD_PRELOAD={LIBRARY}", f"REMAT_ARENA={size}", *PYTHON, script, *arguments])


class Statistics(ctypes.Structure):
    """`struct remat_arena_statistics`."""

    NUMBERS = (
        "capacity in_use high_water free_bytes largest_free blocks "
        "allocations frees exhaustions refusals spills wrong_frees"
    )
    _fields_ = (
        *((name, ctypes.c_uint64) for name in NUMBERS.split()),
        ("fragmentation_mean", ctypes.c_double),
        ("fragmentation_max", ctypes.c_double),
    )


def functions() -> ctypes.CDLL:
    """The library's functions; inside an arena they are among the program's own."""
    return ctypes.CDLL(str(LIBRARY))


def statistics() -> Statistics:
    """All counts, after the invariants were checked."""
    found = Statistics()
    message = ctypes.create_string_buffer(200)
    assert functions().remat_arena_read(ctypes.byref(found)) == 0
    assert functions().remat_arena_check(message, ctypes.c_size_t(200)) == 0, message.value
    return found


def restart_peak() -> None:
    functions().remat_arena_restart_peak()


def owns(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in the arena."""
    ask = functions().remat_arena_owns
    ask.restype = ctypes.c_bool
    return bool(ask(ctypes.c_void_p(tensor.data_ptr())))


MAKE_ROOM = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_uint64, ctypes.c_void_p)


def on_exhausted(make_room: Callable[[int], bool]) -> object:
    """Registers who makes room, for as long as the result is kept."""
    registered = MAKE_ROOM(lambda size, _context: make_room(size))
    functions().remat_arena_on_exhausted(registered, None)
    return registered
