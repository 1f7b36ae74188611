"""Workspace of an op before it first runs: an upper estimate."""

from __future__ import annotations

import functools
import re
from typing import Any

import torch

from .replays import RNG_BYTES
from .tensors import tensors_of

_NO_WORKSPACE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros",
    "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "fill_", "zero_", "clone", "relu",
    "threshold_backward", "bernoulli_", "normal_", "uniform_", "exponential_",
    "_local_scalar_dense", "lift_fresh", "is_same_size", "scalar_tensor", "detach",
}  # fmt: skip
# Torch tags them as pointwise, and they make tensors on the way: `isinf` that of absolute values.
_WITH_COPIES = {"isinf", "mvlgamma", "mvlgamma_"}
# They copy what they read where it does not lie as they need it, and take nothing else of torch's allocator.
_COPY_INPUTS = {"_fft_r2c", "_fft_c2r", "_fft_c2c", "embedding_dense_backward"}
_HEAVY = (
    *("conv", "attention", "rnn", "lstm", "gru"),
    *("fft", "linalg", "sort", "topk", "index_put", "embedding"),
)


def estimate_workspace(
    overload: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    in_bytes: int,
    out_bytes: int,
    made: set[torch.dtype],
) -> tuple[int, bool]:
    """A safe number of bytes for an op never measured, and whether it is exact."""
    base = overload._schema.name.split("::")[-1]
    if base in _NO_WORKSPACE:
        return (RNG_BYTES, True) if torch.Tag.nondeterministic_seeded in overload.tags else (0, True)
    tensors = tensors_of(args) + tensors_of(kwargs)
    dtypes = {t.dtype for t in tensors if t.dim() > 0}
    pointwise = torch.Tag.pointwise in overload.tags and not base.startswith("_foreach") and base not in _WITH_COPIES
    if pointwise and _in_one_dtype(dtypes, made):
        return 0, True
    if base in _COPY_INPUTS:
        return in_bytes + RNG_BYTES, False
    if base == "embedding":
        table = args[0]
        copied = 0 if table.is_contiguous() else table.nbytes
        return copied + in_bytes - min(table.nbytes, in_bytes) + RNG_BYTES, False
    both = in_bytes + out_bytes
    if base in ("convolution", "convolution_backward"):
        packed = _packed_convolution(base, args)
        if packed is not None:
            return packed, False
    if any(word in base for word in _HEAVY):
        if base == "mkldnn_rnn_layer":
            return _recurrent_layer(args, in_bytes), False
        if base == "mkldnn_rnn_layer_backward":
            # All sizes are known here; over many shapes it took 0.84 of both at most.
            return both + both // 8 + RNG_BYTES, False
        factor = 8 if "rnn" in base or "lstm" in base else 3
        if "convolution" in base and any(t.dtype == torch.float64 for t in tensors) and len(tensors) > 1:
            # Without oneDNN: columns of kernel size times the input.
            weight = args[2] if "backward" in base else args[1]
            factor += weight[0, 0].numel() if weight.dim() > 2 else 1
        return factor * both + RNG_BYTES, False
    return both + RNG_BYTES, False


def _packed_convolution(base: str, args: tuple[Any, ...]) -> int | None:
    """Workspace of a convolution that oneDNN runs: copies packed in blocks of 16 channels, an eighth for safety.

    ``None`` for what it does not run (other types, three dimensions, dilation): that takes columns. One sample may take
    columns too. Of 4,000 random shapes none took more; `test_byte_bound.py` draws such.
    """
    backward = base == "convolution_backward"
    x, weight = (args[1], args[2]) if backward else (args[0], args[1])
    stride, padding, dilation, transposed, beyond, groups = args[4:10] if backward else args[3:9]
    known = x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16) and all(d == 1 for d in dilation)
    if not known or x.dim() not in (3, 4):
        return None
    kernel = weight[0, 0].numel()
    if backward:
        places = args[0][0, 0].numel()
    else:
        places = 1
        for size, extent, step, pad, more in zip(x.shape[2:], weight.shape[2:], stride, padding, beyond, strict=False):
            if transposed:
                places *= (size - 1) * step - 2 * pad + extent + more
            else:
                places *= (size + 2 * pad - extent) // step + 1
    read, written = x.shape[1], weight.shape[1] * groups if transposed else weight.shape[0]

    def blocked(channels: int) -> int:
        """Of all groups, each in blocks of its own."""
        return -(-channels // groups // 16) * 16 * groups

    inputs = 4 * x.shape[0] * blocked(read) * x[0, 0].numel()
    outputs = 4 * x.shape[0] * blocked(written) * places
    kernel_bytes = 4 * blocked(read) * blocked(written) // groups * kernel
    if backward:
        kernels = 3 + (x.dtype != torch.float32) + 2 * (groups > 1)
        copies = inputs + outputs + max(inputs, outputs) + kernels * kernel_bytes
    else:
        copies = inputs + 2 * outputs + 2 * kernel_bytes
    if transposed and groups > 1:
        copies *= 2  # packed once more: it took up to 1.8 times as much
    if x.shape[0] == 1:
        columns = written * x[0, 0].numel() if transposed else read * places
        copies += 4 * kernel * columns
    return copies + copies // 8 + (1 << 17)


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
