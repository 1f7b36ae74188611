"""Output sizes before an op first runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

# Torch's rules for shapes load this when they are first applied. Amid an op, what the handler of a signal raises would
# be dropped by a package that it loads.
import torch.fx.experimental.symbolic_shapes

from ..._interrupts import raise_interrupt
from .devices import device_name
from .families import Families
from .indexing import made_sparse, sized_by_data
from .not_compiled import call_without_loading_dynamo
from .ops import RESTRUCTURE
from .tensors import MOST, allocated, flatten, home, nbytes, possible, tensors_of, untyped_storage
from .workspace import estimate_workspace

#: For ops of Remat's own, by name: the bytes that a call makes, and its workspace; ``None`` if that cannot be told.
#: Such ops are never called on tensors without memory: compiled kernels would read from address zero.
OWN_PREDICTIONS: dict[str, Callable[[tuple[Any, ...]], tuple[int, int] | None]] = {}

_FAMILIES = Families()

_Place = tuple[str, torch.device]


class Prediction(NamedTuple):
    """The bytes of a call."""

    #: For each output its bytes and device, ``None`` if it shares a storage.
    outputs: list[tuple[int, _Place] | None]
    workspace: int
    #: Other bytes that it leaves behind.
    leaves: int
    #: The device of workspace and leaves.
    place: _Place
    #: Whether the workspace is exact.
    exact: bool
    #: Is to be told the workspace that the call took.
    told: Callable[[int], None] | None = None
    #: Whether calls that differ from it in sizes alone take the same workspace but for copies, and results by the short
    #: rule.
    settled: bool = False
    #: Whether the workspace, theirs too, holds copies of what does not lie in one piece.
    copies_strided: bool = False


def _to_meta(value: Any, table: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        try:
            storage = untyped_storage(value)
        except (NotImplementedError, RuntimeError):
            raise RuntimeError("not strided") from None
        key = storage._cdata
        if key not in table:
            table[key] = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
        flat = table[key]
        out = torch.empty(0, dtype=value.dtype, device="meta")
        return out.set_(untyped_storage(flat), value.storage_offset(), value.size(), value.stride())
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(v, table) for v in value) if type(value) in (list, tuple) else value
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):
        return None  # it belongs to another device; some overloads want the argument all the same
    return value


def predict(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Prediction:
    """Predicts the bytes of a call."""
    kwargs = kwargs or {}
    family = _FAMILIES.find(overload, args, kwargs)
    by_rule = None if family is None else family.sizes(overload, args)
    if family is not None and by_rule is not None:
        settled = family.settled()
        if settled is not None:
            described = [None if size is None else (size, family.place) for size in by_rule]
            settled += family.copied(tensors_of(args) + tensors_of(kwargs)) if family.copies_strided else 0
            return Prediction(described, min(settled, MOST), 0, family.place, True, None, True, family.copies_strided)
    tensors = tensors_of(args) + tensors_of(kwargs)
    place = _place(args, kwargs) if family is None else family.place
    own = OWN_PREDICTIONS.get(overload._schema.name)
    if own is not None:
        makes, workspace = own(args) or (_guess(tensors), 0)
        return Prediction([(makes, place)], workspace, 0, place, exact=False)
    sparse = _predict_sparse(overload, args, kwargs)
    if sparse is not None:
        workspace, leaves = sparse
        return Prediction([None], workspace, leaves, place, exact=False)
    by_data = sized_by_data(overload, args, kwargs)
    made: set[torch.dtype] = set()
    if family is not None and by_rule is not None:
        outputs, exact_sizes = by_rule, True
        made = {dtype for dtype in family.dtypes if dtype is not None}
    elif by_data is not None and possible(by_data[0]) is not None:
        outputs, exact_sizes = by_data[0], True
    else:
        outputs, exact_sizes, made = _predict_outputs(overload, args, kwargs, place)
    leaves = _predict_leaves(overload, args, kwargs, tensors)
    out_bytes = sum(o for o in outputs if o is not None)
    in_bytes = sum(nbytes(t) if t.layout == torch.strided else allocated(t) for t in tensors)
    if by_data is not None and by_data[1] is not None:
        workspace, exact = by_data[1], False
    else:
        estimate = estimate_workspace(overload, args, kwargs, tensors, in_bytes, out_bytes, made)
        workspace, exact = estimate.bytes, estimate.exact
        if family is not None:
            family.settle(estimate)
    described = [None if o is None else (o, place) for o in outputs]
    told = None if family is None else functools.partial(family.measured, family.copied(tensors))
    # What tensors of one number that were expanded add up to may be beyond all numbers that the engine takes.
    return Prediction(described, min(workspace, MOST), min(leaves, MOST), place, exact and exact_sizes, told)


def _place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Place:
    device = home(args, kwargs)
    return device_name(device), device


def _predict_outputs(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], place: _Place
) -> tuple[list[int | None], bool, set[torch.dtype]]:
    """Bytes of the outputs, whether they are exact, and the dtypes of outputs with storages of their own."""
    schema = overload._schema
    shared = [r.alias_info is not None for r in schema.returns]
    if all(shared):
        _FAMILIES.learn(overload, args, kwargs, [None] * len(shared), [None] * len(shared), place)
        return [None] * len(shared), True, set()
    table: dict[int, torch.Tensor] = {}
    try:
        meta_args = _to_meta(args, table)
        meta_kwargs = {k: _to_meta(v, table) for k, v in kwargs.items()}
        if "device" in {a.name for a in schema.arguments} and "device" not in kwargs and not table:
            meta_kwargs["device"] = torch.device("meta")
        meta_kwargs.pop("pin_memory", None)
        result = call_without_loading_dynamo(overload, meta_args, meta_kwargs)
    except Exception as error:
        raise_interrupt(error)
        like = _LIKE_ARGUMENTS.get(schema.name.split("::")[-1])
        if like is not None:
            return [nbytes(args[i]) for i in like], True, {args[i].dtype for i in like}
        guess = _guess(tensors_of(args) + tensors_of(kwargs))
        return [guess if "Tensor" in str(r.type) else None for r in schema.returns], False, set()
    known = {untyped_storage(t)._cdata for t in table.values()}
    seen: set[int] = set()
    sizes: list[int | None] = []
    dtypes: list[torch.dtype | None] = []
    made: set[torch.dtype] = set()
    for tensor in flatten(result):
        if tensor is None or tensor.layout != torch.strided:
            sizes.append(None)
            dtypes.append(None)
            continue
        storage = untyped_storage(tensor)
        key = storage._cdata
        own = key not in known and key not in seen
        sizes.append(int(storage.nbytes()) if own else None)
        dtypes.append(tensor.dtype if own else None)
        seen.add(key)
        made.add(tensor.dtype)
    _FAMILIES.learn(overload, args, kwargs, sizes, dtypes, place)
    return sizes, True, made


def _guess(tensors: list[torch.Tensor]) -> int:
    """As much again as all inputs, twice over, for ops without a shape function. Corrected when the op has run."""
    return 2 * sum(allocated(tensor) for tensor in tensors) + 4096


# Arguments that the results of ops without a shape function are as large as: the gradients of these.
_LIKE_ARGUMENTS = {
    "_fake_quantize_learnable_per_channel_affine_backward": (1, 2, 3),
    "_fake_quantize_learnable_per_tensor_affine_backward": (1, 2, 3),
}


def _predict_sparse(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, int] | None:
    """Workspace and bytes left behind of the ops that make sparse tensors, and that optimizers run on these.

    Over many shapes they took, results included, as many times the bytes of the sparse tensor as stands beside them.
    """
    base = overload._schema.name.split("::")[-1]
    if base == "_to_sparse" and args[0].layout == torch.strided and args[0].device.type == "cpu":
        rows = kwargs.get("layout") not in (None, torch.sparse_coo)
        return None if rows else made_sparse(args[0], args[1] if len(args) > 1 else args[0].dim())
    place = _SPARSE_ARGUMENT.get(base)
    if place is None or len(args) <= place or not isinstance(args[place], torch.Tensor):
        return None
    sparse = args[place]
    if sparse.layout != torch.sparse_coo:
        return None
    size = allocated(sparse) + 4096
    if base == "_coalesce":
        return 2 * size, size  # 3.0
    if base == "sparse_mask":
        if args[0].layout == torch.strided:
            return size, size  # 2.0
        # Where both have entries is found in indices of one dimension, sorted where they are not.
        sorts = args[0].layout == torch.sparse_coo and not args[0].is_coalesced()
        return 2 * size + (2 + sorts) * allocated(args[0]), size
    if args[0].layout != torch.strided:
        return None
    return 3 * size, 0  # dense += sparse: 2.0, and less where dtypes are alike


# The sparse argument of those ops.
_SPARSE_ARGUMENT = {"_coalesce": 0, "sparse_mask": 1, "add_": 1}


def _predict_leaves(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> int:
    """Bytes that an op adds to storages that existed before, or keeps in sparse results."""
    if any(t.layout != torch.strided for t in tensors) or "sparse" in overload._schema.name:
        return 2 * sum(allocated(t) for t in tensors) + 4096
    base = overload._schema.name.split("::")[-1]
    if base not in RESTRUCTURE and not any(a.is_out for a in overload._schema.arguments):
        return 0
    table: dict[int, torch.Tensor] = {}
    try:
        meta_args, meta_kwargs = _to_meta(args, table), {k: _to_meta(v, table) for k, v in kwargs.items()}
        before = sum(allocated(t) for t in table.values())
        call_without_loading_dynamo(overload, meta_args, meta_kwargs)
        return max(0, sum(allocated(t) for t in table.values()) - before)
    except Exception as error:
        raise_interrupt(error)
        return sum(allocated(t) for t in tensors)
