"""Sequences of forward and backward operations: what the planner says of them, and how to say them in words.

The operations are those of Beaumont et al. 2024 (Rotor), table 1: ``Fnone`` runs a stage and keeps nothing, ``Fck``
keeps its input, ``Fall`` what its backward pass needs, ``B`` is the backward pass. Stages count from 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from .. import _native
from .stage.costs import ChainCosts

Operation = tuple[str, int]


def peak_of(operations: Sequence[Operation], costs: ChainCosts) -> int:
    """Most bytes of activations, saved sets and gradients at any moment, the chain's input included.

    :mod:`remat._chain.run` drops an activation once no operation reads it, and so does this count. ``ValueError`` for a
    sequence that it cannot run.
    """
    return _native.peak_of_chain_run(json.dumps(costs.for_planner()), json.dumps(operations))


@lru_cache(maxsize=32)
def read_later(operations: tuple[Operation, ...]) -> list[frozenset[int]]:
    """For each operation, the activations that some later operation reads before they are made again."""
    return [frozenset(needed) for needed in _native.chain_needed_later(json.dumps(operations))]


def run_again(operations: Sequence[Operation]) -> frozenset[int]:
    """The stages that run forward more than once."""
    indices = [index for kind, index in operations if kind != "B"]
    return frozenset(index for index in indices if indices.count(index) > 1)


def in_words(operations: Sequence[Operation], names: Sequence[str]) -> str:
    """The operations in sentences, one a line; `names` are the stages'."""
    length = len(names)
    lines = ["forward:", *_phrases(operations[: length - 1], names), "backward:"]
    lines += _phrases([op for op in operations[length:] if op[1] < length], names)
    return "\n".join(lines)


_WORDS = {
    "Fnone": "run {} and save nothing",
    "Fck": "run {} and keep the input",
    "Fall": "run {} and save all",
    "B": "backward of {}",
}


def _phrases(operations: Sequence[Operation], names: Sequence[str]) -> Iterator[str]:
    for kind, run in groupby(operations, key=lambda operation: operation[0]):
        indices = [index for _, index in run]
        which = f"{indices[0]} ({names[indices[0] - 1]})"
        if len(indices) > 1:
            which += f" to {indices[-1]} ({names[indices[-1] - 1]})"
        yield "  " + _WORDS[kind].format(which)
