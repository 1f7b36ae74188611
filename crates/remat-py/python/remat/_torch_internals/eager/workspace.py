"""Workspace of an op before it first runs: an upper estimate."""

from __future__ import annotations

import functools
import re
from math import prod
from typing import Any

import torch

from .convolutions import convolution
from .precision import products_are_exact
from .replays import RNG_BYTES
from .tensors import tensors_of

_NO_WORKSPACE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros",
    "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "fill_", "zero_", "relu",
    "threshold_backward", "bernoulli_", "normal_", "uniform_", "exponential_", "rand", "rand_like", "randn",
    "randn_like", "randint", "randint_like",
    "_local_scalar_dense", "lift_fresh", "is_same_size", "scalar_tensor", "detach",
}  # fmt: skip
# Torch tags them as pointwise, and they make tensors on the way: `isinf` that of absolute values, `ldexp` the powers.
_WITH_COPIES = {"isinf", "mvlgamma", "mvlgamma_", "ldexp", "ldexp_", "gelu", "gelu_backward"}
# Numbers of the block by which a matrix is copied into its transpose.
_TRANSPOSED = 60 * 60
# They copy what they read where it does not lie as they need it, and take nothing else of torch's allocator.
_COPY_INPUTS = {"_fft_r2c", "_fft_c2r", "_fft_c2c", "embedding_dense_backward"}
_HALVES = {torch.bfloat16, torch.float16}
# In one of these types, and on the CPU, the ops below compute in the memory of their results, and take a few numbers
# more. Those of the second set first copy inputs that are not contiguous.
_COMPUTED_IN = {torch.float32, torch.float64}
_READ_STRIDED = {
    "_foreach_add_", "_foreach_addcdiv_", "_foreach_addcmul_", "_foreach_div_", "_foreach_lerp_", "_foreach_mul_",
    "_foreach_norm", "_foreach_sqrt", "_foreach_sub_", "_fused_adam_", "_fused_adamw_", "_fused_sgd_",
    "_prelu_kernel", "_prelu_kernel_backward", "amax", "amin", "cat", "constant_pad_nd", "diagonal_backward",
    "elu_backward", "flip", "gather", "hardsigmoid_backward", "hardswish", "hardswish_", "hardswish_backward",
    "hardtanh_backward", "huber_loss_backward", "index_add", "index_add_", "index_copy", "index_fill_",
    "leaky_relu_backward", "linalg_vector_norm", "log_sigmoid_backward",
    "masked_fill", "mean", "mse_loss_backward", "scatter_add_", "select_backward", "slice_backward",
    "smooth_l1_loss_backward", "softplus_backward", "stack", "sum", "where",
}  # fmt: skip
_COPY_STRIDED = {
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_log_softmax", "_log_softmax_backward_data", "_softmax",
    "_softmax_backward_data", "argmax", "argmin", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d",
    "avg_pool3d_backward", "col2im", "embedding", "glu", "glu_backward", "grid_sampler_2d",
    "grid_sampler_2d_backward", "im2col", "index_select", "max", "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward", "max_pool3d_with_indices", "max_pool3d_with_indices_backward", "min",
    "native_group_norm", "native_layer_norm", "nll_loss2d_backward", "nll_loss2d_forward", "nll_loss_backward",
    "nll_loss_forward", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d", "reflection_pad1d_backward",
    "reflection_pad2d", "reflection_pad2d_backward", "replication_pad1d", "replication_pad2d", "take", "topk", "tril",
    "triu",
}  # fmt: skip
# These take copies of what BLAS cannot read in place.
_PRODUCTS = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "addmv", "mv", "dot"}
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
    if base == "clone":
        return (0, True) if args[0].is_contiguous() else (_TRANSPOSED * args[0].element_size(), False)
    pointwise = torch.Tag.pointwise in overload.tags and not base.startswith("_foreach") and base not in _WITH_COPIES
    if pointwise and _in_one_dtype(dtypes, made):
        return 0, True
    if base in _COPY_INPUTS:
        return in_bytes * (2 if base == "_fft_c2r" else 1) + RNG_BYTES, False
    if base == "embedding":
        table = args[0]
        copied = 0 if table.is_contiguous() else table.nbytes
        return copied + in_bytes - min(table.nbytes, in_bytes) + RNG_BYTES, False
    both = in_bytes + out_bytes
    if base in ("convolution", "convolution_backward"):
        packed = convolution(args, base == "convolution_backward")
        if packed is not None:
            return packed, False
    on_cpu = all(t.device.type == "cpu" for t in tensors) and kwargs.get("device") in (None, torch.device("cpu"))
    if on_cpu:
        copied = _copied_on_cpu(base, args, tensors, made, out_bytes)
        if copied is not None:
            return copied + RNG_BYTES, False
    if base == "sort" and on_cpu:
        return both + RNG_BYTES, False  # over many shapes it took 0.8 of it
    if any(word in base for word in _HEAVY):
        if base == "mkldnn_rnn_layer":
            return _recurrent_layer(args, in_bytes), False
        if base == "mkldnn_rnn_layer_backward":
            # All sizes are known here; over many shapes it took 0.84 of both at most.
            return both + both // 8 + RNG_BYTES, False
        factor = 8 if "rnn" in base or "lstm" in base else 3
        by_onednn = (torch.float32, torch.bfloat16)
        if "convolution" in base and any(t.dtype not in by_onednn for t in tensors) and len(tensors) > 1:
            # Without oneDNN: columns of kernel size times the input.
            weight = args[2] if "backward" in base else args[1]
            factor += weight[0, 0].numel() if weight.dim() > 2 else 1
        return factor * both + RNG_BYTES, False
    if made and any(dtype not in made for dtype in dtypes):
        # Numbers are read as others, in a copy: those of masks that are counted, for example.
        widest = max(4, *(dtype.itemsize for dtype in made))
        both += widest * sum(t.numel() for t in tensors if t.dtype not in made)
    return both * (3 if dtypes & _HALVES else 1) + RNG_BYTES, False


