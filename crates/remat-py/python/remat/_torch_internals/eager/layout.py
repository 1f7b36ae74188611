"""Where a ``StorageImpl`` keeps what Remat changes, found on probe storages and verified."""

from __future__ import annotations

import ctypes
import struct

import torch

from ... import _native
from ..._errors import RematError
from .tensors import untyped_storage


def probe_layout() -> tuple[int, int]:
    """Offsets in ``c10::StorageImpl`` of the data pointer and of the access guard, verified on probes.

    Raises ``RematError`` when this build of torch does not behave as expected: better no start than a wrong one.
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
    """Swaps and guards probe storages as a run would, and looks at the effect."""
    _native.guard_storage(layout, guarded, False)
    a, b = torch.arange(64, dtype=torch.int64), torch.arange(64, dtype=torch.int64) * 7
    view, expected_a, expected_b = a[3:9], a.tolist(), b.tolist()
    _native.swap_storages(layout, untyped_storage(a), untyped_storage(b))
    swapped = a.tolist() == expected_b and b.tolist() == expected_a and view.tolist() == expected_b[3:9]
    # First with the bytes still there: where the guard is not what it should be, nothing crashes.
    if not swapped or _refusals(layout, a) != _TOUCHES:
        hint = "" if _version() >= _OLDEST else f"; {'.'.join(map(str, _OLDEST))} is the first that will do"
        raise RematError(f"torch {torch.__version__}: storages do not behave as Remat needs (swap or guard){hint}")
    empty = torch.UntypedStorage(0)
    _native.swap_storages(layout, untyped_storage(a), empty)
    refused = _refusals(layout, a)
    _native.swap_storages(layout, untyped_storage(a), empty)
    if not (refused == _TOUCHES and a.tolist() == expected_b and view.tolist() == expected_b[3:9]):
        raise RematError(f"torch {torch.__version__}: storages do not behave as Remat needs (evicted)")


# Storages can be guarded against being read since this version; before, only against being written.
_OLDEST = (2, 6)
_TOUCHES = 5


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _refusals(layout: tuple[int, int], a: torch.Tensor) -> int:
    """Of so many ways to touch a guarded tensor's bytes, how many raise."""
    _native.guard_storage(layout, untyped_storage(a), True)
    raised = 0
    for touch in (lambda: a + 1, lambda: a.sum(), lambda: a.data_ptr(), lambda: a.numpy(), lambda: a.add_(1)):
        try:
            touch()
        except RuntimeError:
            raised += 1
    _native.guard_storage(layout, untyped_storage(a), False)
    return raised
