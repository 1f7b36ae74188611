"""Settings of the process and the thread that change the bits or the dtypes that kernels make.

A replay runs under the settings of the op's first run. They are read before each op, so reading them is cheap: the
session calls :data:`GETTERS` and asks for the whole state only if one answers something else than before. Precisions
of 32-bit floats are costly to read. Torch has two functions that set them, and :data:`SETTERS` names these, so that the
session learns of each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ... import _native

_Setting = tuple[Callable[[], Any], Callable[[Any], Any]]


def _setting(name: str) -> list[_Setting]:
    """A getter and a setter of ``torch._C``, if this version of torch has them."""
    getter, setter = (getattr(torch._C, f"_{verb}_{name}", None) for verb in ("get", "set"))
    return [(getter, setter)] if getter is not None and setter is not None else []


def _set_deterministic(on: bool) -> None:
    torch._C._set_deterministic_algorithms(on, warn_only=torch._C._get_deterministic_algorithms_warn_only())


_SETTINGS: list[_Setting] = [
    (torch.get_default_dtype, torch._C._set_default_dtype),
    (torch.get_num_threads, torch.set_num_threads),
    (torch._C._get_deterministic_algorithms, _set_deterministic),
    *_setting("mkldnn_enabled"),
    *_setting("mkldnn_deterministic"),
    *_setting("nnpack_enabled"),
    *(_setting("cudnn_enabled") + _setting("cudnn_deterministic") if torch.backends.cuda.is_built() else []),
]

#: Functions that tell the settings that are read before each op.
GETTERS: list[Callable[[], Any]] = [getter for getter, _ in _SETTINGS]

#: Methods of torch's ``at::Context`` that tell the flags among them without Python, by getter.
_METHODS = {
    "_get_deterministic_algorithms": "deterministicAlgorithms",
    "_get_mkldnn_enabled": "userEnabledMkldnn",
    "_get_mkldnn_deterministic": "deterministicMkldnn",
    "_get_nnpack_enabled": "userEnabledNNPACK",
    "_get_cudnn_enabled": "userEnabledCuDNN",
    "_get_cudnn_deterministic": "deterministicCuDNN",
}


def read_natively(c10: str, cpu: str) -> str | None:
    """Has the settings of :data:`GETTERS` read without Python from now on; the reason if they cannot be."""
    getters = [getter for getter in GETTERS if getter not in (torch.get_default_dtype, torch.get_num_threads)]
    methods = [_METHODS.get(getter.__name__) for getter in getters]
    if None in methods:
        return f"{getters[methods.index(None)].__name__} has no counterpart"
    names = [f"_ZNK2at7Context{len(method)}{method}Ev" for method in methods if method]
    _native.register_settings(c10, cpu, names)
    before = state_number(False)
    dtype = torch.get_default_dtype()
    try:
        # What each tells must change with the setting, and with nothing else.
        for (_, setter), getter in zip(_SETTINGS, GETTERS, strict=True):
            was = getter()
            for value in _others(was):
                setter(value)
                if not _alike(getters):
                    return f"{getter.__name__} tells something else"
                setter(was)
    finally:
        torch._C._set_default_dtype(dtype)
        enter_state(before, state_number(False))
    return None if _alike(getters) else "settings tell something else"


def _others(value: Any) -> list[Any]:
    """Values of a setting to try; none for the number of threads, which libraries heed otherwise once it was set."""
    if isinstance(value, bool):
        return [not value]
    return [torch.float64, torch.float32] if isinstance(value, torch.dtype) else []


#: Dtypes as torch numbers them.
_NUMBERS = {torch.float32: 6, torch.float64: 7}


def _alike(getters: list[Callable[[], Any]]) -> bool:
    """Whether flags, threads and dtype are told as Python is told them. Of dtypes only these two are compared."""
    flags, threads, dtype = _native.read_settings() or ([], 0, 0)
    number = _NUMBERS.get(torch.get_default_dtype(), dtype)
    return (flags, threads, dtype) == ([getter() for getter in getters], torch.get_num_threads(), number)


#: Functions of ``torch._C`` that change settings which are not.
SETTERS = [
    name
    for name in ("_set_fp32_precision_setter", "_set_float32_matmul_precision", "_set_cublas_allow_tf32")
    if hasattr(torch._C, name)
]


class GlobalState(NamedTuple):
    """The settings under which an op runs."""

    #: The answers of :data:`GETTERS`.
    settings: tuple[Any, ...]
    #: ``torch.get_float32_matmul_precision()``; ``None`` where torch cannot tell, as the precisions differ by backend.
    matmul: str | None
    #: Precisions of 32-bit floats as they were set, by backend and op.
    precisions: tuple[str, ...]
    #: Whether this thread takes denormal numbers for zero.
    flushes_denormals: bool


_states: list[GlobalState] = []
_numbers: dict[GlobalState, int] = {}


def state_number(flushes_denormals: bool) -> int:
    """The number of the state that is in force. Equal states have the same number as long as the process lives."""
    state = GlobalState(tuple(getter() for getter in GETTERS), _matmul(), _precisions(), flushes_denormals)
    number = _numbers.setdefault(state, len(_states))
    if number == len(_states):
        _states.append(state)
    return number


def enter_state(number: int, current: int) -> None:
    """Puts a state into force; ``current`` is the number of the one that is."""
    wanted, present = _states[number], _states[current]
    for (_, setter), value, before in zip(_SETTINGS, wanted.settings, present.settings, strict=True):
        if value != before:
            setter(value)
    if wanted.flushes_denormals != present.flushes_denormals:
        torch.set_flush_denormal(wanted.flushes_denormals)
    sets_matmul = wanted.matmul != present.matmul and wanted.matmul is not None
    if sets_matmul:
        _SET_MATMUL(wanted.matmul)
    for place, value, before in zip(_PLACES, wanted.precisions, present.precisions, strict=True):
        if value != before or (sets_matmul and place[1] == "matmul"):
            _SET_PRECISION(*place, value)


_SET_MATMUL: Any = torch._C._set_float32_matmul_precision
_SET_PRECISION: Any = getattr(torch._C, "_set_fp32_precision_setter", None)
_PRECISION: Any = getattr(torch._C, "_get_fp32_precision_getter", None)

# Parents first: an op without a precision of its own has that of its backend, and this the generic one.
_PLACES = (
    []
    if _PRECISION is None
    else [("generic", "all")]
    + [(backend, op) for backend in ("mkldnn", "cuda") for op in ("all", "matmul", "conv", "rnn")]
)


def _matmul() -> str | None:
    try:
        return torch._C._get_float32_matmul_precision()
    except RuntimeError:
        return None


def _precisions() -> tuple[str, ...]:
    """Precisions as they were set, not as they are inherited.

    Torch tells the inherited ones. One that follows a change of its parent was inherited.
    """
    found: dict[tuple[str, str], str] = {}
    for place in _PLACES:
        backend, op = place
        parent = None if place == ("generic", "all") else ("generic", "all") if op == "all" else (backend, "all")
        value = _PRECISION(*place)
        if parent is not None and value != "none" and _follows(place, parent, found[parent]):
            value = "none"
        found[place] = value
    return tuple(found.values())


def _follows(place: tuple[str, str], parent: tuple[str, str], own: str) -> bool:
    """Whether a precision changes with its parent, whose own one is given."""
    seen = set()
    try:
        for value in ("ieee", "tf32"):
            _SET_PRECISION(*parent, value)
            seen.add(_PRECISION(*place))
    finally:
        _SET_PRECISION(*parent, own)
    return len(seen) > 1
