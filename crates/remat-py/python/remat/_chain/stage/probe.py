"""The shape of a chain: which functions make one stage, and where gradients begin. One run of the chain shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from ..._errors import RematError
from ..._memory.tensors import distinct_bytes, tensors
from ..._torch_internals import eager
from .saved import never_unpacked
from .stage import Stage, apart, check_value, copied, join
from .state import in_place_of_buffers, random_again, random_state


@dataclass(frozen=True)
class Shape:
    """Stages of a chain, and where they leave gradients."""

    #: Stages that run before the chain: no gradient ever reaches them.
    before: tuple[Stage, ...]
    stages: tuple[Stage, ...]
    #: Whether the first of all stages writes to its input.
    writes_input: bool
    #: The leaves that the chain leaves gradients in, without its input.
    leaves: tuple[torch.Tensor, ...]
    device: torch.device


def shape_of(functions: Sequence[Stage], sample: Any, device: torch.device) -> Shape:
    """Runs every function once on the sample.

    A function that writes to its input joins the stage that made the input. So does one that follows an activation
    which no backward pass needs, such as a ReLU after a sum, unless its own result is larger: in a stage of its own, it
    would have a plan hold both.

    Random streams and buffers are as before afterwards. Raises ``RematError`` for values that cannot go from stage to
    stage and for a chain that has no gradient at all.
    """
    check_value(sample, "the sample", device)
    groups: list[list[Stage]] = []
    last_without = -1
    writes_input = False
    with random_again(device, random_state(device)), torch.enable_grad():
        given = apart(sample)
        value = copied(given)
        needed = True
        for function in functions:
            entered = tensors(value)
            before = [(tensor, tensor._version) for tensor in entered]
            saved: list[torch.Tensor] = []
            with in_place_of_buffers(function.buffers()), saved_tensors_hooks(saved.append, never_unpacked):
                value = function(value)
            check_value(value, function.name, device)
            writes = any(tensor._version != version for tensor, version in before)
            idle = (
                not needed and not _any_of(entered, saved) and distinct_bytes(tensors(value)) <= distinct_bytes(entered)
            )
            if (writes or idle) and groups:
                groups[-1].append(function)
            else:
                writes_input = writes_input or writes
                groups.append([function])
            wanting = any(tensor.requires_grad for tensor in tensors(value))
            needed = not wanting or _any_of(tensors(value), saved)
            saved.clear()  # the graph keeps the list
            if not wanting:
                last_without = len(groups) - 1
        del before, entered
    if last_without == len(groups) - 1:
        raise RematError("the output of the chain needs no gradient: there is nothing to plan")
    inputs = {id(tensor) for tensor in tensors(given)}
    leaves = tuple(leaf for leaf in eager.leaves(tensors(value)) if id(leaf) not in inputs)
    stages = tuple(join(group) for group in groups)
    split = last_without + 1
    return Shape(stages[:split], stages[split:], writes_input, leaves, device)


def _any_of(values: Sequence[torch.Tensor], saved: Sequence[torch.Tensor]) -> bool:
    """Whether one of the values lies in a storage that was saved."""
    storages = {eager.storage_id(tensor) for tensor in saved}
    return any(eager.storage_id(tensor) in storages for tensor in values)
