"""How much memory a compiled graph will take, before it first runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from . import _compile_seam as seam
from . import _torch_seam


@dataclass
class Workspaces:
    """What ops take for themselves while they run, measured once a shape on zeros, where it may matter."""

    device: torch.device
    _known: dict[str, int] = field(default_factory=dict)

    def peak(self, taken: seam.Taken) -> int:
        """Most bytes of a pass at once, workspace included."""
        peak = taken.peak
        for most, call in sorted(((self._most(call), call) for call in taken.calls), key=lambda item: -item[0]):
            if most <= peak:
                break
            peak = max(peak, call.there + self._of(call))
        return peak

    def of_node(self, node: fx.Node) -> int:
        """Of an op of a graph that was traced, as if all tensors were laid out as they were there."""
        with seam.outside_of_compilation():
            return self._of(seam.call_of(node))

    def _most(self, call: seam.Call) -> int:
        """Bytes that are not exceeded while it runs; only on the CPU that is known without a measurement."""
        exact = self.device.type != "cpu" or seam.signature(call) in self._known
        return call.there + (self._of(call) if exact else _estimate(call))

    def _of(self, call: seam.Call) -> int:
        key = seam.signature(call)
        if key not in self._known:
            measured = seam.on_zeros(call, _torch_seam.measured_call)
            self._known[key] = _estimate(call) if measured is None else measured
        return self._known[key]


def _estimate(call: seam.Call) -> int:
    return _torch_seam.predict(call.op, call.args, call.kwargs)[1]


@dataclass
class Forecast:
    """Of one graph, from the code that was made of its two passes."""

    workspaces: Workspaces
    _forward: tuple[seam.Taken, int, list[str | None]] | None = None
    _backward: int | None = None

    def seen(self, generated: seam.Generated) -> None:
        """The code of a pass."""
        with seam.outside_of_compilation():
            if not generated.backward:
                taken = seam.dry_run(generated.source, generated.inputs, lambda name: False)
                self._forward = taken, self.workspaces.peak(taken), generated.results
            elif self._forward is not None:
                self._backward = self._of_backward(generated, *self._forward)

    def peak(self) -> int | None:
        """Most bytes beside what is resident when a step begins; ``None`` if there is nothing to go by."""
        if self._forward is None:
            return None
        _, forward, _ = self._forward
        return max(forward, self._backward or 0)

    def _of_backward(self, generated: seam.Generated, forward: seam.Taken, _peak: int, results: list[Any]) -> int:
        given = {results[number] for number in forward.handed_through}
        taken = seam.dry_run(generated.source, generated.inputs, lambda name: name not in given)
        # What the forward pass left and this one is not handed belongs to the caller, who may hold it still.
        return forward.after - (taken.before - taken.gradients) + self.workspaces.peak(taken)
