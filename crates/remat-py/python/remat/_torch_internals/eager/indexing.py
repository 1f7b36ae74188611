"""Bytes of ops that pick numbers by indices and masks, and of others whose results' sizes depend on data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from ..._interrupts import raise_interrupt
from .tensors import nbytes

_MASKS = (torch.bool, torch.uint8)
#: Ops that read numbers by indices.
INDEX_GETS = {"index", "_unsafe_index"}
#: Ops that write numbers by indices.
INDEX_PUTS = {"index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
_UNIQUE = {"_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"}
#: Bytes of a few numbers beside, such as each thread's count.
FEW = 4096


@functools.cache
def picks(overload: Any) -> int | None:
    """The position of the tensor whose numbers other than zero an op picks, or of the masks by which it picks.

    Their count decides all that depends on data: bytes of the result, or of the indices that torch makes of a mask.
    """
    base = overload._schema.name.split("::")[-1]
    if any(argument.is_out for argument in overload._schema.arguments):
        return None
    return 1 if base in INDEX_GETS or base in INDEX_PUTS else _PICKS.get(base)


_PICKS = {"nonzero": 0, "masked_select": 1}


def picks_by_mask(overload: Any, args: tuple[Any, ...]) -> bool:
    """Whether there is a mask among the indices of a call."""
    if picks(overload) != 1 or len(args) < 2 or not isinstance(args[1], (list, tuple)):
        return False
    return any(_is_mask(index) for index in args[1])


def sized_by_data(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[int | None], int | None] | None:
    """Bytes of the outputs where they depend on data, and the workspace if it does; ``None`` for all other ops.

    The data is read where it can be: on the CPU, unless it was evicted. Otherwise the bytes are upper bounds.
    """
    base = overload._schema.name.split("::")[-1]
    if not args or not isinstance(args[0], torch.Tensor):
        return None
    x = args[0]
    on_cpu = x.device.type == "cpu"
    if base == "nonzero":
        return [8 * _entries(x) * x.dim()], FEW if on_cpu else None
    if base == "masked_select":
        mask = args[1]
        numel = torch.broadcast_shapes(x.shape, mask.shape).numel()
        picked = _entries(mask) * (numel // max(1, mask.numel()))
        # Where each number goes, twice.
        return [picked * x.element_size()], 16 * numel + FEW if on_cpu else None
    if base in INDEX_GETS:
        indices = args[1] if len(args) > 1 else kwargs["indices"]
        if not any(_is_mask(index) for index in indices):
            return None
        entries = {id(index): _entries(index) for index in indices if _is_mask(index)}
        workspace = _bytes_of_indices(indices, entries) if on_cpu else None
        return [_picked(x, indices, entries) * x.element_size()], workspace
    if base in _UNIQUE:
        n = x.numel()
        bounds: list[int | None] = [nbytes(x), 8 * n, 8 * n]
        return bounds[: len(overload._schema.returns)], None
    if base == "repeat_interleave" and len(args) == 1:
        total = _read(x, lambda repeats: repeats.sum())
        return None if total is None else ([max(0, total) * x.element_size()], 8 * x.numel() + FEW)
    if base == "bincount":
        return _counts(*args, **kwargs)
    return None


def made_sparse(x: torch.Tensor, dims: int) -> tuple[int, int]:
    """Workspace and bytes of the sparse tensor that is made of a dense one, with indices along its first dimensions."""
    if dims < x.dim():
        # Rows of numbers are found by masks, sums and indices of all numbers.
        return 40 * x.numel() + FEW, nbytes(x) + 8 * dims * prod(x.shape[:dims])
    size = _entries(x) * (8 * dims + x.element_size())
    return size + (0 if x.is_contiguous() else nbytes(x)) + FEW, size


def index_workspace(base: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Bytes that an op takes on the CPU to read or write by indices; ``None`` for all other ops."""
    if base not in INDEX_GETS and base not in INDEX_PUTS:
        return None
    indices = args[1] if len(args) > 1 else kwargs["indices"]
    return _bytes_of_indices(indices, {id(index): _entries(index) for index in indices if _is_mask(index)})


def _bytes_of_indices(indices: Sequence[torch.Tensor | None], entries: dict[int, int]) -> int:
    """Bytes of the indices that torch makes of masks, by their entries, and of indices in other types."""
    taken = FEW
    for index in indices:
        if index is None:
            continue
        if _is_mask(index):
            taken += 8 * entries[id(index)] * index.dim()
        elif index.dtype != torch.int64:
            taken += 8 * index.numel()
    return taken


def _is_mask(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.dtype in _MASKS


def _picked(x: torch.Tensor, indices: Sequence[torch.Tensor | None], entries: dict[int, int]) -> int:
    """Numbers of a result: for each place that the indices name together, those of the dimensions without one."""
    shapes: list[Sequence[int]] = []
    kept, dim = 1, 0
    for index in indices:
        if index is None:
            kept *= x.shape[dim]
            dim += 1
        elif _is_mask(index):
            shapes.append((entries[id(index)],))
            dim += index.dim()
        else:
            shapes.append(index.shape)
            dim += 1
    longest = max(len(shape) for shape in shapes)
    aligned = [(*[1] * (longest - len(shape)), *shape) for shape in shapes]
    # An index of one place goes with any number of them. Entries that are only bounded may go with fewer.
    together = prod(min(sizes) if 0 in sizes else max(sizes) for sizes in zip(*aligned, strict=True))
    return together * kept * prod(x.shape[dim:])


def _counts(
    x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> tuple[list[int | None], int] | None:
    highest = 0 if x.numel() == 0 else _read(x, lambda numbers: numbers.max())
    if highest is None:
        return None
    wide = 4 if weights is not None and weights.dtype == torch.float32 else 8
    copied = sum(8 * tensor.numel() for tensor in (x, weights) if tensor is not None)
    return [wide * max(minlength, highest + 1)], copied + FEW


def _entries(tensor: torch.Tensor) -> int:
    """Entries other than zero; all of them where they cannot be counted."""
    counted = _read(tensor, torch.ops.aten.count_nonzero.default)
    return tensor.numel() if counted is None else counted


def _read(tensor: torch.Tensor, count: Callable[[torch.Tensor], torch.Tensor]) -> int | None:
    """A number that is read off a tensor of the CPU; ``None`` where it is evicted, or has no data."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        return None
    try:
        return int(count(tensor))
    except Exception as error:
        raise_interrupt(error)
        return None
