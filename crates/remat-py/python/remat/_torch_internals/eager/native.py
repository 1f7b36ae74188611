"""Probes of torch's dispatcher for ops that reach the session without Python, and the ops' routes.

Nothing here is an interface of torch. Every number is found on probes of known content; what is not as expected refuses
native dispatch with one line that says why, and the dispatch mode is used.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, cast

import torch

from ... import _native
from .devices import accelerator_here
from .global_state import read_natively
from .indexing import picks
from .layout import probe_layout
from .leaf_gradients import read_accumulating
from .ops import describe
from .random_state import read_random_state
from .rehearsal import replay_without_python
from .replays import own_frames_dropped
from .shapes import rule_of
from .tensors import untyped_storage
from .watch import watch_results

_C: Any = torch._C
_KEY = "Fake"


class Unsuited(Exception):
    """Why native dispatch cannot be used."""


#: Releases of torch with which the tests ran natively as native dispatch is now. Others have to be asked for.
RAN_NATIVELY = ("2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "2.15")


#: What goes through Python natively too on this build of torch, and why; filled in by :func:`prepare_native`.
_through_python: dict[str, str] = {}


def parts_through_python() -> tuple[str, ...]:
    """Parts that native dispatch leaves to Python on this build of torch, each with the reason.

    Results are those of a build without such parts; training takes longer.
    """
    return tuple(f"{part}: {reason}" for part, reason in _through_python.items())


@functools.cache
def passes_known() -> str | None:
    """Has the session tell backward passes without Python, also where ops come through it; the reason if it cannot."""
    if _native.read_backward() is not None:
        return None
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    return read_accumulating(str(library), False)


def not_run_natively() -> str | None:
    """The reason why native dispatch is not chosen by itself with this release of torch, if it is not."""
    release = ".".join(torch.__version__.split(".")[:2])
    if release in RAN_NATIVELY:
        return None
    return f"the tests did not run natively with torch {release}; REMAT_DISPATCH=native tries it"


@functools.cache
def prepare_native() -> str | None:
    """Sets native dispatch up, once; the reason if it cannot be used."""
    try:
        _set_up()
    except Unsuited as reason:
        return str(reason)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError, OSError) as error:
        return f"torch {torch.__version__}: {error}"
    return None


@functools.cache
def watch_storages() -> str | None:
    """Has storages tell of their death themselves, once; the reason if this build of torch does not allow it."""
    try:
        place, (data, _) = _tensor_layout()["storage"], probe_layout()
    except Unsuited as reason:
        return str(reason)
    python = Path(torch.__file__).parent / "lib" / "libtorch_python.so"
    return watch_results(
        str(python),
        lambda tensor: _words(tensor._cdata + place, 1)[0],
        lambda storage: _words(storage + data, 1)[0],
    )


def objects_race() -> bool:
    """Whether torch frees a storage twice whose Python object and last owner in C++ go at once, in two threads.

    Up to 2.9 it does: <https://github.com/pytorch/pytorch/pull/167564>.
    """
    return tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10)


class Route(TypedDict):
    """An op's way through the session."""

    way: str
    arguments: int
    results: int
    #: Bits of arguments that are numbers to compute with.
    scalars: int
    #: Bits of whole numbers, and of lists of such, that each call names: most are sizes.
    extents: int
    rule: _native.SizeRule | None
    #: Defaults of arguments that are numbers.
    defaults: list[float | None]
    names: list[str]
    #: The argument of which the op picks numbers, or by whose masks it picks.
    picks: int | None
    #: Whether its calls may run while nobody watches.
    unwatched: bool


def route(name: str, overload: str) -> Route:
    """An op's way through the session."""
    space, base = name.split("::")
    op = getattr(getattr(getattr(torch.ops, space), base), overload or "default")
    described, schema = describe(op), op._schema
    way = {"view": "run", "composite": "decompose"}.get(described["kind"], "session")
    if space == "profiler" and not any("Tensor" in str(a.type) for a in (*schema.arguments, *schema.returns)):
        way = "run"  # marks in torch's own profile
    if way == "run" and described["accumulates"]:
        way = "detach"
    return {
        "way": way,
        "arguments": len(schema.arguments),
        "results": len(schema.returns),
        "scalars": described["scalars"],
        "extents": sum(1 << at for at, argument in enumerate(schema.arguments[:64]) if _names_extents(argument)),
        "rule": rule_of(op) if way == "session" else None,
        "defaults": [
            float(argument.default_value) if isinstance(argument.default_value, (bool, int, float)) else None
            for argument in schema.arguments
        ],
        "names": [argument.name for argument in schema.arguments],
        "picks": picks(op),
        "unwatched": (
            described["kind"] in ("plain", "read")
            and not (described["pins"] or described["pins_results"])
            and not any(argument.is_out for argument in schema.arguments)  # they may be resized
        ),
    }