def _copied_on_cpu(
    base: str, args: tuple[Any, ...], tensors: list[torch.Tensor], made: set[torch.dtype], out_bytes: int
) -> int | None:
    """Bytes that an op copies where it computes in the memory of its results; ``None`` for ops that may take more.

    `benchmarks/estimates.py` compares it with what the ops of programs and of torch's own tests take, and
    `test_byte_bound.py` with samples.
    """
    if any(t.layout != torch.strided for t in tensors):
        return None
    if base in ("copy_", "_to_copy", "_unsafe_view"):
        return _TRANSPOSED * max((t.element_size() for t in tensors), default=0)
    if base in ("any", "all") and all(t.dtype == torch.bool for t in tensors):
        return 4096
    numbers = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()}
    reached = numbers | {dtype for dtype in made if dtype.is_floating_point or dtype.is_complex}
    if len(reached) != 1 or not reached <= _COMPUTED_IN or not numbers:
        return None
    if any(t.dtype in (torch.int32, torch.int16, torch.int8) for t in tensors):
        return None  # indices of other types are converted
    if base in _PRODUCTS:
        if not products_are_exact():
            return None
        return 4096 + sum(t.nbytes for t in tensors if not _is_read_by_blas(t))
    if base in _READ_STRIDED:
        return 4096
    copied = 4096 + sum(t.nbytes for t in tensors if not t.is_contiguous())
    if base in _COPY_STRIDED:
        return copied
    if base in ("gelu", "gelu_backward"):
        return 2 * copied  # oneDNN has a result that lies as those inputs do
    threads, x = torch.get_num_threads(), tensors[0]
    if base in ("native_batch_norm", "native_batch_norm_backward"):
        back = out_bytes if base == "native_batch_norm_backward" else 0
        return copied + back + 32 * x.shape[1]
    if base == "native_layer_norm_backward":
        return copied + 16 * threads * prod(args[2])
    if base == "native_group_norm_backward":
        return copied + 16 * x.shape[0] * x.shape[1]
    if base.startswith("_scaled_dot_product_flash_attention_for_cpu"):
        keys = args[2 if base.endswith("backward") else 1]
        if base.endswith("backward") and not all(t.is_contiguous() for t in tensors):
            copied += max(t.nbytes for t in tensors)
        return copied + threads * _block_of_attention(x.shape[-2], keys.shape[-2], x.shape[-1])
    return None


def _block_of_attention(queries: int, keys: int, width: int) -> int:
    """Bytes that a thread has for the scores of some queries and keys, and for their gradients."""
    rows = min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32)
    return 4 * rows * (2 * min(keys, 512) + 2 + width)


def _is_read_by_blas(t: torch.Tensor) -> bool:
    """Whether rows or columns of a matrix, or of each in a batch, lie one after the other."""
    if t.dim() < 2:
        return t.is_contiguous()
    (rows, columns), (row, column) = t.shape[-2:], t.stride()[-2:]
    return (column == 1 and row >= max(1, columns)) or (row == 1 and column >= max(1, rows))


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
