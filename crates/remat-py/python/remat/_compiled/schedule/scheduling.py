"""Plans of the step planner for a compiled graph: which kernels run again, and when, so that the graph fits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ... import _native
from ..._torch_internals import compiled, compiler
from ..._torch_internals.compiled import KernelOp, Scheduled
from ..budget.forecast import Around, Forecast, Workspaces
from .recording import Recording

#: Plans that are made for one budget, at most: the planner's account and the forecast of the code differ a little.
_TRIES = 6
#: A plan that uses this share of the room ends the search.
_FULL = 0.98
#: Rounds of the planner's search in which a plan gets cheaper.
_ROUNDS = 200


@dataclass(frozen=True)
class Plan:
    """The code of both passes by a plan."""

    code: Scheduled
    #: Bytes by the forecast of that code.
    foreseen_bytes: int
    #: Estimated nanoseconds of the kernels that run again.
    recompute_ns: int
    #: Calls of kernels and of other ops that run again.
    runs_again: int
    #: The planner's own account.
    peak_bytes: int
    reruns: list[tuple[int, int]] = field(repr=False)


class Schedule:
    """The step of a compiled graph, and plans for it."""

    def __init__(
        self, forward: compiler.Generated, backward: compiler.Generated, workspaces: Workspaces, around: Around
    ) -> None:
        """Raises ``NotTakenApart`` for code that cannot be planned."""
        self._workspaces, self._around = workspaces, around
        code = compiled.KernelCode()
        with compiled.outside_of_compilation():
            first, results = code.take(forward.source, forward.inputs, False, lambda name: None)
            returned = {name: value for name, value in zip(forward.results, results, strict=True) if name is not None}
            second, _ = code.take(backward.source, backward.inputs, True, _tensor_in(returned))
            slots = [name for name in second.inputs if isinstance(returned.get(name), torch.Tensor)]
            self._generated = forward, backward
            after = self._after()
            donates = compiler.donates_buffers()
            held = around.between, after
            self._step = Recording(first, second, slots, donates, _nanoseconds, self._workspace, held)
        self._events = json.dumps(self._step.events)
        self._smallest: Plan | None = None
        try:
            self.smallest()
        except ValueError as error:
            raise compiled.NotTakenApart(str(error)) from error

    def smallest(self) -> Plan:
        """The plan of the fewest bytes that the planner finds. It does not depend on any budget."""
        if self._smallest is None:
            self._smallest = self._plan(None)
        return self._smallest

    def within(self, room: int) -> Plan | None:
        """The fastest plan found whose code fits into so many bytes; ``None`` if the smallest does not."""
        best = self.smallest()
        if best.foreseen_bytes > room:
            return None
        budget = room - (best.foreseen_bytes - best.peak_bytes)
        for _ in range(_TRIES):
            if budget < self.smallest().peak_bytes:
                break
            found = self._plan(budget)
            if found.foreseen_bytes <= room and found.recompute_ns < best.recompute_ns:
                best = found
            if _FULL * room <= found.foreseen_bytes <= room or (not found.runs_again and found.foreseen_bytes <= room):
                break
            budget += room - found.foreseen_bytes
        return best

    def _plan(self, budget: int | None) -> Plan:
        known = self._smallest.reruns if self._smallest is not None else []
        text = _native.plan_step(self._events, budget=budget, known=known, rounds=_ROUNDS)
        answer: dict[str, Any] = json.loads(text)
        steps = answer["steps"]
        first, second = self._step.actions(steps)
        code = compiled.scheduled(self._step.forward, self._step.backward, self._step.slots, first, second)
        reruns = self._step.reruns(steps)
        return Plan(code, self._forecast(code), answer["recompute_ns"], len(reruns), answer["peak_bytes"], reruns)

    def _after(self) -> int:
        """Bytes that are taken once the backward pass is over."""
        forecast = Forecast(self._workspaces, self._around)
        for generated in self._generated:
            forecast.seen(generated)
        return forecast.after

    def _forecast(self, code: Scheduled) -> int:
        forecast = Forecast(self._workspaces, self._around)
        forward, backward = self._generated
        forecast.seen_scheduled(forward, backward, code)
        peak = forecast.peak()
        assert peak is not None
        return peak

    def _workspace(self, op: KernelOp) -> int:
        return max((self._workspaces.of_call(call) for call in op.calls), default=0)


def _tensor_in(returned: dict[str, Any]) -> Callable[[str], torch.Tensor | None]:
    def known(name: str) -> torch.Tensor | None:
        value = returned.get(name)
        return value if isinstance(value, torch.Tensor) else None

    return known


def _nanoseconds(op: KernelOp) -> int:
    moved = [*op.reads, *op.makes, *(new for _, new in op.writes)]
    return compiler.nanoseconds_of_calls(op.calls, op.result, sum(value.bytes for value in moved))
