"""Workspace of an op before it first runs: an upper estimate."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

import torch

from .convolutions import convolution
from .copies import (
    COPY_STRIDED,
    HALVES,
    TRANSPOSED,
    block_of_copies,
    converted_on_cpu,
    copied_on_cpu,
    of_all_sizes,
    strided_bytes,
    transposing,
)
from .indexing import FEW
from .replays import RNG_BYTES
from .stepwise import workspace_of_steps

_NO_WORKSPACE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros",
    "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "fill_", "zero_", "relu",
    "bernoulli_", "normal_", "uniform_", "exponential_", "rand", "rand_like", "randn",
    "randn_like", "randint", "randint_like",
    "_local_scalar_dense", "lift_fresh", "is_same_size", "scalar_tensor", "detach",
    "_unsafe_view",
}  # fmt: skip
# Torch tags them as pointwise, and they make tensors on the way: `isinf` that of absolute values, `ldexp` the powers.
# `masked_fill` copies first.
_WITH_COPIES = {
    "isinf", "isfinite", "mvlgamma", "mvlgamma_", "ldexp", "ldexp_", "gelu", "gelu_backward", "masked_fill",
    "native_dropout_backward",
}  # fmt: skip
# They copy what they read where it does not lie as they need it, and take nothing else of torch's allocator.
_COPY_INPUTS = {"_fft_r2c", "_fft_c2r", "_fft_c2c", "embedding_dense_backward"}
_HEAVY = (
    *("conv", "attention", "rnn", "lstm", "gru"),
    *("fft", "linalg", "sort", "topk", "index_put", "embedding"),
)


class Workspace(NamedTuple):
    """An estimate of a call's workspace."""

    #: Enough for the call.
    bytes: int
    #: Whether the call takes just as many.
    exact: bool
    #: Enough for all calls that differ from this one in sizes alone; ``None`` if that depends on the sizes.
    of_family: int | None = None
    #: Whether these calls copy what does not lie in one piece beside that.
    copies_strided: bool = False


