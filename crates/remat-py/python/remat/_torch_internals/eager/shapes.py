"""Sizes of results by short rules.

Torch's own rules for shapes are written in Python, and check what the call itself checks again. `test_families.py`
compares both on torch's samples of each op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from .convolutions import outside_of
from .indexing import INDEX_GETS, INDEX_PUTS
from .ops import RESTRUCTURE

#: Numbers in each result; ``None`` for one that shares a storage or is not there.
Numels = list[int | None]
Rule = Callable[..., Numels]


def _like(at: int, results: int = 1) -> Rule:
    """Results with as many numbers as an argument."""
    return lambda *args: [args[at].numel()] * results


def _sized(at: int) -> Rule:
    """A result whose sizes are an argument."""
    return lambda *args: [prod(args[at])]


def _elementwise(*args: Any) -> Numels:
    shapes = [value.shape for value in args if isinstance(value, torch.Tensor)]
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return [first.numel()]
    return [prod(_broadcast(shapes))]


def _broadcast(shapes: Sequence[torch.Size]) -> list[int]:
    sizes = [1] * max(map(len, shapes))
    for shape in shapes:
        offset = len(sizes) - len(shape)
        for at, size in enumerate(shape, offset):
            if size != 1:
                sizes[at] = size
    return sizes


def _reduced(x: torch.Tensor, dims: Sequence[int] | None = None, *_: Any) -> Numels:
    if not dims or x.dim() == 0:
        return [1]
    gone = {dim % x.dim() for dim in dims}
    return [prod(size for dim, size in enumerate(x.shape) if dim not in gone)]


def _one(*_: Any) -> Numels:
    return [1]


def _joined(tensors: Sequence[torch.Tensor], *_: Any) -> Numels:
    return [sum(tensor.numel() for tensor in tensors)]


def _mm(a: torch.Tensor, b: torch.Tensor) -> Numels:
    return [a.shape[0] * b.shape[1]]


def _addmm(_: Any, a: torch.Tensor, b: torch.Tensor) -> Numels:
    return _mm(a, b)


def _bmm(a: torch.Tensor, b: torch.Tensor) -> Numels:
    return [a.shape[0] * a.shape[1] * b.shape[2]]


def _baddbmm(_: Any, a: torch.Tensor, b: torch.Tensor) -> Numels:
    return _bmm(a, b)


def _embedding(table: torch.Tensor, indices: torch.Tensor, *_: Any) -> Numels:
    return [indices.numel() * table.shape[1]]


def _embedding_backward(grad: torch.Tensor, _: Any, rows: int, *__: Any) -> Numels:
    return [rows * grad.shape[-1]]


def _index_select(x: torch.Tensor, dim: int, indices: torch.Tensor) -> Numels:
    if x.dim() == 0:
        return [1]
    return [indices.numel() * prod(size for at, size in enumerate(x.shape) if at != dim % x.dim())]


def _layer_norm(x: torch.Tensor, shape: Sequence[int], *_: Any) -> Numels:
    rows = prod(x.shape[: x.dim() - len(shape)])
    return [x.numel(), rows, rows]


def _layer_norm_backward(
    _: Any, x: torch.Tensor, shape: Sequence[int], __: Any, ___: Any, ____: Any, _____: Any, wanted: Sequence[bool]
) -> Numels:
    sizes = (x.numel(), prod(shape), prod(shape))
    return [size if wants else None for size, wants in zip(sizes, wanted, strict=True)]


def _batch_norm(x: torch.Tensor, *_: Any) -> Numels:
    # In evaluation the two statistics are empty in truth, and as large as here by torch's own rule.
    return [x.numel(), x.shape[1], x.shape[1]]


def _batch_norm_backward(_: Any, x: torch.Tensor, *others: Any) -> Numels:
    sizes = (x.numel(), x.shape[1], x.shape[1])
    return [size if wants else None for size, wants in zip(sizes, others[-1], strict=True)]


def _group_norm(
    x: torch.Tensor, _: Any, __: Any, samples: int, ___: int, ____: int, groups: int, *_____: Any
) -> Numels:
    return [x.numel(), samples * groups, samples * groups]


def _group_norm_backward(_: Any, x: torch.Tensor, *others: Any) -> Numels:
    channels = others[4]
    sizes = (x.numel(), channels, channels)
    return [size if wants else None for size, wants in zip(sizes, others[-1], strict=True)]


def _loss(reduction: int) -> Rule:
    """Number by number for two tensors where the argument at `reduction` is zero, else one number."""
    return lambda *args: _one() if len(args) <= reduction or args[reduction] else _elementwise(*args[:2])


def _loss_backward(_: Any, x: torch.Tensor, target: torch.Tensor, *__: Any) -> Numels:
    return _elementwise(x, target)


def _nll_loss(_: Any, target: torch.Tensor, __: Any, reduction: int, *___: Any) -> Numels:
    return [1 if reduction else target.numel(), 1]


def _attention(q: torch.Tensor, _: Any, v: torch.Tensor, *__: Any) -> Numels:
    rows = prod(q.shape[:-1])
    return [rows * v.shape[-1], rows]


def _attention_backward(_: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *__: Any) -> Numels:
    return [q.numel(), k.numel(), v.numel()]


def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    _: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    out_padding: Sequence[int],
    groups: int,
) -> Numels:
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    beyond = out_padding if transposed else None
    places = outside_of(x.shape[2:], weight.shape[2:], stride, padding, dilation, beyond)
    return [x.shape[0] * channels * prod(places)]


def _convolution_backward(_: Any, x: torch.Tensor, weight: torch.Tensor, *others: Any) -> Numels:
    bias = weight.shape[1] * others[-2] if others[-4] else weight.shape[0]
    sizes = (x.numel(), weight.numel(), bias)
    return [size if wants else None for size, wants in zip(sizes, others[-1], strict=True)]


def _resized(x: torch.Tensor, size: Sequence[int], *_: Any) -> Numels:
    return [x.shape[0] * x.shape[1] * prod(size)]


def _shared(*_: Any) -> Numels:
    return [None]


#: Rules of ops that torch does not tag as pointwise, by name and overload.
_RULES: dict[str, Rule] = {
    "_log_softmax": _like(0),
    "_log_softmax_backward_data": _like(0),
    "_safe_softmax": _like(0),
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "_softmax": _like(0),
    "_softmax_backward_data": _like(0),
    "_unsafe_view": _shared,
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "binary_cross_entropy": _loss(3),
    "binary_cross_entropy_backward": _loss_backward,
    "bmm": _bmm,
    "cat": _joined,
    "clone": _like(0),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "cumsum": _like(0),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "empty.memory_format": _sized(0),
    "empty_like": _like(0),
    "full.default": _sized(0),
    "full_like": _like(0),
    "gather": _like(2),
    "gelu": _like(0),
    "gelu_backward": _like(1),
    "huber_loss": _loss(2),
    "huber_loss_backward": _loss_backward,
    "index_select": _index_select,
    "max_pool2d_with_indices_backward": _like(1),
    "mean.default": _one,
    "mean.dim": _reduced,
    "mm": _mm,
    "mse_loss": _loss(2),
    "mse_loss_backward": _loss_backward,
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "native_dropout": _like(0, results=2),
    "native_dropout_backward": _like(0),
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "new_empty": _sized(1),
    "new_full": _sized(1),
    "new_ones": _sized(1),
    "new_zeros": _sized(1),
    "nll_loss2d_backward": _like(1),
    "nll_loss2d_forward": _nll_loss,
    "nll_loss_backward": _like(1),
    "nll_loss_forward": _nll_loss,
    "ones.default": _sized(0),
    "ones_like": _like(0),
    "rand.default": _sized(0),
    "rand_like": _like(0),
    "randint.default": _sized(1),
    "randint.low": _sized(2),
    "randn.default": _sized(0),
    "randn_like": _like(0),
    "scatter": _like(0),
    "scatter_add": _like(0),
    "select_backward": _sized(1),
    "slice_backward": _sized(1),
    "smooth_l1_loss": _loss(2),
    "smooth_l1_loss_backward": _loss_backward,
    "stack": _joined,
    "sum.default": _one,
    "sum.dim_IntList": _reduced,
    "tril": _like(0),
    "triu": _like(0),
    "upsample_bilinear2d": _resized,
    "upsample_bilinear2d_backward": _sized(2),
    "upsample_nearest2d": _resized,
    "upsample_nearest2d_backward": _sized(2),
    "zeros.default": _sized(0),
    "zeros_like": _like(0),
}


#: Ops that change sizes, and those whose bytes may depend on masks.
_BY_DATA = RESTRUCTURE | INDEX_GETS | INDEX_PUTS


@functools.cache
def rule_of(overload: Any) -> Rule | None:
    """The rule of an op, if it has one."""
    schema = overload._schema
    aliased = [result.alias_info is not None for result in schema.returns]
    namespace, base = schema.name.split("::")
    if namespace != "aten" or base in _BY_DATA or any(argument.is_out for argument in schema.arguments):
        return None
    if all(aliased):
        return lambda *_: [None] * len(aliased)
    if any(aliased):
        return None
    found = _RULES.get(f"{base}.{overload._overloadname}", _RULES.get(base))
    if found is None and torch.Tag.pointwise in overload.tags:
        single = len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
        found = _elementwise if single else None
    return found


def numels_by_rule(overload: Any, args: tuple[Any, ...]) -> Numels | None:
    """Numbers in a call's results by the op's rule; ``None`` if it was not written for such a call."""
    rule = rule_of(overload)
    if rule is None:
        return None
    try:
        return rule(*args)
    except (AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return None
