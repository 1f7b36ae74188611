"""The state that a stage reads beside its input: random streams, buffers, autocast.

A stage that runs again under the state of its first run gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from ..._torch_internals import eager
from .stage import Stage

Random = tuple[bytes, ...]
Buffer = tuple[torch.nn.Module, str, torch.Tensor]
#: A buffer of a stage: the number of its module in the stage, and its name there.
Place = tuple[int, str]


def random_state(device: torch.device) -> Random:
    """The state of every generator that code on a device draws from, as bytes outside torch's allocator."""
    return tuple(generator.get_state().numpy().tobytes() for generator in eager.generators(device))


def set_random_state(device: torch.device, states: Random) -> None:
    """Sets the generators of a device to states that :func:`random_state` gave."""
    for generator, state in zip(eager.generators(device), states, strict=True):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


@contextmanager
def random_again(device: torch.device, states: Random) -> Iterator[None]:
    """Draws random numbers from ``states`` on; afterwards the streams go on as if nothing had been drawn."""
    now = random_state(device)
    set_random_state(device, states)
    try:
        yield
    finally:
        set_random_state(device, now)


@dataclass(frozen=True)
class Autocast:
    """Whether autocast is on, by kind of device, and its dtypes."""

    states: tuple[tuple[str, bool, torch.dtype], ...]
    cache: bool

    @staticmethod
    def now(device: torch.device) -> Autocast:
        """The state in force for code on a device."""
        kinds = dict.fromkeys(("cpu", device.type))
        states = tuple((k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)
        return Autocast(states, torch.is_autocast_cache_enabled())

    @contextmanager
    def again(self) -> Iterator[None]:
        """Puts the state in force again, where another one is."""
        with ExitStack() as stack:
            for kind, on, dtype in self.states:
                if on or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype, on, self.cache if on else None))
            yield


def snapshot(buffers: list[Buffer]) -> list[Buffer]:
    """The buffers with copies of their tensors."""
    return [(module, name, held.detach().clone()) for module, name, held in buffers]


@contextmanager
def in_place_of_buffers(values: list[Buffer]) -> Iterator[None]:
    """Gives modules copies of these values in place of their buffers; writes to the copies are lost at the end."""
    before = [(module, name, module._buffers[name]) for module, name, _ in values]
    copies: dict[int, torch.Tensor] = {}
    for module, name, held in values:
        module._buffers[name] = copies.setdefault(id(held), held.clone())
    try:
        yield
    finally:
        for module, name, buffer in before:
            module._buffers[name] = buffer


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(
        one.detach().contiguous().reshape(-1).view(torch.uint8),
        other.detach().contiguous().reshape(-1).view(torch.uint8),
    )


def parameter_versions(stage: Stage) -> list[tuple[torch.Tensor, int]]:
    """The stage's parameters with their versions: it runs again to the same bits only while these stay."""
    return [(parameter, parameter._version) for parameter in stage.parameters()]


def where_changed(stage: Stage, before: list[Buffer]) -> frozenset[Place]:
    """The places of the buffers that hold other bits than before."""
    pairs = zip(_places(stage), before, strict=True)
    return frozenset(place for (place, (_, _, now)), (_, _, then) in pairs if not same_bits(now, then))


def at_places(stage: Stage, places: frozenset[Place]) -> list[Buffer]:
    """The stage's buffers at these places."""
    return [held for place, held in _places(stage) if place in places]


def _places(stage: Stage) -> Iterator[tuple[Place, Buffer]]:
    number = {id(module): index for index, module in enumerate(stage.modules())}
    return (((number[id(module)], name), (module, name, held)) for module, name, held in stage.buffers())
