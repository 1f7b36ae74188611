"""Measured peaks of compiled steps, so that a budget holds for the allocator and not for a model of it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from ... import _native
from ..._memory.resident import resident
from ..._memory.tensors import tensors
from ..._torch_internals import compiler, eager

_TIMES = 3


@dataclass
class Account:
    """The bytes that measured steps took, some of them by the number of the graph."""

    #: Most bytes at once.
    peak: int = 0
    #: Most bytes while a graph ran, on top of those when its forward pass began.
    inside: dict[int, int] = field(default_factory=dict)
    #: Most bytes after a graph's forward pass and before the next pass, on top of those when it was over.
    between: dict[int, int] = field(default_factory=dict)
    #: Most bytes after a graph's backward pass and before the next pass, on top of those when it was over.
    after: dict[int, int] = field(default_factory=dict)
    _begun: dict[int, int] = field(default_factory=dict)

    def add(self, base: int, segments: list[eager.Segment]) -> None:
        """Takes in a measured part of a step, which began with ``base`` bytes."""
        for segment in segments:
            kind, _, name = segment.name.partition(" ")
            graph, level, peak = int(name), base + segment.level, base + segment.peak
            self.peak = max(self.peak, peak)
            if kind == _FORWARD:
                self._begun[graph] = level
            if kind in (_FORWARD, _BACKWARD):
                if graph in self._begun:
                    self.inside[graph] = max(self.inside.get(graph, 0), peak - self._begun[graph])
            else:
                around = self.between if kind == _BETWEEN else self.after
                around[graph] = max(around.get(graph, 0), peak - level)


_FORWARD, _BETWEEN, _BACKWARD, _AFTER = "forward", "between", "backward", "after"

#: Bytes that graphs keep for backward passes, by storage. Each forward pass has an entry: its graph, and a mark.
_Held: TypeAlias = dict[tuple[int, object], dict[int, int]]


class Watch:
    """Measures the first steps after each planning: graphs, and what the program does around them.

    Torch has one profiler on the CPU. While the program uses it, nothing is measured.
    """

    def __init__(self, budget: int, device: torch.device, too_much: Callable[[Account], None]) -> None:
        self._budget, self._device, self._too_much = budget, device, too_much
        self._left = _TIMES
        self._held: _Held = {}
        self._settled = False
        self._step: _Step | None = None
        self.account = Account()

    def resident(self) -> int:
        """Bytes on the device now: those that Python sees, and those that graphs keep for their backward passes."""
        gc.collect()
        return resident(self._device, self._held.values())

    def between_passes(self) -> set[int]:
        """Graphs that keep tensors for a backward pass that is still to come."""
        return {number for number, _ in self._held}

    def renewed(self) -> Watch:
        """A watch that measures anew what comes after this one, which :meth:`retire` ends."""
        self.retire()
        watch = Watch(self._budget, self._device, self._too_much)
        watch._held = self._held
        return watch

    def pause(self) -> None:
        """Ends the measurement under way; the next graph that runs begins one."""
        step, self._step = self._step, None
        if step is not None:
            self.account.add(step.base, step.count.stop())

    def retire(self) -> None:
        """Stops measuring, and stops complaining about the graphs that it watches."""
        self.pause()
        self._settled, self._left = True, 0

    def graph(self, run: Callable[..., Any], number: int) -> Callable[..., Any]:
        """The compiled graph, wrapped so that its runs are measured."""

        def watched(*inputs: Any) -> Any:
            if not torch.is_grad_enabled():
                return run(*inputs)
            self._forward(number)
            try:
                result = run(*inputs)
            finally:
                self._mark(_BETWEEN, number)
            self._keep(result, number)
            return result

        return watched

    def _forward(self, number: int) -> None:
        """Marks that a forward pass begins. A step ends here if its backward pass has begun, or did not come."""
        if self._step is not None and (self._step.backward or number in self._step.seen):
            self._over()
        if self._step is None and self._left:
            base = self.resident()
            eager.prepare_backward()
            count = eager.Allocations.start(self._device)
            self._step = None if count is None else _Step(base, count)
        if self._step is not None:
            self._step.seen.add(number)
        self._mark(_FORWARD, number)

    def _mark(self, kind: str, number: int) -> None:
        if self._step is not None:
            self._step.count.mark(f"{kind} {number}")

    def _over(self) -> None:
        """Ends a step, and complains, once, if it took too much."""
        if self._step is not None:
            self._left = max(0, self._left - 1)
        self.pause()
        peak = self.account.peak
        if peak <= self._budget or self._settled:
            return
        self._settled, self._left = True, 0
        fmt = _native.format_bytes
        took = f"a compiled step took {fmt(peak)} where {fmt(self._budget)} are allowed"
        warnings.warn(f"{took}: planned anew for the next one", stacklevel=3)
        self._too_much(self.account)

    def _keep(self, result: Any, number: int) -> None:
        """Counts the tensors that the graph keeps for its backward pass until that is over or can no longer come."""
        node = compiler.backward_node(tensors(result))
        if node is None:
            return
        fate = _Fate(self._held, number)
        self._held[fate.key] = compiler.saved_storages(node)
        node.metadata["remat"] = fate
        step = self._step
        if step is not None:
            node.register_prehook(lambda gradients: self._backward(step, number))
        node.register_hook(lambda *_gradients: fate.over())
        if step is not None:
            node.register_hook(lambda *_gradients: self._mark(_AFTER, number))

    def _backward(self, step: _Step, number: int) -> None:
        """Marks that a backward pass begins; the step is over when autograd is."""
        if self._step is not step:
            return
        if not step.backward:
            step.backward = True
            eager.after_backward(lambda: self._over() if self._step is step else None)
        self._mark(_BACKWARD, number)


@dataclass(eq=False)
class _Step:
    """A step that is measured: bytes at its beginning, and what counts from there."""

    base: int
    count: eager.Allocations
    #: Graphs that ran.
    seen: set[int] = field(default_factory=set)
    #: Whether a backward pass has begun.
    backward: bool = False


class _Fate:
    """An entry in a dict that is removed when it is over, or when the node that holds it is freed."""

    def __init__(self, held: _Held, number: int) -> None:
        self.key = number, object()
        self._held = held

    def over(self) -> None:
        self._held.pop(self.key, None)

    def __del__(self) -> None:
        self.over()