def _names_extents(argument: Any) -> bool:
    """Whether an argument is a whole number, or a list of such. Python is always given one that has no default, in its
    place."""
    whole = str(argument.type) in ("int", "List[int]", "Optional[List[int]]")
    enumerated = argument.name in ("dtype", "layout", "memory_format")  # torch has numbers for these
    return whole and not enumerated and not argument.kwarg_only and not argument.has_default_value()


def _set_up() -> None:
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        raise Unsuited("it is for Linux on 64 bits")
    # By its number: the headers of older releases were not compared with what the extension calls.
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        raise Unsuited(f"torch {torch.__version__}: 2.9 is the first that it ran with")
    library = Path(torch.__file__).parent / "lib"
    libraries = {
        "c10": str(library / "libc10.so"),
        "cpu": str(library / "libtorch_cpu.so"),
        "python": str(library / "libtorch_python.so"),
    }
    layout = _tensor_layout()
    keys = _keys()
    _check_modes(keys["modes"])
    _native.register_native(keys, libraries, _redispatch())
    if not _is_taken():
        raise Unsuited(f"the fallback did not come to the key {_KEY}")
    _pass_bodies()
    data, _ = probe_layout()
    undefined = _undefined(libraries["c10"])
    wrapped = _wrapped(layout["dtype"])
    _native.describe_boxed({**layout, **_tags(), "data": data, "undefined": undefined, "wrapped": wrapped})
    _check_reading()
    _check_leaves()
    _define_raising()

    _read_autocast(libraries["cpu"])
    reason = read_natively(libraries["c10"], libraries["cpu"])
    if reason is not None:
        raise Unsuited(f"torch {torch.__version__}: settings: {reason}")
    unwatched = watch_storages()
    parts = {
        "each result gets an object and a weak reference": unwatched,
        "the state of random generators": read_random_state(),
        "whether a gradient is left in a leaf": read_accumulating(libraries["cpu"], unwatched is None),
        "replays": replay_without_python(libraries["c10"], libraries["python"], _bit_of("ADInplaceOrView")),
    }
    _through_python.update({part: reason for part, reason in parts.items() if reason is not None})


def _read_autocast(cpu: str) -> None:
    """Has autocast read and set without Python, for the CPU and the accelerator."""
    accelerator = accelerator_here()
    kinds = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    kinds = [kind for kind in kinds if torch.amp.is_autocast_available(kind)]
    _native.register_autocast(cpu, [_autocast_on(kind) for kind in kinds])
    for at, kind in enumerate(kinds):

        def told(kind: str = kind) -> tuple[bool, torch.dtype]:
            return torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

        before = told()
        other = torch.float16 if before[1] != torch.float16 else torch.bfloat16
        try:
            torch.set_autocast_enabled(kind, True)
            torch.set_autocast_dtype(kind, other)
            on = _native.read_autocast() & 63 << 6 * at
        finally:
            torch.set_autocast_enabled(kind, before[0])
            torch.set_autocast_dtype(kind, before[1])
        entered = _native.with_autocast(on, told), _native.with_autocast(0, told)
        if not on or entered != ((True, other), (False, before[1])) or told() != before:
            raise _unexpected(f"autocast on {kind}")


#: Kinds of devices with autocast: the dispatch key, and the number that torch's C++ has for the kind.
_AUTOCAST = {"cpu": ("CPU", 0), "cuda": ("CUDA", 1), "xpu": ("XPU", 12), "mps": ("MPS", 13), "hpu": ("HPU", 18)}


def _autocast_on(kind: str) -> tuple[int, int]:
    """The number of the dispatch key of autocast for a kind of device, and that of the kind."""
    name, number = _AUTOCAST.get(kind, ("PrivateUse1", 20))
    return int(_C._dispatch_key_parse(f"Autocast{name}")), number


