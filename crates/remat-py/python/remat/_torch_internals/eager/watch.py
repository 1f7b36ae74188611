"""The probe of watched storages: storages that tell of their death themselves.

``crates/remat-py/src/ffi/watch.rs`` counts references as torch's C++ does and gives storages a table of functions of
its own. Everything that it does is tried here, on storages of known owners, before anything else uses it. Where there
are differences, Python's weak references tell of deaths, as on the way through Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ... import _native
from .tensors import untyped_storage


def watch_results(python: str, storage_of: Callable[[torch.Tensor], int], bytes_of: Callable[[int], int]) -> str | None:
    """Has results of native ops watched from now on; the reason if this build of torch does not allow it.

    ``storage_of`` gives the address of a tensor's storage without making a Python object of it, ``bytes_of`` that of a
    storage's bytes.
    """
    try:
        counts_objects = _native.register_watch(python)
        for probe in (_dies_without_object, _dies_with_object, _outlives_its_tensor):
            if not probe(storage_of):
                return f"{probe.__name__.strip('_').replace('_', ' ')}: not as Remat knows it"
        if not _keeps_bytes(storage_of, bytes_of):
            return "keeps bytes: not as Remat knows it"
        if not _keeps_counts(storage_of, counts_objects):
            return "keeps counts: not as Remat knows it"
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    _native.watch_results()
    return None


_Address = Callable[[torch.Tensor], int]


def _dies_without_object(storage_of: _Address) -> bool:
    tensor = torch.ones(64)
    address = storage_of(tensor)
    watched = _native.WatchedProbe(address)
    before = watched.is_alive() and not watched.died()
    del tensor
    dead = not watched.is_alive() and watched.died() == [address] and watched.object() is None
    # Asking for the object of a dead storage must not change its counts.
    return before and dead and not watched.is_alive() and watched.object() is None


def _dies_with_object(storage_of: _Address) -> bool:
    tensor = torch.ones(64)
    storage = untyped_storage(tensor)
    address = storage_of(tensor)
    watched = _native.WatchedProbe(address)
    same = watched.object() is storage and storage._cdata == address
    del tensor
    alive = watched.is_alive() and watched.object() is storage
    del storage
    return same and alive and not watched.is_alive() and watched.died() == [address]


def _outlives_its_tensor(storage_of: _Address) -> bool:
    tensor = torch.full((64,), 3.0)
    address = storage_of(tensor)
    watched = _native.WatchedProbe(address)
    objects: list[Any] = [watched.object()]
    del tensor
    alive = watched.is_alive() and objects[0]._cdata == address and objects[0].nbytes() == 256
    view = torch.tensor([], dtype=torch.float32).set_(objects[0])
    objects.clear()
    alive = alive and watched.is_alive() and view.tolist() == [3.0] * 64
    del view
    return alive and not watched.is_alive() and watched.died() == [address]


def _keeps_bytes(storage_of: _Address, bytes_of: Callable[[int], int]) -> bool:
    """Bytes of a storage that died are there for as long as Remat has its weak reference, if they are to be kept."""
    for keeps in (True, False):
        tensor = torch.full((64,), 3.0)
        address, place = storage_of(tensor), tensor.data_ptr()
        watched = _native.WatchedProbe(address)
        watched.set_keeping(keeps)
        alive = watched.is_alive() and bytes_of(address) == place
        del tensor
        left = bytes_of(address) == (place if keeps else 0)
        if not (alive and left and not watched.is_alive() and watched.died() == [address]):
            return False
    return True


def _keeps_counts(storage_of: _Address, counts_objects: bool) -> bool:
    tensor = torch.ones(64)
    address = storage_of(tensor)
    watched = _native.WatchedProbe(address)
    held: list[tuple[int, int]] = []
    storage: Any = None

    def note() -> None:
        held.append((_uses(address), sys.getrefcount(storage)))

    bare = _uses(address)
    first = watched.during(note)
    storage = untyped_storage(tensor)
    owned, references = _uses(address), sys.getrefcount(storage)
    second = watched.during(note)
    after = (_uses(address), sys.getrefcount(storage)) == (owned, references)
    del tensor
    # Only its Python object owns the storage now: torch counts that as one. Where storages have functions for that, it
    # increfs the object for a second one.
    alone, references = _uses(address), sys.getrefcount(storage)
    third = watched.during(note)
    again = (_uses(address), sys.getrefcount(storage)) == (alone, references)
    counts = [uses for uses, _ in held] == [bare + 1, owned + 1, alone + 1]
    return first and second and third and after and again and counts and held[2][1] == references + counts_objects


def _uses(address: int) -> int:
    """Strong references to the storage at an address."""
    return int(torch._C._storage_Use_Count(address))
