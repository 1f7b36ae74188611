"""Measured peaks of compiled steps, so that a budget holds for the allocator and not for a model of it."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ... import _native
from ..._memory.resident import resident
from ..._memory.tensors import tensors
from ..._torch_internals import compiler, eager

_TIMES = 3


class Watch:
    """Measures the first runs of graphs after each planning, forward and backward pass by themselves.

    Torch has one profiler on the CPU. While the program uses it, nothing is measured.
    """

    def __init__(self, budget: int, device: torch.device, too_much: Callable[[int], None]) -> None:
        self._budget, self._device, self._too_much = budget, device, too_much
        self._left = 2 * _TIMES
        self._held: dict[object, dict[int, int]] = {}
        self._settled = False
        #: Most bytes seen.
        self.peak = 0

    def resident(self) -> int:
        """Bytes on the device now: those that Python sees, and those that graphs keep for their backward passes."""
        gc.collect()
        return resident(self._device, self._held.values())

    def retire(self) -> None:
        """Stops measuring, and stops complaining about the graphs that it watches."""
        self._settled, self._left = True, 0

    def graph(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled graph, wrapped so that its runs are measured."""

        def watched(*inputs: Any) -> Any:
            if not torch.is_grad_enabled():
                return run(*inputs)
            self._settle()
            measurement = self._begin(0)
            try:
                result = run(*inputs)
            finally:
                self._end(measurement)
            self._keep(result, inputs)
            return result

        return watched

    def _begin(self, hidden: int) -> _Measurement | None:
        if not self._left:
            return None
        base = self.resident() + hidden
        probe = eager.Allocations.start(self._device)
        return None if probe is None else _Measurement(base, probe)

    def _end(self, measurement: _Measurement | None) -> None:
        if measurement is None:
            return
        self._left = max(0, self._left - 1)
        self.peak = max(self.peak, measurement.base + measurement.probe.stop())

    def _settle(self) -> None:
        """Complains, once, if a step took too much; called when the step is over or its backward pass cannot come."""
        if self.peak <= self._budget or self._settled:
            return
        self._settled, self._left = True, 0
        fmt = _native.format_bytes
        took = f"a compiled step took {fmt(self.peak)} where {fmt(self._budget)} are allowed"
        warnings.warn(f"{took}: planned anew for the next one", stacklevel=3)
        self._too_much(self.peak)

    def _keep(self, result: Any, inputs: tuple[Any, ...]) -> None:
        """Counts the tensors that the graph keeps for its backward pass until that is over or can no longer come."""
        node = compiler.backward_node(tensors(result))
        if node is None:
            return
        fate = _Fate(self._held)
        self._held[fate.key] = compiler.saved_storages(node)
        node.metadata["remat"] = fate
        if self._left:
            running: list[_Measurement | None] = []
            node.register_prehook(lambda gradients: running.append(self._begin(_bytes(gradients))))
            node.register_hook(lambda *_gradients: self._end(running.pop()))
        node.register_hook(lambda *_gradients: fate.over())
        node.register_hook(lambda *_gradients: self._settle())


@dataclass(frozen=True)
class _Measurement:
    """A measurement under way: bytes at its start, and the probe that counts from there."""

    base: int
    probe: eager.Allocations


def _bytes(gradients: tuple[torch.Tensor | None, ...]) -> int:
    """Bytes of gradients that only autograd holds."""
    return sum(gradient.numel() * gradient.element_size() for gradient in gradients if gradient is not None)


class _Fate:
    """An entry in a dict that is removed when it is over, or when the node that holds it is freed."""

    def __init__(self, held: dict[object, dict[int, int]]) -> None:
        self.key = object()
        self._held = held

    def over(self) -> None:
        self._held.pop(self.key, None)

    def __del__(self) -> None:
        self.over()
