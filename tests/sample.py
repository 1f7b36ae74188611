"""Samples of cross products: the same tests every time, spread over all values of every parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import pytest


def one_of_each(*parameters: Sequence[Any]) -> list[Any]:
    """The cross product of parameters; without `--all`, every value of the longest one runs once.

    Which values of the others it runs with is drawn from its name, so that an addition moves no other test.
    """
    longest = max(range(len(parameters)), key=lambda index: len(parameters[index]))
    cases: list[Any] = []
    for value in parameters[longest]:
        others = [others for index, others in enumerate(parameters) if index != longest]
        drawn = [crc32(f"{value} {index}".encode()) % len(values) for index, values in enumerate(others)]
        for chosen, rest in _product(others):
            case = [*rest[:longest], value, *rest[longest:]]
            cases.append(pytest.param(*case, marks=[] if chosen == drawn else pytest.mark.full))
    return cases


def some(values: Iterable[Any]) -> list[Any]:
    """The first two values; with `--all`, every one. For cases that are much alike, and each a process of its own."""
    return [pytest.param(value, marks=[] if at < 2 else pytest.mark.full) for at, value in enumerate(values)]


def _product(parameters: Sequence[Sequence[Any]]) -> Iterable[tuple[list[int], list[Any]]]:
    """The places of the values, and the values."""
    if not parameters:
        yield [], []
        return
    for places, values in _product(parameters[:-1]):
        for place, value in enumerate(parameters[-1]):
            yield [*places, place], [*values, value]