def _unexpected(what: str) -> Unsuited:
    return Unsuited(f"torch {torch.__version__}: {what} is not as Remat knows it")


def _is_taken() -> bool:
    """Whether the key has a kernel or a fallback."""
    try:
        _C._dispatch_get_computed_kernel_for_dispatch_key("aten::add.Tensor", _KEY)
    except RuntimeError:
        return False
    return True


def _pass_bodies() -> None:
    """Has ops with bodies, such as ``torch.cond``, pass the key over; the ops of their bodies come to the fallback.

    Ops with bodies choose their kernels in Python, for themselves, and know no fallback.
    """
    key, ops = _C._dispatch_key_parse(_KEY), cast("Any", torch._ops)
    known = ops._higher_order_ops
    ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)
    for op in known.values():
        op.fallthrough(key)

    class Later(ops.HigherOrderOperator):  # type: ignore[misc, name-defined]
        def __call__(self, *args: Any) -> None: ...

    later = Later("remat_later")
    del known["remat_later"]
    if any(op.non_fallthrough_keys.has(key) for op in (*known.values(), later)):
        raise _unexpected("how ops with bodies choose their kernels")


def _keys() -> dict[str, int]:
    """The dispatch keys that the fallback needs, as numbers and sets."""
    key = _C._dispatch_key_parse(_KEY)
    below, python = _C._dispatch_keyset_full_after(key).raw_repr(), _set_of("Python")
    lowest = _bit_of(_KEY)
    if lowest.bit_count() != 1 or python.bit_count() != 1:
        raise _unexpected("the order of dispatch keys")
    if python != _bit_of("Python") or lowest not in (python >> 1, python << 1):
        raise _unexpected(f"the place of the key {_KEY}, next to Python's")
    if _is_taken():
        raise Unsuited(f"the dispatch key {_KEY} is in use by something else")
    own = int(_C.DispatchKey.Python) - (python.bit_length() - lowest.bit_length())
    meta, dense = _set_of("Meta"), _set_of("Dense")
    odd = 0
    for name in ("Quantized", "Sparse", "SparseCsr", "NestedTensor", "MkldnnCPU", "ZeroTensor"):
        odd |= _bit_of(name)
    return {
        "own": own,
        "modes": int(_C.DispatchKey.Python),
        "below": below,
        "python": python,
        "versions": int(_C.DispatchKey.ADInplaceOrView),
        "batching": int(_C._dispatch_key_parse("VmapMode")),
        "snapshot": _bit_of("PythonTLSSnapshot"),
        "aside": python | (meta & ~dense),
        "odd": odd,
        "cpu": _set_of("CPU"),
    }


def _bit_of(key: str) -> int:
    """The bit of a key of a kind of tensor, apart from those of backends: the lowest that is not below the key."""
    return (int(_C._dispatch_keyset_full_after(_C._dispatch_key_parse(key)).raw_repr()) & (2**60 - 1)) + 1


def _set_of(key: str) -> int:
    return int(_C.DispatchKeySet(getattr(_C.DispatchKey, key)).raw_repr())


def _redispatch() -> int:
    """The address of torch's function that calls an op's next kernel: the fallback of the key ``PreDispatch``."""
    found = []
    for op in ("aten::add.Tensor", "aten::mm"):
        kernel = _C._dispatch_get_computed_kernel_for_dispatch_key(op, "PreDispatch")
        if "PythonFallbackKernel" not in repr(kernel):
            raise _unexpected("the fallback of PreDispatch")
        # An instance of pybind11: its head, then the address of the C++ object, which begins with the kernel.
        functor, function = struct.unpack("<2Q", ctypes.string_at(_words(id(kernel) + 16, 1)[0], 16))
        found.append(function)
        if functor:
            raise _unexpected("the fallback of PreDispatch")
    if not found[0] or found[0] != found[1]:
        raise _unexpected("the fallback of PreDispatch")
    return int(found[0])


def _words(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}Q", ctypes.string_at(address, 8 * count))


_PROBED_WORDS = 23
"""Words of a ``TensorImpl`` that are looked at; every build since 2.6 has more."""


