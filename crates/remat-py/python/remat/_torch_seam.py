"""Everything Remat uses of torch that is not public, and the slower paths of the session.

Not public but needed: ``TorchDispatchMode`` and its stack, ``OpOverload._op`` and ``_schema``, ``_cdata`` of
storages, ``torch._C.TensorBase``, the legacy profiler, ``torch.utils._pytree``. They are named in this file and
nowhere else.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

from . import _native
from ._errors import BudgetError, RematError

_T = TypeVar("_T")

TensorBase = torch._C.TensorBase
_new_storage = torch.UntypedStorage
_untyped_storage = TensorBase.untyped_storage
_aten = torch.ops.aten

__all__ = ["TorchDispatchMode", "pop_mode", "probe_layout", "push_mode"]


# --- The mode stack -------------------------------------------------------------------------------------------


def push_mode(mode: TorchDispatchMode) -> None:
    """Puts a mode on this thread's stack."""
    _push_mode(mode)


def pop_mode() -> None:
    """Takes the topmost mode off this thread's stack."""
    _pop_mode()


def drop_mode(mode: TorchDispatchMode) -> None:
    """Takes a mode out of this thread's stack, wherever it is."""
    taken = []
    for _ in range(torch._C._len_torch_dispatch_stack()):
        taken.append(_pop_mode())
    for other in reversed(taken):
        if other is not mode:
            _push_mode(other)


@contextmanager
def below_autograd() -> Iterator[None]:
    """As inside a dispatch mode: no autograd, no autocast, no version counting."""
    guard = torch._C._AutoDispatchBelowAutograd()
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    keys = keys | torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    try:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            yield
    finally:
        del guard


# --- Layout of StorageImpl ------------------------------------------------------------------------------------


def probe_layout() -> tuple[int, int]:
    """Offsets in ``c10::StorageImpl`` of the data pointer and of the access guard, verified on probes.

    Raises ``RematError`` when this build of torch does not behave as expected: better no start than a wrong one.
    """
    a, b = torch.arange(257, dtype=torch.float64), torch.full((257,), 3.0, dtype=torch.float64)
    sa, sb = _untyped_storage(a), _untyped_storage(b)
    words = 8  # vtable, counts, DataPtr (data, deleter, context, device), size, flags: within every StorageImpl

    def read(storage: torch.UntypedStorage) -> list[int]:
        return list(struct.unpack(f"<{words}Q", ctypes.string_at(storage._cdata, 8 * words)))

    wa, wb = read(sa), read(sb)
    at = [i for i in range(words - 2) if wa[i] == a.data_ptr() and wb[i] == b.data_ptr()]
    at = [i for i in at if wa[i + 2] == a.data_ptr() and wa[i + 1] == wb[i + 1]]
    if len(at) != 1:
        raise RematError(f"torch {torch.__version__}: the layout of storages is not known to Remat (data pointer)")
    before = ctypes.string_at(sa._cdata, 8 * words)
    torch._C._set_throw_on_mutable_data_ptr(a)
    after = ctypes.string_at(sa._cdata, 8 * words)
    flags = [i for i in range(8 * words) if before[i] != after[i]]
    if len(flags) != 2 or flags[1] != flags[0] + 1 or flags[0] % 8 > 5:
        raise RematError(f"torch {torch.__version__}: the layout of storages is not known to Remat (guard)")
    layout = (8 * at[0], flags[0])
    _verify_layout(layout, sa)
    return layout


