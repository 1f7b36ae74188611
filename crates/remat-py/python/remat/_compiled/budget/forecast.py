"""Forecasts of the memory that a compiled graph will take, before it first runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..._errors import reraise_interrupt
from ..._torch_internals import compiled, compiler, eager


@dataclass
class Workspaces:
    """Workspace of ops: measured on zeros, once for each signature."""

    device: torch.device
    _known: dict[str, int] = field(default_factory=dict)

    def peak(self, taken: compiled.Taken) -> int:
        """Most bytes of a pass at once, workspace included."""
        # An estimate at first sight may be too small: each op is measured.
        return max([taken.peak, *(call.there + self.of_call(call) for call in taken.calls)])

    def of_node(self, node: fx.Node) -> int:
        """The workspace of an op in a traced graph, for tensors that are laid out as in the trace."""
        with compiled.outside_of_compilation():
            return self.of_call(compiled.call_of(node))

    def of_call(self, call: compiled.Call) -> int:
        """The workspace of an op."""
        key = compiled.signature(call)
        if key not in self._known:
            measured = compiled.on_zeros(call, eager.measured_call)
            self._known[key] = _estimate(call) if measured is None else measured
        return self._known[key]


def _estimate(call: compiled.Call) -> int:
    return eager.predict(call.op, call.args, call.kwargs)[1]


@dataclass
class Forecast:
    """The forecast of one graph, from the code that Inductor generated for its two passes."""

    workspaces: Workspaces
    #: The reason why there is no forecast: the code cannot run without memory (data-dependent sizes, code that is not
    #: Python).
    unknown: Exception | None = None
    _forward: compiled.Taken | None = None
    _results: list[str | None] = field(default_factory=list)
    _peak: int = 0

    def seen(self, generated: compiler.Generated) -> None:
        """Takes in the code of a pass."""
        try:
            with compiled.outside_of_compilation():
                self._look(generated)
        except Exception as error:  # whatever an op raises
            reraise_interrupt(error)
            self.unknown = error

    def seen_scheduled(
        self, forward: compiler.Generated, backward: compiler.Generated, code: compiled.Scheduled
    ) -> None:
        """Takes in the code of both passes by a plan, made for these two."""
        kept = len(code.slots) - code.extra
        names = [name for name, _ in code.slots]
        results = [*forward.results[: len(forward.results) - kept], *names]
        with compiled.outside_of_compilation():
            handed = [compiled.tensor_of(value) for _, value in code.slots]
            self._look_forward(code.forward, forward.inputs, results)
            self._look_backward(code.backward, [*handed, *backward.inputs[kept:]])

    def _look(self, generated: compiler.Generated) -> None:
        if not generated.backward:
            self._look_forward(generated.source, generated.inputs, generated.results)
        elif self._forward is not None:
            self._look_backward(generated.source, generated.inputs)

    def _look_forward(self, source: str, inputs: list[Any], results: list[str | None]) -> None:
        self._forward, self._results = compiled.dry_run(source, inputs, lambda name: False), results
        self._peak = max(self._peak, self.workspaces.peak(self._forward))

    def _look_backward(self, source: str, inputs: list[Any]) -> None:
        assert self._forward is not None
        given = {self._results[number] for number in self._forward.handed_through}
        taken = compiled.dry_run(source, inputs, lambda name: name not in given)
        # Results of the forward pass that this one is not handed belong to the caller, who may still hold them.
        others = self._forward.after - (taken.before - taken.gradients)
        self._peak = max(self._peak, others + self.workspaces.peak(taken))

    def peak(self) -> int | None:
        """Most bytes on top of those resident when a step begins; ``None`` where there is no forecast."""
        return None if self.unknown is not None or self._forward is None else self._peak
