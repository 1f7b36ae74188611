"""The state of the CPU's default random generator, which native random ops note, and replays set, without Python.

The extension copies the bytes of torch's own object that change as numbers are drawn. They are found on generators of
known states; where they are not as expected, random ops go through Python.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import torch

from ... import _native

_WORDS = 624
_OWN = struct.Struct(f"<Qi?3xI{_WORDS}I4xf?3xd?7x")
"""The bytes in torch's object.

The seed, how many words are left, whether it was seeded, the next word, the words; a normal ``float`` and a normal
``double`` that were drawn beside another and are next, each with whether it is there.
"""
_STATE = struct.Struct(f"<QiiQ{_WORDS}Qdddi4xf?3x")
"""The state that torch gives out and takes. Of the first three ``double`` it uses the second."""
_BEFORE_WORDS = 20
#: In front of these bytes, an object has at least its counts, a lock, and its device.
_IN_FRONT = 64


def read_random_state() -> str | None:
    """Has the state of the default generator read without Python from now on; the reason if it cannot be."""
    default = torch.default_generator
    known = _generators()
    places = {_place_of(generator) for generator in known}
    place = places.pop()
    if places or place is None:
        return "the words of a generator are not where Remat looks for them"
    for generator in known:
        if _decoded(ctypes.string_at(_address(generator) + place, _OWN.size)) != _STATE.unpack(_state(generator)):
            return "the bytes of a generator are not as Remat knows them"
    _native.register_generator(_address(default), place, _OWN.size)
    if _decoded(_native.read_generator() or bytes(_OWN.size)) != _STATE.unpack(_state(default)):
        return "the bytes of the default generator are not as Remat knows them"
    for generator in known:
        if not _goes_on_like(generator, place):
            return "a generator with the bytes of another one does not draw what that draws"
    _native.trust_generator()
    return None


def _goes_on_like(generator: torch.Generator, place: int) -> bool:
    """Whether another generator that is given a generator's bytes has its state, and draws the same numbers."""
    other = torch.Generator().manual_seed(1)
    torch.rand(5, generator=other)
    _native.write_generator(_address(other) + place, ctypes.string_at(_address(generator) + place, _OWN.size))
    if _state(other) != _state(generator):
        return False
    drawn = [
        (torch.randn(3, generator=g, dtype=torch.float64).tolist(), torch.rand(700, generator=g).tolist())
        for g in (generator, other)
    ]
    return drawn[0] == drawn[1] and _state(other) == _state(generator)


def default_states(own: bytes) -> list[tuple[torch.Generator, bytes]]:
    """The default generator and the state that its own bytes mean."""
    return [(torch.default_generator, _STATE.pack(*_decoded(own)))]


def _decoded(own: bytes) -> tuple[float, ...]:
    seed, left, seeded, following, *words, single, has_single, double, has_double = _OWN.unpack(own)
    doubles = (0.0, double if has_double else 0.0, 0.0, int(has_double))
    return (seed, left, int(seeded), following, *words, *doubles, single if has_single else 0.0, has_single)


def _address(generator: Any) -> int:
    return int(generator._cdata)


def _state(generator: torch.Generator) -> bytes:
    return generator.get_state().numpy().tobytes()


def _generators() -> list[torch.Generator]:
    """Generators whose states differ in everything."""
    fresh, drawn, doubled, single = (torch.Generator().manual_seed(seed) for seed in (7, 2**40 + 3, 11, 13))
    torch.rand(700, generator=drawn)
    torch.randn(3, generator=doubled, dtype=torch.float64)  # of a pair, one is left
    values = list(_STATE.unpack(_state(single)))
    values[-2:] = 0.625, True
    single.set_state(torch.frombuffer(bytearray(_STATE.pack(*values)), dtype=torch.uint8))
    return [fresh, drawn, doubled, single]


def _place_of(generator: torch.Generator) -> int | None:
    """The offset of the bytes in a generator's object."""
    words = struct.pack(f"<{_WORDS}I", *_STATE.unpack(_state(generator))[4 : 4 + _WORDS])
    found = ctypes.string_at(_address(generator), _IN_FRONT + _OWN.size).find(words)
    return None if found < _BEFORE_WORDS else found - _BEFORE_WORDS
