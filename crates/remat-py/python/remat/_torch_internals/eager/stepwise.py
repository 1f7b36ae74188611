"""Bytes of ops of the CPU that compute in several steps, each with a result of its own.

Torch writes them as programs of other ops, behind its dispatcher: the results of their steps are workspace. The bytes
follow from the steps that are alive together; `benchmarks/estimates.py --from large` holds them against those taken.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from .copies import HALVES, strided_bytes, transposing
from .indexing import FEW
from .tensors import tensors_of

_Arguments = tuple[Any, ...]

_INDEX = 8
# `isin` compares number by number where fewer than so many times a power of the others are searched for.
_COMPARED, _POWER = 10, 0.145
# Powers of a matrix, and their sums, that its exponential is made of.
_POWERS = 12
_REDUCTION_NONE = 0


def workspace_of_steps(base: str, args: _Arguments, kwargs: dict[str, Any], out_bytes: int) -> int | None:
    """Bytes that such an op takes beside its results; ``None`` for all other ops."""
    steps = _STEPS.get(base)
    if steps is None:
        return None
    taken = steps((*args, *kwargs.values()), out_bytes)
    return None if taken is None else FEW + transposing(tensors_of(args)) + taken


def _counted(args: _Arguments, _: int) -> int | None:
    """A mask, and its numbers as integers; where all numbers are counted, that is done in place."""
    along = args[1] if len(args) > 1 else None
    return None if along is None or along == [] else (1 + _INDEX) * args[0].numel()


def _selected(args: _Arguments, _: int) -> int:
    """The numbers and their indices, which it orders."""
    return args[0].nbytes + _INDEX * args[0].numel()


def _searched(args: _Arguments, _: int) -> int | None:
    """It looks for equal neighbours where all are sorted together: copies, orders, and masks of both."""
    x, y = args[:2]
    if not (isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)):
        return None
    copied = strided_bytes((x, y))
    if y.numel() < _COMPARED * x.numel() ** _POWER:
        return copied
    size = max(x.element_size(), y.element_size())
    each = 2 * size + 2 * _INDEX + 3  # together, sorted, with two orders and three masks
    return copied + each * (x.numel() + y.numel()) + _INDEX * x.numel()


def _close(args: _Arguments, _: int) -> int:
    """Differences, the bounds of both, and masks; integers are converted first."""
    x, y = args[:2]
    size = max(x.element_size(), y.element_size(), torch.get_default_dtype().itemsize)
    converted = 0 if x.is_floating_point() or x.is_complex() else 2 * size
    return (3 * size + 4 + converted) * torch.broadcast_shapes(x.shape, y.shape).numel()


def _distance(args: _Arguments, _: int) -> int:
    """The differences, and the numbers of their absolute values where they are complex."""
    x, y = args[:2]
    size = max(x.element_size(), y.element_size()) * (2 if x.is_complex() else 1)
    return size * torch.broadcast_shapes(x.shape, y.shape).numel()


def _distances(args: _Arguments, _: int) -> int | None:
    """Both with two columns more, and the first once more before it has them."""
    x, y = args[:2]
    columns = sum(4 * t.nbytes // max(1, t.shape[-1]) for t in (x, y))
    return None if x.dtype in HALVES else 2 * (x.nbytes + y.nbytes) + columns


def _cross_entropy(args: _Arguments, _: int) -> int | None:
    """Two parts of the loss are added up; a loss that is reduced is there as a whole first."""
    x, target, *rest = args
    if x.dtype in HALVES:
        return None
    reduced = len(rest) < 3 or rest[2] != _REDUCTION_NONE
    vectors = sum(2 * t.nbytes for t in rest if isinstance(t, torch.Tensor))
    return (1 + reduced) * max(x.nbytes, target.nbytes) + vectors + strided_bytes((x,))


def _log_gammas(args: _Arguments, out_bytes: int) -> int:
    """Arguments of as many log gammas for each number as there are dimensions."""
    x, dimensions = args[:2]
    return int(dimensions) * max(x.nbytes, out_bytes)


def _powers(args: _Arguments, _: int) -> int:
    """Powers of matrices and their sums; a norm, a degree and the like for each matrix."""
    x = args[0]
    packed = 2 * x.nbytes if x.dtype in HALVES else 0  # oneDNN's copies for a product
    return int(_POWERS * x.nbytes + packed + 64 * prod(x.shape[:-2]))


def _gathered(args: _Arguments, _: int) -> int:
    """Where each number goes, twice, and the numbers."""
    gradient = args[0]
    return int(2 * _INDEX * gradient.numel() + gradient.nbytes)


def _histogram(args: _Arguments, _: int) -> int:
    """Two copies of what does not lie in one piece: for its bounds, and to be counted."""
    return 2 * strided_bytes(args[:1])


def _columns(args: _Arguments, _: int) -> int:
    """A copy of images, and of those that do not lie in one piece once more."""
    return int(args[0].nbytes + strided_bytes(args[:1]))


def _grid(args: _Arguments, out_bytes: int) -> int:
    """Places of the grid with a one behind them, for each sample, and the matrices once more."""
    dimensions = len(args[1]) - 2
    packed = out_bytes if args[0].dtype in HALVES else 0  # oneDNN's copies for a product
    return int(out_bytes // dimensions * (dimensions + 1) + packed + 2 * args[0].nbytes)


def _three_products(args: _Arguments, out_bytes: int) -> int:
    """Slice by slice along one dimension: the product of the first two, and that with the third.

    The product has all dimensions but those that are summed and that the third does not have.
    """
    tensors, absent, summed = args[:3], args[3:6], args[6]
    unrolled = args[7] if len(args) > 7 else 1
    sizes = [1] * (tensors[0].dim() + len(absent[0]))
    for tensor, without in zip(tensors, absent, strict=True):
        there = [dim for dim in range(len(sizes)) if dim not in without]
        for dim, size in zip(there, tensor.shape, strict=True):
            sizes[dim] = max(sizes[dim], size)
    sizes[unrolled] = 1
    first = prod(size for dim, size in enumerate(sizes) if dim not in summed or dim not in absent[2])
    second = prod(size for dim, size in enumerate(sizes) if dim not in summed)
    both = sum(t.nbytes for t in tensors) + out_bytes
    if tensors[0].dtype in HALVES:
        both *= 3
    return both + tensors[0].element_size() * (first + second)


_STEPS: dict[str, Callable[[_Arguments, int], int | None]] = {
    "_euclidean_dist": _distances,
    "_trilinear": _three_products,
    "affine_grid_generator": _grid,
    "allclose": _close,
    "binary_cross_entropy_with_logits": _cross_entropy,
    "count_nonzero": _counted,
    "dist": _distance,
    "histc": _histogram,
    "im2col": _columns,
    "isclose": _close,
    "isin": _searched,
    "kthvalue": _selected,
    "linalg_matrix_exp": _powers,
    "masked_scatter_backward": _gathered,
    "mvlgamma": _log_gammas,
    "mvlgamma_": _log_gammas,
}
