"""Bytes that ops of the CPU copy beside their results.

`benchmarks/estimates.py` compares it with what the ops of programs and of torch's own tests take, and
`test_estimates.py` with samples in all types of numbers and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import torch

from ... import _native
from .indexing import FEW, index_workspace
from .precision import products_are_exact

#: Numbers of the block by which a matrix is copied into its transpose.
TRANSPOSED = 60 * 60
HALVES = {torch.bfloat16, torch.float16}
_NUMBERS: dict[type, Callable[[], torch.dtype]] = {int: lambda: torch.int64, float: torch.get_default_dtype}
_SMALL_INTEGERS = {torch.int8, torch.uint8, torch.int16, torch.int32}

# In one of these types the ops below compute in the memory of their results, and take a few numbers more. Those of the
# second set first copy inputs that are not contiguous.
_COMPUTED_IN = {torch.float32, torch.float64}
_READ_STRIDED = {
    "_foreach_add_", "_foreach_addcdiv_", "_foreach_addcmul_", "_foreach_div_", "_foreach_lerp_", "_foreach_mul_",
    "_foreach_norm", "_foreach_sqrt", "_foreach_sub_", "_fused_adam_", "_fused_adamw_", "_fused_sgd_",
    "_prelu_kernel", "_prelu_kernel_backward", "amax", "amin", "diagonal_backward", "elu_backward",
    "hardsigmoid_backward", "hardswish", "hardswish_", "hardswish_backward", "hardtanh_backward",
    "huber_loss_backward", "index_fill_", "leaky_relu_backward", "linalg_vector_norm",
    "log_sigmoid_backward", "mean", "mse_loss_backward", "smooth_l1_loss_backward", "softplus_backward", "std", "var",
    "var_mean",
}  # fmt: skip
_COPY_STRIDED = {
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_log_softmax", "_log_softmax_backward_data", "_softmax",
    "_softmax_backward_data", "argmax", "argmin", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d",
    "avg_pool3d_backward", "col2im", "embedding", "glu", "glu_backward", "grid_sampler_2d",
    "grid_sampler_2d_backward", "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices", "max_pool3d_with_indices_backward", "native_group_norm", "native_layer_norm",
    "nll_loss2d_backward", "nll_loss2d_forward", "nll_loss_backward", "nll_loss_forward", "pixel_shuffle",
    "pixel_unshuffle", "reflection_pad1d", "reflection_pad1d_backward", "reflection_pad2d",
    "reflection_pad2d_backward", "replication_pad1d", "replication_pad2d", "take", "topk",
}  # fmt: skip
# They read indices that lie in one piece, and copy others.
COPY_INDICES = {"index_add", "index_add_", "index_select"}
# What they take beside a few numbers is copies of tensors that do not lie in one piece.
COPY_STRIDED = _COPY_STRIDED | COPY_INDICES
# They move numbers of any one type, whatever these are.
_MOVE = {
    "cat", "constant_pad_nd", "flip", "gather", "index_copy", "index_select", "masked_fill", "masked_fill_", "repeat",
    "roll", "scatter", "scatter_", "scatter_add", "scatter_add_", "select_backward", "slice_backward", "stack",
    "tril", "triu",
}  # fmt: skip
_WRITE_BY_INDICES = {"gather", "scatter", "scatter_", "scatter_add", "scatter_add_"}
# They reduce numbers of any one type, and convert those that are summed in another.
_REDUCE = {"count_nonzero", "cumprod", "cumsum", "max", "min", "prod", "sum"}
# These take copies of what BLAS cannot read in place.
_PRODUCTS = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "addmv", "mv", "dot"}
# They copy their first tensor into the result.
_ADD_PRODUCTS = {"addmm", "baddbmm", "addmv"}
# LAPACK works in copies of what they read, and in what becomes their results.
_FACTOR = {
    "_linalg_det", "_linalg_solve_ex", "cholesky_solve", "linalg_cholesky_ex", "linalg_inv_ex", "linalg_lu_factor_ex",
    "linalg_qr", "linalg_solve_triangular",
}  # fmt: skip


def copied_on_cpu(
    base: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[torch.Tensor],
    made: set[torch.dtype],
    out_bytes: int,
) -> int | None:
    """Bytes that an op copies where it computes in the memory of its results; ``None`` for ops that may take more."""
    if not tensors or any(t.layout != torch.strided for t in tensors):
        return None
    if base in ("copy_", "_to_copy"):
        return TRANSPOSED * max(t.element_size() for t in tensors)
    by_indices = index_workspace(base, args, kwargs)
    if by_indices is not None:
        return by_indices
    if base == "isfinite":
        return FEW + sum(t.nbytes for t in tensors) + 2 * out_bytes  # of the absolute values, and two answers
    if base in ("any", "all"):
        return FEW + sum(t.numel() for t in tensors if t.dtype != torch.bool)
    found = _moved(base, args, tensors, made) if base in _MOVE else _reduced(base, tensors, made)
    return _computed(base, args, tensors, made, out_bytes) if found is None else found


def of_all_sizes(base: str, tensors: list[torch.Tensor], copied: int) -> int | None:
    """Bytes that all calls copy which differ from one with these tensors in sizes alone, by what that one copies;
    ``None`` where it depends on the sizes. Copies of what does not lie in one piece are left out for ops that make
    them.
    """
    if base in ("copy_", "_to_copy"):
        return copied
    if base in COPY_STRIDED:
        copied -= strided_bytes(tensors) + transposing(tensors)
        return FEW + block_of_copies(tensors) if copied == FEW else None
    if base in _MOVE and base != "roll" and tensors[0].dtype not in HALVES:
        return copied
    return copied if copied == (2 * FEW if base.startswith("gelu") else FEW) else None


def converted_on_cpu(args: Sequence[Any], tensors: list[torch.Tensor], made: set[torch.dtype], out_bytes: int) -> int:
    """Bytes of the operands and results of a pointwise op that are not in the type in which it computes.

    Each is converted whole. `made` are the types of its results; none if it writes its first tensor.
    """
    if not tensors:
        return 0
    shaped = [t for t in tensors if t.dim() > 0]
    common = reduce(torch.promote_types, (t.dtype for t in shaped or tensors))
    numbers = {t.dtype for t in tensors if t.dim() == 0}
    numbers |= {_NUMBERS[type(number)]() for number in args if type(number) in _NUMBERS}
    # Numbers of a higher kind decide the type: a fraction among integers.
    higher = (dtype for dtype in numbers if _kind(dtype) > _kind(common))
    for dtype in (*higher, *(dtype for dtype in made if dtype != torch.bool)):
        common = torch.promote_types(common, dtype)
    converted = [t for t in shaped if t.dtype != common]
    if not made and tensors[0].dtype != common:
        converted.append(tensors[0])
    results = sum(out_bytes // dtype.itemsize for dtype in made if dtype not in (common, torch.bool))
    return common.itemsize * (sum(t.numel() for t in converted) + results)


def strided_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the tensors among these that do not lie in one piece."""
    return sum(t.nbytes for t in tensors if not t.is_contiguous())


