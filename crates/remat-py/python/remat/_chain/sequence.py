"""Sequences of forward and backward operations: which are valid, what they hold, how to say them.

The operations are those of Beaumont et al. 2024 (Rotor), table 1: ``Fnone`` runs a stage and keeps nothing, ``Fck``
keeps its input, ``Fall`` what its backward pass needs, ``B`` is the backward pass. Stages count from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from .stage.costs import ChainCosts

Operation = tuple[str, int]
FORWARD = ("Fnone", "Fck", "Fall")


def check_sequence(operations: Sequence[Operation], length: int) -> None:
    """``ValueError`` unless the operations compute all gradients of a chain of so many stages, the loss included."""
    for operation in operations:
        if operation[0] not in (*FORWARD, "B") or not 1 <= operation[1] <= length:
            raise ValueError(f"{operation} is no operation on a chain of {length} stages")
    first = [operation[1] for operation in operations[:length]]
    if first != list(range(1, length + 1)) or any(kind == "B" for kind, _ in operations[:length]):
        raise ValueError("a plan begins with every stage's forward operation in order, the loss last")
    if operations[length - 1][0] != "Fall":
        raise ValueError("the loss must be run once, saving all")
    if [index for kind, index in operations if kind == "B"] != list(range(length, 0, -1)):
        raise ValueError("a plan has every stage's backward operation once, last stage first")
    held, saved = {0}, set[int]()
    for kind, index in operations:
        if kind == "B":
            if index not in saved:
                raise ValueError(f"backward of stage {index}: what it needs is not saved")
            saved.discard(index)
            continue
        if index - 1 not in held and index - 1 not in saved:
            raise ValueError(f"{kind} of stage {index}: its input is not there")
        if kind == "Fnone":
            held.discard(index - 1)
        held.add(index)
        if kind == "Fall":
            saved.add(index)
            held.discard(index)


def read_later(operations: Sequence[Operation]) -> list[frozenset[int]]:
    """For each operation, the activations that some later operation reads before they are made again."""
    live: set[int] = set()
    answer = []
    for kind, index in reversed(operations):
        answer.append(frozenset(live))
        if kind != "B":
            live.discard(index)
            live.add(index - 1)
    return answer[::-1]


def run_again(operations: Sequence[Operation]) -> frozenset[int]:
    """The stages that run forward more than once."""
    indices = [index for kind, index in operations if kind != "B"]
    return frozenset(index for index in indices if indices.count(index) > 1)


def peak_of(operations: Sequence[Operation], costs: ChainCosts) -> int:
    """Most bytes of activations, saved sets and gradients at any moment, the chain's input included.

    As :mod:`remat._chain.run` runs them: an activation goes once no operation reads it, which is never later than in
    definition 3.4; gradients of parameters come into being one backward pass after the other.
    """
    live, saved = {0}, set[int]()
    gradient = 0
    left = 0  # gradients of parameters
    highest = costs.input_bytes
    sizes = [costs.input_bytes, *(stage.activation_bytes for stage in costs.stages)]
    gradients = [costs.input_gradient_bytes, *(stage.gradient_bytes for stage in costs.stages)]
    for (kind, index), later in zip(operations, read_later(operations), strict=True):
        stage = costs.stages[index - 1]
        there = (live | {i - 1 for i in saved}) - saved  # a saved set may hold its stage's input
        held = left + sum(sizes[i] for i in there) + sum(costs.stages[i - 1].saved_bytes for i in saved)
        if kind == "B":
            left += stage.parameter_gradient_bytes
            held += stage.parameter_gradient_bytes - stage.released_bytes
            highest = max(highest, held + max(stage.backward_bytes, gradient, gradients[index - 1]))
            saved.discard(index)
            gradient = gradients[index - 1]
            continue
        if kind == "Fall":
            grown, overhead = stage.saved_bytes, stage.saving_overhead_bytes
            saved.add(index)
        else:
            grown, overhead = sizes[index], stage.forward_overhead_bytes
        highest = max(highest, held + gradient + grown + overhead)
        live = (live | {index}) & (later | {0})
    return highest


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