def _verify_layout(layout: tuple[int, int], guarded: torch.UntypedStorage) -> None:
    """Swaps and guards probe storages as a run would, and looks at the effect."""
    _native.guard_storage(layout, guarded, False)
    a, b = torch.arange(64, dtype=torch.int64), torch.arange(64, dtype=torch.int64) * 7
    view, expected_a, expected_b = a[3:9], a.tolist(), b.tolist()
    _native.swap_storages(layout, _untyped_storage(a), _untyped_storage(b))
    swapped = a.tolist() == expected_b and b.tolist() == expected_a and view.tolist() == expected_b[3:9]
    # First with the bytes still there: where the guard is not what it should be, nothing crashes.
    if not swapped or _refusals(layout, a) != _TOUCHES:
        hint = "" if _version() >= _OLDEST else f"; {'.'.join(map(str, _OLDEST))} is the first that will do"
        raise RematError(f"torch {torch.__version__}: storages do not behave as Remat needs (swap or guard){hint}")
    empty = _new_storage(0)
    _native.swap_storages(layout, _untyped_storage(a), empty)
    refused = _refusals(layout, a)
    _native.swap_storages(layout, _untyped_storage(a), empty)
    if not (refused == _TOUCHES and a.tolist() == expected_b and view.tolist() == expected_b[3:9]):
        raise RematError(f"torch {torch.__version__}: storages do not behave as Remat needs (evicted)")


# Storages can be guarded against being read since this version; before, only against being written.
_OLDEST = (2, 6)
_TOUCHES = 5


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _refusals(layout: tuple[int, int], a: torch.Tensor) -> int:
    """Of so many ways to touch a guarded tensor's bytes, how many raise."""
    _native.guard_storage(layout, _untyped_storage(a), True)
    raised = 0
    for touch in (lambda: a + 1, lambda: a.sum(), lambda: a.data_ptr(), lambda: a.numpy(), lambda: a.add_(1)):
        try:
            touch()
        except RuntimeError:
            raised += 1
    _native.guard_storage(layout, _untyped_storage(a), False)
    return raised


# --- Describing ops -------------------------------------------------------------------------------------------

# Batch normalisation: positions of the running statistics and of the training flag; whether it updates them.
_RUNNING_STATS: dict[str, tuple[int, int, int, bool]] = {
    "aten::native_batch_norm": (3, 4, 5, True),
    "aten::_native_batch_norm_legit": (3, 4, 5, True),
    "aten::cudnn_batch_norm": (3, 4, 5, True),
    "aten::miopen_batch_norm": (3, 4, 5, True),
    "aten::_batch_norm_with_update": (3, 4, -1, True),
    "aten::native_batch_norm_backward": (3, 4, 7, False),
}
_RESTRUCTURE = {
    "resize_", "resize_as_", "set_", "set_data", "_resize_output_", "resize", "resize_as_sparse_",
    "resize_storage_bytes_",
}  # fmt: skip
# Memory not written to yet. C++ code above the dispatcher may fill it by raw pointer, so it is neither evicted nor
# replayed unless the first op to touch it overwrites all of it.
_BLANK = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
_FILLS = {
    *("bernoulli_", "normal_", "uniform_", "exponential_", "random_", "geometric_", "cauchy_", "log_normal_"),
    *("zero_", "fill_", "copy_"),
}
# Results that C++ code above the dispatcher keeps raw pointers into while it calls other ops.
_READ_RAW = {"_pack_padded_sequence"}
_DATA_DEPENDENT = {
    "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "repeat_interleave",
    "bincount", "unique_dim_consecutive", "_nested_tensor_size",
}  # fmt: skip


def describe(overload: Any) -> dict[str, Any]:
    """What the session needs to know of an op; see ``func.rs``."""
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
    stats = _RUNNING_STATS.get(packet)
    if stats is not None:
        writes = [i for i in writes if i not in stats[:2]]
        writes_by_name = []
    if overload.namespace not in ("aten", "prims", "inductor"):
        kind = "foreign"
    elif base in _RESTRUCTURE:
        kind = "restructure"
    elif _decomposes(overload) and not is_view:
        kind = "composite"
    elif base in ("lift_fresh", "_reshape_alias") or (is_view and not _decomposes(overload)):
        kind = "plain" if base == "lift_fresh" else "view"
    elif is_view:
        kind = "composite"
    elif not tensor_returns and not writes_by_name:
        kind = "read"
    else:
        kind = "plain"
    return {
        "name": str(overload),
        "call": overload._op,
        "kind": kind,
        "writes": writes,
        "writes_by_name": writes_by_name,
        "scalars": scalars,
        "random": torch.Tag.nondeterministic_seeded in overload.tags,
        "data_dependent": base in _DATA_DEPENDENT or torch.Tag.dynamic_output_shape in overload.tags,
        "blank": base in _BLANK,
        "fills": base in _FILLS,
        "pins_results": base in _READ_RAW,
        "accumulates": base in ("detach", "clone", "add", "add_", "copy_"),
        "stats": stats,
    }


