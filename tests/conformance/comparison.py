"""Outcomes of programs as plain bytes and forms, so that two runs can be compared bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

Outcome = list[tuple[str, Any]]


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format).reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def _parts(tensor: Tensor) -> list[Tensor]:
    """The strided tensors that a sparse tensor is made of."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


class _Reader:
    """Reads one outcome; storages are numbered as they appear, so that shared memory shows."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}

    def _tensor(self, tensor: Tensor) -> Any:
        known = (str(tensor.dtype), str(tensor.layout), tuple(tensor.shape), tensor.requires_grad)
        if tensor.is_nested:
            return ("nested", *(self._tensor(part) for part in tensor.detach().unbind()))
        if tensor.is_quantized:
            return (*known, self._tensor(tensor.int_repr()))
        if tensor.layout is not torch.strided:
            coalesced = tensor.detach().is_coalesced() if tensor.layout is torch.sparse_coo else None
            return (*known, coalesced, *(self._tensor(part) for part in _parts(tensor.detach())))
        if tensor.device.type != "cpu" or tensor._is_zerotensor():
            return (*known, str(tensor.device), tensor._is_zerotensor())
        storage = self._storages.setdefault(tensor.untyped_storage()._cdata, len(self._storages))
        form = (tensor.stride(), tensor.storage_offset(), tensor.is_conj(), tensor.is_neg(), storage)
        return (*known, *form, _bytes(tensor))

    def walk(self, value: Any, where: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, Tensor):
            yield where, self._tensor(value)
        elif isinstance(value, Mapping):
            for key in value:
                yield from self.walk(value[key], f"{where}.{key}")
        elif isinstance(value, list | tuple):
            for index, one in enumerate(value):
                yield from self.walk(one, f"{where}[{index}]")
        elif isinstance(value, torch.Generator | torch.UntypedStorage | torch.TypedStorage):
            yield where, type(value).__name__
        else:
            yield where, repr(value)


def outcome(value: Any) -> Outcome:
    """Each tensor and value inside of a result: form, shared memory and exact bytes."""
    with torch.no_grad():
        return list(_Reader().walk(value, "result"))


def difference(expected: Outcome, found: Outcome) -> str:
    """The first place where two outcomes differ, in words; empty where they are the same."""
    if len(expected) != len(found):
        return f"{len(expected)} values expected, {len(found)} found"
    for (where, one), (_, other) in zip(expected, found, strict=True):
        if one != other:
            return f"{where}: {_shown(one, other)}"
    return ""


def _shown(one: Any, other: Any) -> str:
    if isinstance(one, tuple) and isinstance(other, tuple) and one[:-1] == other[:-1] and isinstance(one[-1], bytes):
        pairs = list(zip(one[-1], other[-1], strict=False))
        return f"{sum(a != b for a, b in pairs)} of {len(pairs)} bytes differ, {one[0]}{list(one[2])}"
    return f"{_short(one)} expected, {_short(other)} found"


def _short(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_short(part) for part in value) + ")"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