def _tensor_layout() -> dict[str, int]:
    """Offsets in ``TensorImpl`` and ``StorageImpl``, found on two tensors that differ in everything."""
    a = torch.arange(777, dtype=torch.float64)[5:].view(4, 193)[:, ::3]
    b = torch.arange(555, dtype=torch.int32)[7:].view(2, 2, 137)[..., 1:]
    layouts = [_candidates(tensor) for tensor in (a, b)]
    found = {}
    for name, places in layouts[0].items():
        both = places & layouts[1][name]
        if len(both) != 1:
            raise _unexpected(f"the layout of tensors ({name})")
        found[name] = both.pop()
    return found


def _candidates(tensor: torch.Tensor) -> dict[str, set[int]]:
    storage = untyped_storage(tensor)
    words, inside = _words(tensor._cdata, _PROBED_WORDS), _words(storage._cdata, 8)
    shape, strides = tuple(tensor.shape), tensor.stride()
    rank = len(shape)
    number = {torch.float64: 7, torch.int32: 3}[tensor.dtype]

    def where(values: tuple[int, ...], wanted: int) -> set[int]:
        return {8 * i for i, value in enumerate(values) if value == wanted}

    sizes = {
        8 * i
        for i in range(len(words) - 10)
        if words[i] == rank and words[i + 1 : i + 1 + rank] == shape and words[i + 6 : i + 6 + rank] == strides
    }
    keys = where(words, _C._dispatch_keys(tensor).raw_repr())
    # The dtype stands in front of the keys: a number of 16 bits, then the device (CPU, no index), which is there.
    dtype = {at - 8 for at in keys if words[at // 8 - 1] & 0xFFFFFFFFFF == number | 0xFF << 24 | 1 << 32 | 0}
    return {
        "storage": where(words, storage._cdata),
        "sizes": sizes,
        "offset": where(words, int(tensor.storage_offset())),
        "dtype": dtype,
        "keys": keys,
        "object": where(words, id(tensor)),
        "nbytes": where(inside, storage.nbytes()),
    }


def _check_leaves() -> None:
    """Compares what the extension reads of parameters, of what autograd made of them, and of other tensors."""
    with torch.enable_grad():
        parameter = torch.nn.Parameter(torch.ones(3))
        made = [parameter, parameter * 2, parameter.detach(), parameter[1:], torch.ones(3), torch.ones(3) + 1]
    if any(_native.is_leaf(tensor._cdata) is not tensor.is_leaf for tensor in made):
        raise _unexpected("which tensors are leaves")


def _seen(
    call: Callable[[], object], name: str, items: tuple[int, list[int]] | None = None, tensor: int | None = None
) -> _native.Seen:
    """The first op that came to the fallback while a function was called, which must be this one."""
    seen = _native.capture_native(call, items, tensor)
    if not seen or seen[0]["name"] != name:
        raise _unexpected(f"the way of {name}")
    return seen[0]


def _tags() -> dict[str, int]:
    """Tags of boxed values, and the place of a list's items."""
    x = torch.ones(2, 3, 4)
    aten = torch.ops.aten
    seen = _seen(lambda: aten.sum.dim_IntList(x, [0, 2], True), "aten::sum.dim_IntList", (1, [0, 2]))
    values, header = seen["raw"], seen["header"]
    if header is None or len(values) != 4 or values[0][1] != x._cdata or values[2][1] & 0xFF != 1:
        raise _unexpected("the stack of aten::sum")
    tags = {"tensor": values[0][0], "list": values[1][0], "boolean": values[2][0], "none": values[3][0]}
    slope = _seen(lambda: aten.leaky_relu(x, 0.125), "aten::leaky_relu.")["raw"]
    whole = _seen(lambda: aten.cumsum(x, 1), "aten::cumsum.")["raw"]
    if struct.unpack("<d", struct.pack("<Q", slope[1][1]))[0] != 0.125 or whole[1][1] != 1:
        raise _unexpected("numbers on the stack")
    tags |= {"float": slope[1][0], "int": whole[1][0]}
    tags["string"] = _seen(lambda: aten.gelu(x, approximate="tanh"), "aten::gelu.")["raw"][1][0]
    tags["device"] = _seen(lambda: aten.empty([2], device="cpu"), "aten::empty.memory_format")["raw"][3][0]
    if len(set(tags.values())) != len(tags):
        raise _unexpected("the tags of values")
    return {**tags, "header": header}


def _undefined(c10: str) -> int:
    """The address of the tensor without a value."""
    singleton = ctypes.c_char.in_dll(ctypes.CDLL(c10), "_ZN3c1019UndefinedTensorImpl10_singletonE")
    return ctypes.addressof(singleton)


def _wrapped(dtype: int) -> int:
    """In the word with the dtype, the bit of numbers that torch wrapped in a tensor, as in ``x * 2``."""
    x = torch.ones(3)

    def word(other: Any) -> int:
        return _seen(lambda: x * other, "aten::mul.Tensor", tensor=1)["words"][dtype // 8]

    bit = word(2.5) ^ word(torch.tensor(2.5, dtype=torch.float64))
    wrapped = [word(number) & bit for number in (2.5, 2, True)]
    plain = [word(torch.tensor(number)) & bit for number in (2.5, 2, True)]
    if bit.bit_count() != 1 or wrapped != [bit] * 3 or plain != [0] * 3:
        raise _unexpected("numbers that become tensors")
    return bit


def _check_modes(key: int) -> None:
    """Whether torch excludes the key of dispatch modes where it disables them."""
    hidden = _C._DisableTorchDispatch()
    try:
        excluded = _C._dispatch_tls_is_dispatch_key_excluded(_C.DispatchKey(key))
    finally:
        del hidden
    if not excluded or _C._dispatch_tls_is_dispatch_key_excluded(_C.DispatchKey(key)):
        raise _unexpected("the way to disable dispatch modes")


def _check_reading() -> None:
    """Reads values of all kinds as the fallback does, and compares."""
    x = torch.arange(720.0).view(1, 2, 3, 4, 5, 6).permute(5, 0, 4, 1, 3, 2)[1:]
    y = torch.ones(3, dtype=torch.complex64)[1:].conj()
    aten = torch.ops.aten
    image, kernel = torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2)
    ones, zeros = "list [int 1, int 1]", "list [int 0, int 0]"
    convolution = [_shown(image), _shown(kernel), "none", ones, zeros, ones, "bool false", zeros, "int 1"]
    cases: list[tuple[Any, list[str]]] = [
        (lambda: aten.sum.dim_IntList(x, [0, 2], True), [_shown(x), "list [int 0, int 2]", "bool true", "none"]),
        (lambda: aten.gelu(x, approximate="tanh"), [_shown(x), "text tanh"]),
        (lambda: aten.leaky_relu(x, -0.5), [_shown(x), "float -0.5"]),
        (lambda: aten.resolve_conj(y).data_ptr() and aten.clone(y), [_shown(y), "none"]),
        (lambda: aten.stack([x, x], -1), [f"list [{_shown(x)}, {_shown(x)}]", "int -1"]),
        (lambda: x * -0.5, [_shown(x), "wrapped Float(-0.5)"]),
        (lambda: x * 2**40, [_shown(x), f"wrapped Int({2**40})"]),
        (lambda: x * True, [_shown(x), "wrapped Bool(true)"]),
        (lambda: x * 1j, [_shown(x), "wrapped Other"]),
        (lambda: torch.conv2d(image, kernel), convolution),  # the bias is a tensor without a value
    ]
    for call, expected in cases:
        seen = _native.capture_native(call)
        if not any(values["read"] == expected for values in seen):
            raise _unexpected("values on the stack")


def _shown(tensor: torch.Tensor) -> str:
    storage = untyped_storage(tensor)
    number = {torch.float32: 6, torch.complex64: 9}[tensor.dtype]
    return (
        f"tensor {list(tensor.shape)} {list(tensor.stride())} offset {tensor.storage_offset()} "
        f"keys {_C._dispatch_keys(tensor).raw_repr()} dtype {number} storage {storage._cdata} of {storage.nbytes()}"
    )


_library: torch.library.Library | None = None


def _define_raising() -> None:
    """Defines the op through which an error of Remat's own leaves the fallback with its own type."""
    global _library
    _library = torch.library.Library("remat_native", "FRAGMENT")
    _library.define("raise_error() -> ()")
    _library.impl("raise_error", _raise_error, "CompositeExplicitAutograd")
    name = "remat_native::raise_error."
    seen = _native.capture_native(torch.ops.remat_native.raise_error.default, raising=True)
    if [op["name"] for op in seen] != [name]:
        raise _unexpected(f"the way of {name}")


def _raise_error() -> None:
    try:
        _native.raise_native()
    except BaseException as error:
        raise own_frames_dropped(error) from None