def _decomposes(overload: Any) -> bool:
    """Whether an op is nothing but other ops. Some that could be taken apart have kernels of their own, which round
    differently (``silu_backward``): those are run as they are."""
    name = overload.name()
    own = any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in ("CPU", "CUDA", "MPS", "XPU"))
    return not own and bool(overload.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


_AccumulateGrad = type(torch.ones(1, requires_grad=True).expand(1).grad_fn.next_functions[0][0])  # type: ignore[union-attr]


def accumulating() -> bool:
    """Whether autograd is just now leaving a gradient in a leaf.

    A gradient that was dropped could only be had again by another backward pass, and the optimizer's update needs
    all of them: they are pinned, which also lets go of the lineage of the backward pass behind them.
    """
    return type(torch._C._current_autograd_node()) is _AccumulateGrad


def classify(kind: type) -> int:
    """0: a tensor as any other; 1: a subclass that intercepts ops; 2: no tensor; 3: a parameter of a module."""
    if not issubclass(kind, torch.Tensor):
        return 2
    plain = kind.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
    if issubclass(kind, torch.nn.Parameter) and (plain or kind is torch.nn.Parameter):
        return 3
    return 0 if plain or kind is torch.Tensor else 1


# --- Devices --------------------------------------------------------------------------------------------------


def device_name(device: torch.device) -> str:
    """``cpu``, ``cuda:0``: one name a device."""
    if device.type == "cpu":
        return "cpu"
    index = device.index
    if index is None:
        module = getattr(torch, device.type, None)
        index = module.current_device() if module is not None and hasattr(module, "current_device") else 0
    return f"{device.type}:{index}"


def devices() -> list[str]:
    """Names of the devices with memory that this machine has."""
    found = ["cpu"]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        found += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    return found


def device_of(storage: torch.UntypedStorage) -> tuple[str, torch.device] | None:
    """Name and device of a storage; ``None`` where tensors have no memory."""
    device = storage.device
    return None if device.type == "meta" else (device_name(device), device)


def synchronizer(name: str) -> Callable[[], None] | None:
    """Waits for the device, where work is asynchronous."""
    kind = name.split(":")[0]
    if kind == "cpu":
        return None
    module = getattr(torch, kind, None)
    return module.synchronize if module is not None and hasattr(module, "synchronize") else None


def empty_storage(device: torch.device) -> torch.UntypedStorage:
    """A storage of no bytes."""
    return _new_storage(0) if device.type == "cpu" else _new_storage(0, device=device)


def blank_storage(device: torch.device, size: int) -> torch.UntypedStorage:
    """A storage of so many bytes, not written to."""
    return _new_storage(size) if device.type == "cpu" else _new_storage(size, device=device)


# --- Output sizes and workspace before an op first runs -------------------------------------------------------


def _to_meta(value: Any, table: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        try:
            storage = _untyped_storage(value)
        except (NotImplementedError, RuntimeError):
            raise RuntimeError("not strided") from None
        key = storage._cdata
        if key not in table:
            table[key] = torch.empty(storage.nbytes(), dtype=torch.uint8, device="meta")
        flat = table[key]
        out = torch.empty(0, dtype=value.dtype, device="meta")
        return out.set_(_untyped_storage(flat), value.storage_offset(), value.size(), value.stride())
    if isinstance(value, (list, tuple)):
        return type(value)(_to_meta(v, table) for v in value) if type(value) in (list, tuple) else value
    if isinstance(value, torch.device):
        return torch.device("meta")
    return value


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _tensors(v)]
    return []


def flatten(result: Any) -> list[torch.Tensor | None]:
    """Results in order; what is not a tensor counts as ``None``."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [t for v in result for t in flatten(v)]
    return [None]


_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors that a sparse one is made of; none for what has no memory that torch shows."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in _COMPRESSED_ROWS:
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _COMPRESSED_COLUMNS:
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []


def part_storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """Their storages."""
    return [_untyped_storage(part) for part in parts(tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    try:
        return int(_untyped_storage(tensor).nbytes())
    except (NotImplementedError, RuntimeError):
        return sum(int(storage.nbytes()) for storage in part_storages(tensor))


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _home(args: Any, kwargs: dict[str, Any]) -> torch.device:
    device = kwargs.get("device")
    if device is not None:
        return torch.device(device)
    tensors = _tensors(args) + _tensors(kwargs)
    accelerated = [t.device for t in tensors if t.device.type not in ("cpu", "meta")]
    if accelerated:
        return accelerated[0]
    return tensors[0].device if tensors else torch.device("cpu")


def predict(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
) -> tuple[list[tuple[int, tuple[str, torch.device]] | None], int, int, tuple[str, torch.device], bool]:
    """Outputs (bytes and device, ``None`` where shared), workspace, what else it leaves behind, the device of both,
    and whether the workspace is exact."""
    kwargs = kwargs or {}
    device = _home(args, kwargs)
    home = (device_name(device), device)
    outputs, exact_sizes, made = _predict_outputs(overload, args, kwargs)
    leaves = _predict_leaves(overload, args, kwargs)
    out_bytes = sum(o for o in outputs if o is not None)
    in_bytes = sum(_nbytes(t) if t.layout == torch.strided else _bytes(t) for t in _tensors(args) + _tensors(kwargs))
    workspace, exact = _estimate_workspace(overload, args, kwargs, in_bytes, out_bytes, made)
    described = [None if o is None else (o, home) for o in outputs]
    return described, workspace, leaves, home, exact and exact_sizes


def _predict_outputs(
    overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[int | None], bool, set[torch.dtype]]:
    """Bytes of the outputs, whether that is exact, and the dtypes of those made anew."""
    schema = overload._schema
    shared = [r.alias_info is not None for r in schema.returns]
    if shared and all(shared):
        return [None] * len(shared), True, set()
    if not schema.returns:
        return [], True, set()
    bound = _data_dependent_bound(overload, args, kwargs)
    if bound is not None:
        return bound, True, set()
    table: dict[int, torch.Tensor] = {}
    try:
        meta_args = _to_meta(args, table)
        meta_kwargs = {k: _to_meta(v, table) for k, v in kwargs.items()}
        if "device" in {a.name for a in schema.arguments} and "device" not in kwargs and not table:
            meta_kwargs["device"] = torch.device("meta")
        meta_kwargs.pop("generator", None)
        meta_kwargs.pop("pin_memory", None)
        result = overload(*meta_args, **meta_kwargs)
    except Exception:
        # No shape function: as much again as all inputs, twice over. Corrected when the op has run.
        guess = 2 * sum(_bytes(t) for t in _tensors(args) + _tensors(kwargs)) + 4096
        return [guess if "Tensor" in str(r.type) else None for r in schema.returns], False, set()
    known = {_untyped_storage(t)._cdata for t in table.values()}
    seen: set[int] = set()
    sizes: list[int | None] = []
    made: set[torch.dtype] = set()
    for tensor in flatten(result):
        if tensor is None or tensor.layout != torch.strided:
            sizes.append(None)
            continue
        storage = _untyped_storage(tensor)
        key = storage._cdata
        sizes.append(None if key in known or key in seen else int(storage.nbytes()))
        seen.add(key)
        made.add(tensor.dtype)
    return sizes, True, made


def _predict_leaves(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes that an op adds to storages that were there, or keeps in sparse results."""
    tensors = _tensors(args) + _tensors(kwargs)
    if any(t.layout != torch.strided for t in tensors) or "sparse" in overload._schema.name:
        return 2 * sum(_bytes(t) for t in tensors) + 4096
    base = overload._schema.name.split("::")[-1]
    if base not in _RESTRUCTURE and not any(a.is_out for a in overload._schema.arguments):
        return 0
    table: dict[int, torch.Tensor] = {}
    try:
        meta_args, meta_kwargs = _to_meta(args, table), {k: _to_meta(v, table) for k, v in kwargs.items()}
        before = sum(_bytes(t) for t in table.values())
        overload(*meta_args, **meta_kwargs)
        return max(0, sum(_bytes(t) for t in table.values()) - before)
    except Exception:
        return sum(_bytes(t) for t in tensors)


def _data_dependent_bound(overload: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[int | None] | None:
    """Upper bounds where a size depends on data."""
    base = overload._schema.name.split("::")[-1]
    tensors = _tensors(args)
    if base == "nonzero":
        return [tensors[0].numel() * max(tensors[0].dim(), 1) * 8]
    if base == "masked_select":
        numel = torch.broadcast_shapes(tensors[0].shape, tensors[1].shape).numel()
        return [numel * tensors[0].element_size()]
    if base in ("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"):
        n = tensors[0].numel()
        bounds: list[int | None] = [_nbytes(tensors[0]), 8 * n, 8 * n]
        return bounds[: len(overload._schema.returns)]
    if base == "index":
        indices = args[1] if len(args) > 1 else kwargs.get("indices", [])
        masks = [i for i in indices if isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8)]
        if masks:
            rest = tensors[0].numel()
            for i in indices:
                if isinstance(i, torch.Tensor) and i.dtype not in (torch.bool, torch.uint8):
                    rest *= max(i.numel(), 1)
            return [rest * tensors[0].element_size()]
    return None


_NO_WORKSPACE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros",
    "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "arange", "fill_", "zero_", "clone", "relu",
    "threshold_backward", "native_dropout_backward", "bernoulli_", "normal_", "uniform_", "exponential_",
    "_local_scalar_dense", "lift_fresh", "is_same_size", "scalar_tensor", "detach",
}  # fmt: skip
_HEAVY = (
    *("conv", "attention", "rnn", "lstm", "gru"),
    *("fft", "linalg", "sort", "topk", "index_put", "embedding"),
)


