"""The probe of native replays: a few calls are rehearsed, and their results compared with torch's own.

``crates/remat-py/src/ffi/shell.rs`` makes tensors without a storage, and ``src/call/template.rs`` calls ops with them,
lent the storages of other calls. Everything that they do is tried here before anything else uses it. Where there are
differences, ops are replayed through Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch

from ... import _native
from .tensors import untyped_storage

_Call = Callable[[torch.Tensor, float], torch.Tensor]


@functools.cache
def replay_without_python(c10: str, python: str, writable: int) -> str | None:
    """Has ops of known forms replayed natively from now on; the reason if this build of torch does not allow it."""
    try:
        aten, one = torch.ops.aten, torch.zeros(1)
        makers: list[Callable[[], object]] = [
            lambda: aten.alias(one),
            lambda: aten.clone(one),
            lambda: aten.empty_like(one),
            lambda: aten.unsafe_split.Tensor(one, 1),
        ]
        _native.register_replays(c10, python, writable, makers)
        for name, call in _calls().items():
            if not _is_replayed(call):
                return f"a replay of {name}: not as Remat knows it"
        for probe in (_writes, _keeps_no_storage, _raises):
            if not probe():
                return f"{probe.__name__.strip('_').replace('_', ' ')}: not as Remat knows it"
    except (RuntimeError, ValueError, TypeError) as error:
        return str(error)
    _native.replay_natively()
    return None


def _calls() -> dict[str, _Call]:
    """Calls of tensors of 6 by 8 numbers, with arguments of all kinds; the last op of each is replayed."""
    aten = torch.ops.aten
    return {
        "a number": lambda x, n: aten.leaky_relu(x, -n),
        "a number in a tensor": lambda x, n: x[1:].t() * n,
        "an integer in a tensor": lambda x, n: x * int(4 * n),
        "a truth in a tensor": lambda x, n: x * (n > 1),
        "a list of numbers": lambda x, n: aten.sum.dim_IntList(x, [1], True),
        "a text": lambda x, n: aten.gelu(x[:, 1:], approximate="tanh"),
        "a list of tensors": lambda x, n: aten.cat([x[2:], x[:3], x[5:]], 0),
        "a device": lambda x, n: aten.full([3, 2], n, device="cpu"),
        "many dimensions": lambda x, n: aten.sin(x.view(1, 2, 3, 4, 2, 1)[:, 1:]),
        "a conjugate": lambda x, n: aten.mm(torch.complex(x, x).t().conj(), torch.complex(x, -x)),
        "a result of two": lambda x, n: aten.sort(x, 1)[0],
    }


def _tensor(start: float) -> torch.Tensor:
    return torch.linspace(start, 5.0, 50)[int(start) : int(start) + 48].view(6, 8)


def _contents(tensors: Iterable[torch.Tensor]) -> list[list[int]]:
    return [untyped_storage(tensor).tolist() for tensor in tensors]


def _is_replayed(call: _Call) -> bool:
    """Whether a call is replayed with another call's storages, offsets and numbers."""
    x, y = _tensor(0), _tensor(2)
    found = _native.rehearse_replay(lambda: call(x, 1.5), lambda: call(y, 0.75))
    return [storage.tolist() for storage in found[:1] if storage] == _contents([call(y, 0.75)])


def _writes() -> bool:
    """A write goes to the storage that was lent."""
    x, y = _tensor(0), _tensor(2)
    twice = y.clone()
    for _ in range(2):
        twice[3:].add_(twice[:3], alpha=0.5)

    def write(tensor: torch.Tensor, factor: float) -> None:
        tensor[3:].add_(tensor[:3], alpha=factor)

    found = _native.rehearse_replay(lambda: write(x, 1.5), lambda: write(y, 0.5))
    return torch.equal(y, twice) and [storage is untyped_storage(y) for storage in found] == [True]


def _keeps_no_storage() -> bool:
    """Storages die with their tensors: no shell, list or number that was made for a replay keeps one."""
    tensors = [_tensor(0), _tensor(2)]
    addresses = [untyped_storage(tensor)._cdata for tensor in tensors]
    uses = [torch._C._storage_Use_Count(address) for address in addresses]
    first, second = (functools.partial(lambda at: torch.cat([tensors[at], tensors[at] * 2.0]), at) for at in (0, 1))
    _native.rehearse_replay(first, second)
    (found,) = _native.rehearse_replay(lambda: tensors[0] * 2.0, lambda: tensors[1] * 3.0)
    if found is None or uses != [torch._C._storage_Use_Count(address) for address in addresses]:
        return False
    watched = [_native.WatchedProbe(address) for address in (*addresses, found._cdata)]
    tensors.clear()
    del found
    return not any(storage.is_alive() for storage in watched)


def _raises() -> bool:
    """An error of torch is caught and keeps its type, and everything is given back."""
    tensors, rows = [_tensor(0)], torch.tensor([1, 2])
    watched = _native.WatchedProbe(untyped_storage(tensors[0])._cdata)
    try:
        _native.rehearse_replay(
            lambda: torch.index_select(tensors[0], 0, rows), lambda: torch.index_select(tensors[0], 0, rows + 6)
        )
    except IndexError as error:
        said = str(error)
    else:
        return False
    tensors.clear()
    return "out of range" in said and not watched.is_alive()
