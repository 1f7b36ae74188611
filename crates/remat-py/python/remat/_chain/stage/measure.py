"""Measures a chain stage by stage (Beaumont et al. 2024, Rotor, section 5.1).

Bytes are those that the allocator gives out. Times are medians of three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any

import torch

from ..._memory.tensors import allocated_bytes, distinct_bytes, tensors
from ..._torch_internals import eager
from .costs import ChainCosts, StageCosts
from .probe import Shape
from .saved import forgetting
from .stage import Stage, apart, copied
from .state import Place, at_places, in_place_of_buffers, random_again, random_state, where_changed

_TIMES = 3

# Seconds of the forward and of the backward pass, one pair for each measurement.
_Seconds = list[tuple[float, float]]

# Stages of the same bytes whose times differ by a larger factor are not alike.
_ALIKE = 2.0


@dataclass(frozen=True)
class Measured:
    """Measurements of a chain."""

    costs: ChainCosts
    #: The buffers that each stage changes.
    changing: tuple[frozenset[Place], ...]


def measure_chain(shape: Shape, sample: Any, loss: Callable[[Any], Any] | None) -> Measured:
    """Runs every stage forward six times and backward four times.

    Parameters, gradients, buffers and random streams stay as they are. Raises ``RematError`` while a profiler is
    active.
    """
    value, before_bytes = sample, 0
    for position, stage in enumerate(shape.before):
        copy = shape.writes_input and position == 0
        entered = distinct_bytes(tensors(value)) if position else 0
        value, _, peak = _allocations(stage, copied(value) if copy else value, shape.device, forgetting())
        before_bytes = max(before_bytes, entered + peak)
    input_bytes, wanted = distinct_bytes(tensors(value)), _gradient_bytes(tensors(value))
    rows: list[StageCosts] = []
    seconds: list[_Seconds] = []
    changing = []
    known: dict[int, tuple[torch.Tensor, int]] = {}  # leaves that get gradients, with the last stage that uses each
    for position, stage in enumerate(shape.stages):
        copies = shape.writes_input and position == 0 and not shape.before
        measured = _measure_stage(stage, value, shape.device, copies=copies)
        value = measured.output
        seconds.append(measured.seconds)
        changing.append(measured.changes)
        # For a leaf that several stages use, autograd holds two gradients at once: the sum so far and the next one.
        sums = sum(2 * allocated_bytes(leaf) for leaf in measured.leaves if id(leaf) in known)
        known.update((id(leaf), (leaf, position)) for leaf in measured.leaves)
        rows.append(replace(measured.costs, kept_bytes=measured.costs.kept_bytes + sums))
    for leaf, position in known.values():
        more = rows[position].parameter_gradient_bytes + leaf.numel() * leaf.element_size()
        rows[position] = replace(rows[position], parameter_gradient_bytes=more)
    rows = _alike(rows, seconds)
    rows.append(_loss(loss, value, shape.device))
    return Measured(ChainCosts(input_bytes, wanted, before_bytes, tuple(rows)), tuple(changing))


def _alike(rows: list[StageCosts], seconds: list[_Seconds]) -> list[StageCosts]:
    """Gives stages that are alike in every byte, as a network's repeated blocks are, the median of all their times.

    Otherwise a plan would run those stages again that noise made look cheap.
    """
    groups: dict[StageCosts, list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault(replace(row, name="", forward_time=0.0, backward_time=0.0), []).append(index)
    same = list(rows)
    for members in groups.values():
        pooled = [pair for index in members for pair in seconds[index]]
        forward, backward = median(pair[0] for pair in pooled), median(pair[1] for pair in pooled)
        for index in members:
            row = rows[index]
            if max(_ratio(row.forward_time, forward), _ratio(row.backward_time, backward)) <= _ALIKE:
                same[index] = replace(row, forward_time=forward, backward_time=backward)
    return same


def _ratio(one: float, other: float) -> float:
    return max(one, other) / max(min(one, other), 1e-9)


def _loss(loss: Callable[[Any], Any] | None, value: Any, device: torch.device) -> StageCosts:
    if loss is not None:
        return _measure_stage(Stage("loss", (loss,)), value, device, copies=False).costs
    output = distinct_bytes(tensors(value))
    return StageCosts("loss", 0.0, 0.0, 0, output, 0, 0, 0, 2 * output)


@dataclass(frozen=True)
class _MeasuredStage:
    """Measurements of one stage."""

    costs: StageCosts
    #: Each measurement of its times.
    seconds: _Seconds
    #: The buffers that it changes.
    changes: frozenset[Place]
    #: The leaves that its backward pass leaves gradients in.
    leaves: list[torch.Tensor]
    output: Any


def _measure_stage(stage: Stage, value: Any, device: torch.device, *, copies: bool) -> _MeasuredStage:
    """Measures one stage on an input; with ``copies`` the stage writes to its input and gets a copy."""
    given = apart(value)
    lasting = [*stage.parameters(), *(held for _, _, held in stage.buffers())]

    def entry() -> Any:
        with torch.enable_grad():
            return copied(given) if copies else given

    random = random_state(device)
    with random_again(device, random), in_place_of_buffers(stage.buffers()):
        before = [(module, name, held.clone()) for module, name, held in stage.buffers()]
        output, left, peak = _allocations(stage, entry(), device, forgetting())
        draws = random_state(device) != random
        changes = where_changed(stage, before)
        del before
        activation = distinct_bytes(tensors(output), lasting)
        made = distinct_bytes(tensors(output), [*lasting, *tensors(given)])
        overhead = max(0, peak - activation)
        result = apart(output)
        del output
        saved, saving_peak = _allocations(stage, entry(), device)[1:]
        waiting, backward_peak, leaves = _allocations_backward(stage, entry(), given, device)
        seconds = [_timed(stage, entry(), given, device) for _ in range(_TIMES)]
    changed = [held for _, _, held in at_places(stage, changes)]
    row = StageCosts(
        name=stage.name,
        forward_time=median(forward for forward, _ in seconds),
        backward_time=median(backward for _, backward in seconds),
        activation_bytes=activation,
        saved_bytes=max(0, saved),
        gradient_bytes=_gradient_bytes(tensors(result)),
        forward_overhead_bytes=overhead,
        saving_overhead_bytes=max(0, saving_peak - saved),
        released_bytes=max(0, saved - waiting),
        backward_bytes=backward_peak,
        kept_bytes=max(0, left - made) + (2 * distinct_bytes(tensors(given)) if copies else 0),
        buffer_bytes=sum(allocated_bytes(held) for held in changed),
        random=draws,
    )
    return _MeasuredStage(row, seconds, changes, leaves, result)


def _gradient_bytes(values: Sequence[torch.Tensor]) -> int:
    wanting = {id(tensor): tensor for tensor in values if tensor.requires_grad}
    return sum(tensor.numel() * tensor.element_size() for tensor in wanting.values())


def _allocations(
    stage: Stage, given: Any, device: torch.device, hooks: AbstractContextManager[Any] | None = None
) -> tuple[Any, int, int]:
    """Runs a stage forward: its output, the bytes that it leaves allocated, and the most bytes while it runs."""
    torch.clear_autocast_cache()

    def run() -> Any:
        with torch.enable_grad(), hooks or nullcontext():
            return stage(given)

    eager.wait_for_autograd(device)
    return eager.allocations(run, device)


def _allocations_backward(
    stage: Stage, entry: Any, given: Any, device: torch.device
) -> tuple[int, int, list[torch.Tensor]]:
    """Measures the backward pass of a stage.

    Returns the bytes that wait for it once nobody but the graph holds the output, the most bytes during it on top of
    those (gradients included), and the leaves that get a gradient. Gradients of parameters are dropped as soon as they
    are complete: a training step counts them elsewhere.
    """
    torch.clear_autocast_cache()

    def run() -> _Backward:
        with torch.enable_grad():
            return _Backward(stage(entry), given)

    eager.wait_for_autograd(device)
    backward, waiting, _ = eager.allocations(run, device)
    torch.clear_autocast_cache()
    return waiting, eager.allocations(backward, device)[2], backward.parameters


class _Backward:
    """The backward pass of a stage, on gradients that it makes itself; it runs once."""

    def __init__(self, output: Any, given: Any) -> None:
        outputs = [tensor for tensor in tensors(output) if tensor.requires_grad]
        self.inputs = [tensor for tensor in tensors(given) if tensor.requires_grad]
        self.parameters = [leaf for leaf in eager.leaves(outputs) if all(leaf is not t for t in self.inputs)]
        self.end: torch.Tensor | None = None
        if outputs and (self.inputs or self.parameters):
            with torch.enable_grad():
                # As in a chain, a node gives the gradients: autograd then frees each as soon as it has been read.
                self.end = torch.stack([_real_sum(tensor) for tensor in outputs]).sum()

    def __call__(self) -> None:
        if self.end is None:
            return
        with eager.hooks_aside(self.parameters):
            hooks = [leaf.register_hook(lambda found: found.new_zeros(()).expand_as(found)) for leaf in self.parameters]
            try:
                torch.autograd.grad(self.end, [*self.inputs, *self.parameters], allow_unused=True)
            finally:
                for hook in hooks:
                    hook.remove()


def _real_sum(tensor: torch.Tensor) -> torch.Tensor:
    own = tensor * 1
    return (own.real if own.is_complex() else own).float().sum()


def _timed(stage: Stage, entry: Any, given: Any, device: torch.device) -> tuple[float, float]:
    """Seconds of a forward pass that saves all, and of its backward pass."""
    wait = eager.synchronizer(device) or (lambda: None)
    torch.clear_autocast_cache()
    wait()
    began = perf_counter()
    with torch.enable_grad():
        output = stage(entry)
    wait()
    ran = perf_counter()
    backward = _Backward(output, given)
    del output
    wait()
    begins = perf_counter()
    backward()
    wait()
    return ran - began, perf_counter() - begins
