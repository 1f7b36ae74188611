"""Outcomes of a run turned into plain bytes, so that two runs can be compared bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

Bits = list[tuple[str, Any]]


def _tensor_bits(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return ("sparse", _tensor_bits(tensor.indices()), _tensor_bits(tensor.values()))
    if tensor.layout is torch.sparse_csr:
        parts = (tensor.crow_indices(), tensor.col_indices(), tensor.values())
        return ("csr", *(_tensor_bits(part) for part in parts))
    storage = tensor.untyped_storage()
    if tensor.numel():
        reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        needed = (tensor.storage_offset() + reach) * tensor.element_size()
        assert storage.nbytes() >= needed, "a live tensor is not resident"
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return (str(tensor.dtype), tuple(tensor.shape), data)


def _walk(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield where, _tensor_bits(value)
    elif isinstance(value, np.ndarray):
        yield where, (str(value.dtype), value.shape, value.tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            yield from _walk(value[key], f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(item, f"{where}[{index}]")
    elif isinstance(value, float):
        yield where, value.hex()
    else:
        yield where, repr(value)


def bits(value: Any) -> Bits:
    """Names each tensor, array and scalar inside `value` and gives its exact bytes."""
    with torch.no_grad():
        return list(_walk(value, "out"))


def differences(expected: Bits, found: Bits) -> list[str]:
    """The places where two outcomes differ, in words; empty when they are the same bits."""
    wrong = []
    if len(expected) != len(found):
        wrong.append(f"{len(expected)} values expected, {len(found)} found")
    for (where, one), (_, other) in zip(expected, found, strict=False):
        if one != other:
            wrong.append(f"{where}: {_shown(one)} expected, {_shown(other)} found")
    return wrong


def _shown(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], bytes):
        return f"{value[0]}{list(value[1])} {value[2][:8].hex()}…#{hash(value[2]) & 0xFFFF:04x}"
    return repr(value)[:80]
