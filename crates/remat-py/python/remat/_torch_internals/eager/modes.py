"""Dispatch modes: pushing, popping, running an op with one in force."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .ops import decomposes

# The stack of this thread's modes. These are functions of torch's C++: Python runs the handler of a signal as it enters
# a function of its own, so that an interrupt there would leave a mode pushed that ought to go.
#: ``push_mode(mode)`` puts a mode on the stack.
push_mode = torch._C._push_on_torch_dispatch_stack
#: ``pop_mode()`` takes the topmost mode off, and returns it.
pop_mode = functools.partial(torch._C._pop_torch_dispatch_stack, None)
#: ``count_modes()`` says how many there are.
count_modes = torch._C._len_torch_dispatch_stack


def _lifted() -> list[TorchDispatchMode]:
    """All modes of this thread's stack, which is empty then; the topmost first."""
    return [pop_mode() for _ in range(count_modes())]


def _put_back(modes: list[TorchDispatchMode]) -> None:
    for mode in reversed(modes):
        push_mode(mode)


def drop_mode(mode: TorchDispatchMode) -> None:
    """Takes a mode out of this thread's stack, wherever it is."""
    _put_back([other for other in _lifted() if other is not mode])


@functools.cache
def _autocast() -> Any:
    """The dispatch keys of autocast, of all kinds of devices."""
    found = [key for name, key in torch._C.DispatchKey.__members__.items() if name.startswith("Autocast")]
    return functools.reduce(operator.or_, map(torch._C.DispatchKeySet, found))


@contextmanager
def below_autograd() -> Iterator[None]:
    """As inside a dispatch mode: no autograd, no autocast, no version counting, and out of sight of all modes.

    A mode that the program entered inside of the budget must not see replays that are no part of an op.
    """
    guard, hidden = torch._C._AutoDispatchBelowAutograd(), torch._C._DisableTorchDispatch()
    try:
        with torch._C._ExcludeDispatchKeyGuard(_autocast()):
            yield
    finally:
        del hidden, guard


@contextmanager
def as_usual() -> Iterator[None]:
    """Tensors that are made here are ordinary ones: no mode of the program's own makes others of them.

    Such are inference mode, fake tensors and default devices.
    """
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.inference_mode(False):
        yield


def redispatch(mode: TorchDispatchMode, func: Any, args: Any, kwargs: dict[str, Any] | None) -> Any:
    """Runs an op with the mode active again, so that the mode sees the ops that it is made of."""
    kwargs = kwargs or {}
    push_mode(mode)
    try:
        if decomposes(func):
            return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)
    finally:
        pop_mode()


def left_to_subclass(func: Any, args: Any, kwargs: dict[str, Any] | None) -> Any:
    """Answers torch for an op of which a tensor subclass decides: it is asked next.

    The class of fake tensors leaves it to their mode while that is active, which only a call from here reaches.
    """
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is None:
        return NotImplemented
    return func(*args, **(kwargs or {}))


# Kernels that call further ops count on these for conjugates, negations and zeros that are not carried out yet.
_LAZY = (torch._C.DispatchKey.Conjugate, torch._C.DispatchKey.Negative, torch._C.DispatchKey.ZeroTensor)


def handle_lazy() -> list[Any]:
    """Has ops within an op handle lazy conjugates as outside of a dispatch mode; returns the keys that were excluded.

    Torch excludes these keys while a mode handles an op. A kernel that multiplies by a conjugate then rounds otherwise
    than in plain eager, and otherwise than a replay outside of any op.
    """
    keys = [key for key in _LAZY if torch._C._dispatch_tls_is_dispatch_key_excluded(key)]
    for key in keys:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    return keys


def exclude_again(keys: list[Any]) -> None:
    """Excludes the keys that :func:`handle_lazy` returned."""
    for key in keys:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, True)


def set_grad_mode(on: bool) -> bool | None:
    """Sets grad mode; returns the mode before, or ``None`` if that was the same."""
    if torch.is_grad_enabled() == on:
        return None
    torch._C._set_grad_enabled(on)
    return not on


grad_enabled = torch.is_grad_enabled