def _estimate_workspace(
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
        return (_RNG_BYTES, True) if torch.Tag.nondeterministic_seeded in overload.tags else (0, True)
    tensors = _tensors(args) + _tensors(kwargs)
    dtypes = {t.dtype for t in tensors if t.dim() > 0}
    pointwise = torch.Tag.pointwise in overload.tags and not base.startswith("_foreach")
    if pointwise and _in_one_dtype(dtypes, made):
        return 0, True
    both = in_bytes + out_bytes
    if base in ("convolution", "convolution_backward"):
        packed = _packed_convolution(base, args)
        if packed is not None:
            return packed, False
    if any(word in base for word in _HEAVY):
        if base == "mkldnn_rnn_layer_backward":
            # All sizes are known here; over many shapes it took 0.84 of both at most.
            return both + both // 8 + _RNG_BYTES, False
        factor = 8 if "rnn" in base or "lstm" in base else 3
        if "convolution" in base and any(t.dtype == torch.float64 for t in tensors) and len(tensors) > 1:
            # Without oneDNN: columns of kernel size times the input.
            weight = next((t for t in tensors[1:] if t.dim() == tensors[0].dim()), tensors[0])
            factor += weight[0, 0].numel() if weight.dim() > 2 else 1
        return factor * both + _RNG_BYTES, False
    return both + _RNG_BYTES, False


def _packed_convolution(base: str, args: tuple[Any, ...]) -> int | None:
    """Workspace of a convolution that oneDNN runs: copies packed in blocks of 16 channels, an eighth for safety.

    ``None`` for what it may not run itself (other types, one sample, three dimensions, dilation): that takes columns.
    """
    backward = base == "convolution_backward"
    x, weight = (args[1], args[2]) if backward else (args[0], args[1])
    dilation, transposed = (args[6], args[7]) if backward else (args[5], args[6])
    plain = x.device.type == "cpu" and x.dtype == torch.float32 and all(d == 1 for d in dilation)
    if not plain or x.dim() not in (3, 4) or x.shape[0] < 2 or transposed:
        return None
    y = args[0] if backward else None
    stride, padding = (args[4], args[5]) if backward else (args[3], args[4])
    if y is None:
        places = 1
        for size, kernel, step, pad in zip(x.shape[2:], weight.shape[2:], stride, padding, strict=False):
            places *= (size + 2 * pad - kernel) // step + 1
    else:
        places = y[0, 0].numel()

    def blocked(channels: int) -> int:
        return -(-channels // 16) * 16

    inputs = 4 * x.shape[0] * blocked(x.shape[1]) * x[0, 0].numel()
    outputs = 4 * x.shape[0] * blocked(weight.shape[0]) * places
    kernel_bytes = 4 * blocked(weight.shape[0]) * blocked(weight.shape[1]) * weight[0, 0].numel()
    if backward:
        copies = inputs + outputs + max(inputs, outputs) + 3 * kernel_bytes
    else:
        copies = inputs + 2 * outputs + 2 * kernel_bytes
    return copies + copies // 8 + (1 << 20)


def _in_one_dtype(read: set[torch.dtype], made: set[torch.dtype]) -> bool:
    """Whether a pointwise op computes in the dtype it reads: otherwise it copies whole operands or results (``abs`` of
    complex numbers, ``sin`` of integers, integers compared with a fraction)."""
    if len(read | made - {torch.bool}) > 1:
        return False
    return torch.bool not in made or all(dtype.is_floating_point or dtype == torch.bool for dtype in read)


#: What reading and writing the CPU generator's state allocates: three copies of 5056 bytes, rounded up.
_RNG_BYTES = 16384


def measured_call(call: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Any, int | None]:
    """Runs an op and measures its workspace: the peak of what it allocated beyond what it left.

    ``None`` where it cannot be measured (a profiler of the program's own is active).
    """
    kwargs = kwargs or {}
    tensors = _tensors(args) + _tensors(kwargs)
    cuda = next((t.device for t in tensors if t.device.type == "cuda"), None)
    if cuda is None and torch.autograd._profiler_enabled():
        return call(*args, **kwargs), None
    result, left, peak = allocations(lambda: call(*args, **kwargs), cuda or torch.device("cpu"))
    return result, max(0, peak - max(left, 0))


def allocations(call: Callable[[], _T], device: torch.device) -> tuple[_T, int, int]:
    """Runs a call and tells how many bytes more than before are allocated on a device after it, and at most during it.

    Raises ``RematError`` on the CPU while a profiler of the program's own is active: torch has but one.
    """
    if device.type == "cuda":
        return _allocations_cuda(call, device)
    if torch.autograd._profiler_enabled():
        raise RematError("bytes cannot be measured while a profiler is active: measure before it starts")
    config = torch.autograd.ProfilerConfig(
        torch.autograd.ProfilerState.CPU,
        False,
        True,
        False,
        False,
        False,
        torch._C._profiler._ExperimentalConfig(),
    )
    torch.autograd._enable_profiler_legacy(config)
    try:
        result = call()
    finally:
        records = torch.autograd._disable_profiler_legacy()
    level = peak = 0
    for thread in records:
        for event in thread:
            if event.kind() == "memory_alloc":
                level += event.cpu_memory_usage()
                peak = max(peak, level)
    return result, level, peak


def _allocations_cuda(call: Callable[[], _T], device: torch.device) -> tuple[_T, int, int]:
    torch.cuda.synchronize(device)
    base = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return result, torch.cuda.memory_allocated(device) - base, peak - base


# --- Replays --------------------------------------------------------------------------------------------------


def view(
    storage: torch.UntypedStorage,
    dtype: torch.dtype,
    offset: int,
    shape: torch.Size,
    stride: tuple[int, ...],
    conj: bool,
    neg: bool,
) -> torch.Tensor:
    """A tensor over a storage, made without touching its version counter."""
    out = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, stride)
    if conj:
        out = torch._conj(out)
    return torch._neg_view(out) if neg else out


def _generators(args: Any, kwargs: dict[str, Any] | None) -> list[torch.Generator]:
    explicit = [v for v in (*args, *(kwargs or {}).values()) if isinstance(v, torch.Generator)]
    if explicit:
        return explicit
    device = _home(args, kwargs or {})
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        return [torch.cuda.default_generators[index]]
    return [torch.default_generator]


RNG_BYTES = _RNG_BYTES


def rng_state(args: Any, kwargs: dict[str, Any] | None) -> list[tuple[torch.Generator, bytes]]:
    """The state of the generator that an op is about to draw from, outside torch's own memory."""
    return [(g, g.get_state().numpy().tobytes()) for g in _generators(args, kwargs)]


def _set_state(generator: torch.Generator, state: bytes) -> None:
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def replay_random(call: Any, args: Any, kwargs: Any, states: list[tuple[torch.Generator, bytes]]) -> Any:
    """Runs a random op with the numbers it drew first; the streams go on as if nothing had happened."""
    now = [(g, g.get_state().numpy().tobytes()) for g, _ in states]
    for generator, state in states:
        _set_state(generator, state)
    try:
        return call(*args, **kwargs)
    finally:
        for generator, state in now:
            _set_state(generator, state)


def redispatch(mode: TorchDispatchMode, func: Any, args: Any, kwargs: dict[str, Any] | None) -> Any:
    """Runs an op with the mode active again, so that what it is made of is seen."""
    kwargs = kwargs or {}
    _push_mode(mode)
    try:
        if _decomposes(func):
            return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)
    finally:
        _pop_mode()


