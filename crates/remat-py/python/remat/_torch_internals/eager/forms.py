"""Tensors that a shape, strides and a dtype do not describe: quantized and nested ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .devices import empty_storage
from .tensors import tensors_of, untyped_storage

#: Dtypes whose tensors carry a quantizer.
QUANTIZED = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})

_PER_CHANNEL = {torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams}

#: Makes a tensor over a storage.
Form = Callable[[torch.UntypedStorage], torch.Tensor]


def form(tensor: torch.Tensor) -> tuple[Form, int, list[torch.UntypedStorage]]:
    """The form of a quantized or nested tensor, without its bytes.

    Returns the function that makes such a tensor over another storage, a hash of its sizes, and the storages that
    kernels read by raw pointer beside its own.
    """
    return _quantized(tensor) if tensor.is_quantized else _nested(tensor)


def any_nested(values: Sequence[Any]) -> bool:
    """Whether a strided nested tensor is among arguments."""
    return any(tensor.is_nested and tensor.layout == torch.strided for tensor in tensors_of(values))


def _quantized(tensor: torch.Tensor) -> tuple[Form, int, list[torch.UntypedStorage]]:
    shape, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
    # With the tensor's quantizer. The tensor's own bytes may be evicted, and are not looked at.
    mold = torch.empty_quantized(_fewest(tensor), tensor)
    mold.set_(empty_storage(tensor.device), 0, (0,), (1,))

    def over(storage: torch.UntypedStorage) -> torch.Tensor:
        return mold.detach().set_(storage, offset, shape, stride)

    read = []
    if tensor.qscheme() in _PER_CHANNEL:
        read = [tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()]
    return over, hash((shape, stride)), [untyped_storage(part) for part in read]


def _fewest(tensor: torch.Tensor) -> list[int]:
    """A shape of as few elements as fit the quantizer of a tensor."""
    if tensor.qscheme() not in _PER_CHANNEL:
        return [0]
    fewest = [0] * tensor.dim()
    fewest[tensor.q_per_channel_axis()] = tensor.size(tensor.q_per_channel_axis())
    return fewest


def _nested(tensor: torch.Tensor) -> tuple[Form, int, list[torch.UntypedStorage]]:
    dtype, device = tensor.dtype, tensor.device
    parts = [tensor._nested_tensor_size(), tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets()]
    own = [part.clone() for part in parts]

    def over(storage: torch.UntypedStorage) -> torch.Tensor:
        elements = (storage.nbytes() // dtype.itemsize,)
        buffer = torch.empty(0, dtype=dtype, device=device).set_(storage, 0, elements, (1,))
        return torch._nested_view_from_buffer(buffer, *own)

    sizes = hash(tuple(map(tuple, own[0].tolist())))
    return over, sizes, [untyped_storage(part) for part in parts]