def estimate_workspace(
    overload: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
    in_bytes: int,
    out_bytes: int,
    made: set[torch.dtype],
) -> Workspace:
    """The workspace of a call that was never measured."""
    base = overload._schema.name.split("::")[-1]
    # Without numbers there is nothing to copy, whatever the op copies otherwise.
    filled = all(t.numel() > 0 for t in tensors)
    none = Workspace(0, exact=True, of_family=0 if filled else None)
    if base in _NO_WORKSPACE:
        draws = torch.Tag.nondeterministic_seeded in overload.tags
        return Workspace(RNG_BYTES, exact=True, of_family=RNG_BYTES) if draws else none
    if base == "clone":
        block = TRANSPOSED * args[0].element_size()
        return none if args[0].is_contiguous() else Workspace(block, exact=False, of_family=block)
    dtypes = {t.dtype for t in tensors if t.dim() > 0}
    on_cpu = all(t.device.type == "cpu" for t in tensors) and kwargs.get("device") in (None, torch.device("cpu"))
    if on_cpu and all(t.layout == torch.strided for t in tensors):
        by_steps = workspace_of_steps(base, args, kwargs, out_bytes)
        if by_steps is not None:
            return Workspace(by_steps + RNG_BYTES, exact=False)
    pointwise = torch.Tag.pointwise in overload.tags and not base.startswith("_foreach") and base not in _WITH_COPIES
    if pointwise and on_cpu:
        # A mask by which `where` chooses is read as it is.
        operands = tensors[1:] if base == "where" and tensors[0].dtype == torch.bool else tensors
        converted = converted_on_cpu([*args, *kwargs.values()], operands, made, out_bytes)
        return Workspace(converted + RNG_BYTES, exact=False) if converted else none
    if pointwise and _in_one_dtype(dtypes, made):
        return none
    if base in ("embedding", "embedding_dense_backward") and on_cpu:
        # Rows are read and added to where they lie.
        family = FEW + block_of_copies(tensors) if filled else None
        strided = strided_bytes(tensors) + transposing(tensors)
        return Workspace(strided + FEW + RNG_BYTES, exact=False, of_family=family, copies_strided=True)
    if base in _COPY_INPUTS:
        return Workspace(in_bytes * (2 if base == "_fft_c2r" else 1) + RNG_BYTES, exact=False)
    if base == "embedding":
        table = args[0]
        copied = 0 if table.is_contiguous() else table.nbytes
        return Workspace(copied + in_bytes - min(table.nbytes, in_bytes) + RNG_BYTES, exact=False)
    both = in_bytes + out_bytes
    if base in ("convolution", "convolution_backward"):
        packed = convolution(args, base == "convolution_backward")
        if packed is not None:
            return Workspace(packed, exact=False)
    if on_cpu:
        copied = copied_on_cpu(base, args, kwargs, tensors, made, out_bytes)
        if copied is not None:
            family = of_all_sizes(base, tensors, copied) if filled else None
            return Workspace(copied + RNG_BYTES, False, family, base in COPY_STRIDED)
    if base == "sort" and on_cpu:
        return Workspace(both + RNG_BYTES, exact=False)  # over many shapes it took 0.8 of it
    if any(word in base for word in _HEAVY) and base != "linalg_vector_norm":
        if base == "mkldnn_rnn_layer":
            return Workspace(_recurrent_layer(args, in_bytes), exact=False)
        if base == "mkldnn_rnn_layer_backward":
            # All sizes are known here; over many shapes it took 0.84 of both at most.
            return Workspace(both + both // 8 + RNG_BYTES, exact=False)
        factor = 8 if "rnn" in base or "lstm" in base else 3
        by_onednn = (torch.float32, torch.bfloat16)
        if "convolution" in base and any(t.dtype not in by_onednn for t in tensors) and len(tensors) > 1:
            # Without oneDNN: columns of kernel size times the input.
            weight = args[2] if "backward" in base else args[1]
            factor += weight[0, 0].numel() if weight.dim() > 2 else 1
        return Workspace(factor * both + RNG_BYTES, exact=False)
    asked = {value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)}
    if made and any(dtype not in made for dtype in dtypes):
        # Numbers are read as others, in a copy: those of masks that are counted, for example. Of complex ones that are
        # read as wider there are absolute values too.
        widest = max(4, *(dtype.itemsize for dtype in made | asked))
        copies = 2 if any(dtype.is_complex for dtype in asked) else 1
        both += copies * widest * sum(t.numel() for t in tensors if t.dtype not in made)
    block = TRANSPOSED * max((t.element_size() for t in tensors if t.numel() >= TRANSPOSED), default=0) if on_cpu else 0
    return Workspace(both * (3 if dtypes & HALVES else 1) + block + RNG_BYTES, exact=False)


#: From this release of oneDNN on, a layer's states for a backward pass take less, and are not made twice.
_ONEDNN_WITH_LEAN_STATES = (3, 10)


def _recurrent_layer(args: tuple[Any, ...], in_bytes: int) -> int:
    """Workspace of a layer of LSTM that oneDNN runs, with the result that keeps it for the backward pass.

    For each step and sample it has gates and states, in rows of its own length; over many shapes they took 0.99 of
    this without the eighth for safety. Weights and inputs are copied once.
    """
    x, hidden = args[0], args[10]
    old = _onednn() < _ONEDNN_WITH_LEAN_STATES
    gates, states, widest = _row(4 * hidden), _row(hidden), _row(max(x.shape[2], hidden))
    rows = 4 * (x.shape[0] + 1) * x.shape[1]
    kept = rows * (2 * gates + 2 * states + (10 if old else 6) * widest)
    whole = kept * (2 if old else 1) + rows * gates + in_bytes + (1 << 16)
    return whole + whole // 8


def _row(numbers: int) -> int:
    """Numbers in a row as oneDNN lays it out: whole cache lines, one more where rows would share lines of the cache."""
    aligned = -(-numbers // 16) * 16
    return aligned + 16 if aligned % 256 == 0 else aligned


@functools.cache
def _onednn() -> tuple[int, int]:
    """The release of oneDNN that torch was built with; none is older than the answer where torch does not say."""
    found = re.search(r"(?:MKL-DNN|oneDNN) v(\d+)\.(\d+)", torch.__config__.show())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _in_one_dtype(read: set[torch.dtype], made: set[torch.dtype]) -> bool:
    """Whether a pointwise op computes in the dtype that it reads.

    Otherwise it copies whole operands or results: ``abs`` of complex numbers, ``sin`` of integers, integers compared
    with a fraction.
    """
    if len(read | made - {torch.bool}) > 1:
        return False
    return torch.bool not in made or all(dtype.is_floating_point or dtype == torch.bool for dtype in read)