def block_of_copies(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the block that a copy takes of any among these that does not lie in one piece; vectors need none."""
    return TRANSPOSED * max((t.element_size() for t in tensors if t.dim() > 1 and not t.is_contiguous()), default=0)


def transposing(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the block that copies of these take, by their sizes: torch copies matrices alone that way."""
    return block_of_copies([t for t in tensors if t.dim() == 2 and t.numel() >= TRANSPOSED])


def _of_blocks(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of a copy between tensors that may lie differently."""
    return FEW + block_of_copies(tensors)


def _kind(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)


def _moved(base: str, args: tuple[Any, ...], tensors: list[torch.Tensor], made: set[torch.dtype]) -> int | None:
    if base in ("cat", "stack"):
        data, indices = tensors, tensors[:0]
    else:
        data = [t for i, t in enumerate(tensors) if i == 0 or t.dtype == tensors[0].dtype]
        indices = [t for i, t in enumerate(tensors) if i > 0 and t.dtype != tensors[0].dtype and t.dtype != torch.bool]
    if len({t.dtype for t in data} | made) > 1 or any(t.dtype != torch.int64 for t in indices):
        return None
    taken, x = _of_blocks(data if base in COPY_INDICES else tensors), tensors[0]
    if base in COPY_INDICES:
        taken += strided_bytes(indices)
    if base == "index_select" and x.dim() > 1 and args[1] % x.dim() == 1:
        taken += strided_bytes(data)  # rows are picked from along the second dimension where they lie in one piece
    if base in ("tril", "triu") and x.dim() > 2 and not x.mT.is_contiguous():
        taken += strided_bytes((x,))  # single matrices are read as they lie
    if x.dtype in HALVES and base in _WRITE_BY_INDICES:
        taken += 4 * (sum(t.numel() for t in indices) if base == "gather" else x.numel())  # written as float32 first
    if base == "roll":
        dims = args[2] if len(args) > 2 else ()
        # One dimension after the other; without dimensions, as a vector.
        taken += (len(dims) - 1) * x.nbytes if dims else strided_bytes((x,))
    return taken


def _reduced(base: str, tensors: list[torch.Tensor], made: set[torch.dtype]) -> int | None:
    x = tensors[0]
    if base not in _REDUCE or len(tensors) > 1 or x.dtype in HALVES or len(made - {x.dtype, torch.int64}) > 0:
        return None
    taken = _of_blocks(tensors)
    if base in ("max", "min") and not x.is_contiguous():
        taken += x.numel() * x.element_size()
    if base not in ("count_nonzero", "max", "min") and x.dtype not in made:
        taken += 8 * x.numel()
    return taken


def _computed(
    base: str, args: tuple[Any, ...], tensors: list[torch.Tensor], made: set[torch.dtype], out_bytes: int
) -> int | None:
    numbers = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()}
    reached = numbers | {dtype for dtype in made if dtype.is_floating_point or dtype.is_complex}
    if len(reached) != 1 or not reached <= _COMPUTED_IN or not numbers:
        return None
    if any(t.dtype in _SMALL_INTEGERS for t in tensors):
        return None  # indices of other types are converted
    if base in _PRODUCTS:
        if not products_are_exact():
            return None
        copied = sum(t.nbytes for t in tensors if not is_read_by_blas(t))
        return FEW + copied + (transposing(tensors[:1]) if base in _ADD_PRODUCTS else 0)
    if base in _READ_STRIDED:
        return FEW
    if base in ("index_add", "index_add_"):
        indices, data = [t for t in tensors if t.dtype == torch.int64], [t for t in tensors if t.dtype != torch.int64]
        return _of_blocks(data) + strided_bytes(indices)
    read = sum(t.nbytes for t in tensors)
    if base in _FACTOR:
        return FEW + read + out_bytes + 16 * (args[0].numel() // max(1, args[0].shape[-1]))  # with pivots of rows
    if base == "_cdist_forward":
        # Both are copied, with two columns more, and once more where they are not contiguous.
        return FEW + 3 * read + sum(4 * t.nbytes // max(1, t.shape[-1]) for t in tensors)
    copied = FEW + strided_bytes(tensors) + transposing(tensors)
    if base in _COPY_STRIDED:
        return copied
    if base == "_safe_softmax":
        return copied + 2 * tensors[0].numel()  # which rows have no number
    if base in ("gelu", "gelu_backward"):
        return 2 * copied  # oneDNN has a result that lies as those inputs do
    return _of_layers(base, args, tensors, copied, out_bytes)


def _of_layers(
    base: str, args: tuple[Any, ...], tensors: list[torch.Tensor], copied: int, out_bytes: int
) -> int | None:
    """Bytes of normalizations and attention, which add up in memory of each thread."""
    threads, x = torch.get_num_threads(), tensors[0]
    if base in ("native_batch_norm", "native_batch_norm_backward"):
        back = out_bytes if base == "native_batch_norm_backward" else 0
        return copied + back + 32 * x.shape[1]
    if base == "native_layer_norm_backward":
        return copied + 16 * threads * prod(args[2])
    if base == "native_group_norm_backward":
        return copied + 16 * x.shape[0] * x.shape[1]
    if base.startswith("_scaled_dot_product_flash_attention_for_cpu"):
        back = base.endswith("backward")
        taken = FEW + sum(t.nbytes for t in tensors if t.stride(-1) != 1)
        if back and not x.transpose(1, 2).is_contiguous():
            taken += x.nbytes  # the gradient, token by token
        queries, keys = tensors[back : 2 + back]
        return taken + threads * _block_of_attention(queries.shape[-2], keys.shape[-2], queries.shape[-1])
    return None


def _block_of_attention(queries: int, keys: int, width: int) -> int:
    """Bytes that a thread has for the scores of some queries and keys, and for their gradients."""
    rows = min(queries, 256 if queries >= 768 else 64 if queries >= 192 else 32)
    return 4 * rows * (2 * min(keys, 512) + 2 + width)


def is_read_by_blas(t: torch.Tensor) -> bool:
    """Whether rows or columns of a matrix, or of each in a batch, lie one after the other."""
    return _native.is_read_by_blas(t.shape, t.stride())
