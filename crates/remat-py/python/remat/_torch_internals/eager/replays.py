"""Running an op again: views of storages, states of generators, errors without Remat's frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..._errors import BudgetError
from .devices import device_module, index_of, on_accelerator
from .tensors import home


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


#: Bytes that reading and writing the CPU generator's state takes: three copies of 5056 bytes, rounded up.
RNG_BYTES = 16384


def generators_of(args: Any, kwargs: dict[str, Any] | None) -> list[torch.Generator]:
    explicit = [v for v in (*args, *(kwargs or {}).values()) if isinstance(v, torch.Generator)]
    if explicit:
        return explicit
    return [default_generator(home(args, kwargs or {}))]


def default_generator(device: torch.device) -> Any:
    """The generator that ops on a device draw from."""
    if not on_accelerator(device):
        return torch.default_generator
    module, index = device_module(device), index_of(device)
    generators = getattr(module, "default_generators", ())
    if generators:
        return generators[index]
    internals: Any = torch._C
    if hasattr(internals, "_accelerator_getDefaultGenerator"):
        return internals._accelerator_getDefaultGenerator(index)
    return _ModuleGenerator(module, index)


class _ModuleGenerator:
    """The generator of a device whose module shows only its state, as ``torch.mps`` did."""

    def __init__(self, module: Any, index: int) -> None:
        self._module, self._at = module, (index,) if index else ()

    def get_state(self) -> torch.Tensor:
        state: torch.Tensor = self._module.get_rng_state(*self._at)
        return state

    def set_state(self, state: torch.Tensor) -> None:
        self._module.set_rng_state(state, *self._at)


def rng_state(args: Any, kwargs: dict[str, Any] | None) -> list[tuple[torch.Generator, bytes]]:
    """The state of the generator that an op is about to draw from, outside torch's own memory."""
    return [(g, g.get_state().numpy().tobytes()) for g in generators_of(args, kwargs)]


def _set_state(generator: torch.Generator, state: bytes) -> None:
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


#: The key whose kernels forbid random ops while autograd runs batched: an op that does may need numbers drawn before.
_BATCHING = torch._C.DispatchKeySet(torch._C._dispatch_key_parse("VmapMode"))


def replay_random(call: Any, args: Any, kwargs: Any, states: list[tuple[torch.Generator, bytes]]) -> Any:
    """Runs a random op with the numbers it drew first; the streams go on as if nothing had happened."""
    now = [(g, g.get_state().numpy().tobytes()) for g, _ in states]
    for generator, state in states:
        _set_state(generator, state)
    try:
        with torch._C._ExcludeDispatchKeyGuard(_BATCHING):
            return call(*args, **kwargs)
    finally:
        for generator, state in now:
            _set_state(generator, state)


_OWN_FILES = frozenset([*map(str, Path(__file__).parent.glob("*.py")), torch._ops.__file__])


def own_frames_dropped(error: BaseException) -> BaseException:
    """An error of an op, as if torch had run the op itself.

    The first frames of its traceback are left out: those of this package, and those of torch that take an op apart.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    return error.with_traceback(trace)


def budget_error(op: str, needed: int, smallest: int, budget: int, device: str, suggested: int) -> BudgetError:
    """The exception for a plan that does not fit."""
    return BudgetError(op, needed, smallest, budget, device, suggested=suggested)