_OWN_FILES = (__file__, torch._ops.__file__)


def own_frames_dropped(error: BaseException) -> BaseException:
    """An error of an op, as if torch had run the op itself: the traceback's first frames, which are this file's and
    those of torch that take an op apart, are left out."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    return error.with_traceback(trace)


def set_grad_mode(on: bool) -> bool | None:
    """Sets grad mode; returns what it was, or ``None`` if that was the same."""
    if torch.is_grad_enabled() == on:
        return None
    torch._C._set_grad_enabled(on)
    return not on


grad_enabled = torch.is_grad_enabled


def use_count(storage: torch.UntypedStorage) -> int:
    """Owners of a storage in C++; its Python object counts as one."""
    return int(torch._C._storage_Use_Count(storage._cdata))


def budget_error(op: str, needed: int, smallest: int, budget: int, device: str) -> BudgetError:
    """The exception for a plan that does not fit."""
    return BudgetError(op, needed, smallest, budget, device)


# --- Stages of chains -----------------------------------------------------------------------------------------

flatten_tree = _pytree.tree_flatten
unflatten_tree = _pytree.tree_unflatten


def storage_id(tensor: torch.Tensor) -> int:
    """One number a storage, while it lives."""
    return int(_untyped_storage(tensor)._cdata)


def generators(device: torch.device) -> list[torch.Generator]:
    """The default generators that code on a device may draw from: the CPU's and its own."""
    return _generators((), None) + (
        _generators((torch.empty(0, device=device),), None) if device.type == "cuda" else []
    )


@contextmanager
def hooks_aside(tensors: list[torch.Tensor]) -> Iterator[None]:
    """The tensors' own gradient hooks are off: a backward pass that only measures is not told to the program."""
    hooks = [tensor._backward_hooks for tensor in tensors]
    for tensor in tensors:
        tensor._backward_hooks = None
    try:
        yield
    finally:
        for tensor, kept in zip(tensors, hooks, strict=True):
            tensor._backward_hooks = kept


def leaves(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward pass from these tensors leaves gradients in."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    work: list[Any] = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    while work:
        node: Any = work.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind: Any = type(node)
        if kind is _AccumulateGrad:
            found[id(node.variable)] = node.variable
        work.extend(following for following, _ in node.next_functions)
    return list(found.values())
