"""Offsets of the fields of ``StorageImpl`` that Remat changes, found on probe storages and verified."""

from __future__ import annotations

import ctypes
import struct

import torch

from ... import _native
from ..._errors import RematError
from .tensors import untyped_storage


def probe_layout() -> tuple[int, int]:
    """Offsets in ``c10::StorageImpl`` of the data pointer and of the access guard, verified on probes.

    Raises ``RematError`` for a build of torch that does not behave as expected.
    """
    a, b = torch.arange(257, dtype=torch.float64), torch.full((257,), 3.0, dtype=torch.float64)
    sa, sb = untyped_storage(a), untyped_storage(b)
    words = 8  # vtable, counts, DataPtr (data, deleter, context, device), size, flags: within every StorageImpl

    def read(storage: torch.UntypedStorage) -> list[int]:
        return list(struct.unpack(f"<{words}Q", ctypes.string_at(storage._cdata, 8 * words)))

    wa, wb = read(sa), read(sb)
    at = [i for i in range(words - 2) if wa[i] == a.data_ptr() and wb[i] == b.data_ptr()]
    at = [i for i in at if wa[i + 2] == a.data_ptr() and wa[i + 1] == wb[i + 1]]
    if len(at) != 1:
        raise RematError(f"torch {torch.__version__}: the layout of storages is not known to Remat (data pointer)")
    before = ctypes.string_at(sa._cdata, 8 * words)
    torch._C._set_throw_on_mutable_data_ptr(a)
    after = ctypes.string_at(sa._cdata, 8 * words)
    flags = [i for i in range(8 * words) if before[i] != after[i]]
    if len(flags) != 2 or flags[1] != flags[0] + 1 or flags[0] % 8 > 5:
        raise RematError(f"torch {torch.__version__}: the layout of storages is not known to Remat (guard)")
    layout = (8 * at[0], flags[0])
    _verify_layout(layout, sa)
    return layout


def _verify_layout(layout: tuple[int, int], guarded: torch.UntypedStorage) -> None:
    """Swaps and guards probe storages as a run would, and checks the effect."""
    _native.guard_storage(layout, guarded, False)
    a, b = torch.arange(64, dtype=torch.int64), torch.arange(64, dtype=torch.int64) * 7
    view, expected_a, expected_b = a[3:9], a.tolist(), b.tolist()
    _native.swap_storages(layout, untyped_storage(a), untyped_storage(b))
    swapped = a.tolist() == expected_b and b.tolist() == expected_a and view.tolist() == expected_b[3:9]
    # The first check leaves the bytes in place: a guard that does not work then crashes nothing.
    if not swapped or _refusals(layout, a) != _TOUCHES:
        hint = "" if _version() >= _OLDEST else f"; {'.'.join(map(str, _OLDEST))} is the first that will do"
        raise RematError(f"torch {torch.__version__}: storages do not behave as Remat needs (swap or guard){hint}")
    empty = torch.UntypedStorage(0)
    _native.swap_storages(layout, untyped_storage(a), empty)
    refused = _refusals(layout, a)
    _native.swap_storages(layout, untyped_storage(a), empty)
    if not (refused == _TOUCHES and a.tolist() == expected_b and view.tolist() == expected_b[3:9]):
        raise RematError(f"torch {torch.__version__}: storages do not behave as Remat needs (evicted)")


# The first version of torch that can guard storages against reads; older ones guard only against writes.
_OLDEST = (2, 6)
_TOUCHES = 5


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _refusals(layout: tuple[int, int], a: torch.Tensor) -> int:
    """How many of the ways to touch a guarded tensor's bytes raise an error."""
    _native.guard_storage(layout, untyped_storage(a), True)
    raised = 0
    for touch in (lambda: a + 1, lambda: a.sum(), lambda: a.data_ptr(), lambda: a.numpy(), lambda: a.add_(1)):
        try:
            touch()
        except RuntimeError:
            raised += 1
    _native.guard_storage(layout, untyped_storage(a), False)
    return raised
