"""Properties of ops, from their schemas and names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .indexing import INDEX_GETS, INDEX_PUTS
from .references import forbids_keeping

# Names that torch gives running statistics, and the flag that an op computes with those of the batch.
_RUNNING = ("running_mean", "running_var")
_TRAINING = ("training", "train", "update")
RESTRUCTURE = {
    "resize_", "resize_as_", "set_", "set_data", "_resize_output_", "resize", "resize_as_sparse_",
    "resize_storage_bytes_",
}  # fmt: skip
# Ops that give memory which is not written to yet. C++ code above the dispatcher may fill it by raw pointer. It is
# neither evicted nor replayed unless the first op to touch it overwrites all of it.
_BLANK = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
_FILLS = {
    *("bernoulli_", "normal_", "uniform_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_"),
    *("zero_", "fill_", "copy_"),
}
# Ops into whose results C++ code keeps raw pointers: of packed sequences while it calls other ops, of parts of nested
# and quantized tensors as long as these live.
_READ_RAW = {
    "_pack_padded_sequence",
    *("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"),
    *("q_per_channel_scales", "q_per_channel_zero_points"),
}
# Bytes depend on data only where a mask is among the arguments: those of the result, and those of the indices that
# torch makes of the mask.
_TAKES_MASKS = {*INDEX_GETS, *INDEX_PUTS}
_DATA_DEPENDENT = {
    *_TAKES_MASKS,
    "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave",
    "bincount", "unique_dim_consecutive", "_nested_tensor_size",
    # These need more for matrices of larger norms, and for more numbers other than zero.
    "linalg_matrix_exp", "_to_sparse", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr", "_to_sparse_bsc",
    "_sparse_sparse_matmul", "_coalesce",
}  # fmt: skip


def describe(overload: Any) -> dict[str, Any]:
    """The properties of an op that the session reads; see ``Func`` in the extension."""
    schema = overload._schema
    packet = schema.name
    base = packet.split("::")[-1]
    writes, writes_by_name, scalars = [], [], 0
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes_by_name.append(argument.name)
            if not argument.kwarg_only:
                writes.append(i)
        if "number" in str(argument.type) and i < 64:
            scalars |= 1 << i
    returns = schema.returns
    tensor_returns = [r for r in returns if "Tensor" in str(r.type)]
    aliasing = [r for r in tensor_returns if r.alias_info is not None]
    is_view = bool(tensor_returns) and len(aliasing) == len(tensor_returns) and not writes_by_name
    stats = _running_stats(schema)
    if stats is not None:
        writes = [i for i in writes if i not in stats[0]]
        writes_by_name = [name for name in writes_by_name if name not in _RUNNING]
    if overload.namespace not in ("aten", "prims", "inductor", "remat"):
        kind = "foreign"
    elif base in RESTRUCTURE:
        kind = "restructure"
    elif decomposes(overload) and not is_view:
        kind = "composite"
    elif base in ("lift_fresh", "_reshape_alias") or (is_view and not decomposes(overload)):
        kind = "plain" if base == "lift_fresh" else "view"
    elif is_view:
        kind = "composite"
    elif not tensor_returns and not writes_by_name:
        kind = "read"
    else:
        kind = "plain"
    # A view's other tensors are parts of it (sizes of a nested tensor), which kernels read by raw pointer.
    parts = [i for i, a in enumerate(schema.arguments) if a.alias_info is None and "Tensor" in str(a.type)]
    return {
        "overload": overload,
        "name": str(overload),
        "call": overload._op,
        "kind": kind,
        "writes": writes,
        "writes_by_name": writes_by_name,
        "scalars": scalars,
        "random": torch.Tag.nondeterministic_seeded in overload.tags,
        "data_dependent": base in _DATA_DEPENDENT or torch.Tag.dynamic_output_shape in overload.tags,
        "takes_masks": base in _TAKES_MASKS,
        "blank": base in _BLANK,
        "fills": base in _FILLS,
        "pins_results": base in _READ_RAW,
        "pins": parts if kind == "view" else [],
        "nested": _kind_if_nested(overload) if kind == "composite" else None,
        "accumulates": base in ("detach", "clone", "add", "add_", "copy_"),
        "stats": stats,
        "keeps_arguments": kind == "foreign" and not forbids_keeping(overload),
    }


def _running_stats(schema: Any) -> tuple[list[int], int | None] | None:
    """Positions of running statistics that an op may update beside its results, and of its flag for training.

    Many of these ops do not declare that they update them; the session finds out when it first sees one. A statistic
    that an op only reads is an ordinary argument: it is neither optional nor declared to be written.
    """
    found, training = [], None
    for i, argument in enumerate(schema.arguments):
        if argument.name in _RUNNING and (argument.alias_info is not None or "Optional" in str(argument.type)):
            found.append(i)
        elif argument.name in _TRAINING and str(argument.type) == "bool":
            training = i
    return (found, training) if len(found) == len(_RUNNING) else None


def contents(tensors: Sequence[Any]) -> list[bytes]:
    """The bytes of tensors, to see later whether they changed."""
    return [tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]


def _kind_if_nested(overload: Any) -> str | None:
    """The kind of a composite op for strided nested tensors, where these have a kernel of their own."""
    keys = ("NestedTensorCPU", "NestedTensorCUDA")
    if not any(torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key) for key in keys):
        return None
    return "view" if any(r.alias_info is not None for r in overload._schema.returns) else "plain"


def decomposes(overload: Any) -> bool:
    """Whether an op consists of other ops.

    Some ops that could be taken apart have kernels of their own, which round differently (``silu_backward``). They run
    as they are.
    """
    name = overload.name()
    if not torch._C._dispatch_has_kernel(name):
        return False  # not the dispatcher's: torch asks a tensor subclass for its sizes by such names
    own = any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in ("CPU", "CUDA", "MPS", "XPU"))
    return not own and bool(overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def _accumulate_grad() -> type:
    with torch.inference_mode(False), torch.enable_grad():
        expanded: Any = torch.ones(1, dtype=torch.float32, requires_grad=True).expand(1)
    return type(expanded.grad_fn.next_functions[0][0])


# No tensor is kept: its bytes would count as the program's.
AccumulateGrad = _accumulate_grad()


def accumulating() -> bool:
    """Whether autograd is just now leaving a gradient in a leaf.

    Only another backward pass could compute a dropped gradient again, and the optimizer's update needs all of them. The
    session therefore pins them, and so drops the lineage of the backward pass behind them.
    """
    return type(torch._C._current_autograd_node()) is AccumulateGrad


def classify(kind: type) -> int:
    """0 for a tensor, 1 for a subclass that intercepts ops, 2 for others, 3 for a parameter, 4 for a generator."""
    if not issubclass(kind, torch.Tensor):
        return 4 if issubclass(kind, torch.Generator) else 2
    plain = kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
    if issubclass(kind, torch.nn.Parameter) and (plain or kind is torch.nn.Parameter):
        return 3
    return 0 if plain or kind is torch.Tensor else 1
