"""A plan for a chain: the planners make it, ``print`` says it in words, a file keeps it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .. import _native
from .._errors import BudgetError, RematError
from .._memory.tensors import tensors
from .sequence import Operation, in_words, peak_of
from .stage.costs import SCALARS, ChainCosts
from .stage.probe import Shape
from .stage.stage import Stage
from .stage.state import Place

_FORMAT = 2
# Plans that the planner is asked for, at most, to find the fastest one that fits.
_TRIES = 9


@dataclass(frozen=True)
class ChainPlan:
    """A sequence of forward and backward operations, with the measurements and the budget that it was made for."""

    operations: tuple[Operation, ...]
    #: The costs that were measured.
    measured: ChainCosts
    #: Whether gradients of parameters exist from the start; otherwise the backward pass makes them.
    gradients_there: bool
    strategy: str
    #: Bytes allowed on the device.
    budget: int
    #: Bytes of the budget that are taken whatever the chain does: parameters and all else that is resident.
    base: int
    #: By stage, the buffers that its forward pass changes.
    changing: tuple[frozenset[Place], ...] = field(repr=False)
    #: Texts that identify the input, then each stage, for which the plan was made.
    made_for: tuple[str, ...] = field(repr=False)

    @property
    def costs(self) -> ChainCosts:
        """The costs that the plan was made from."""
        return self.measured.with_gradients() if self.gradients_there else self.measured

    @property
    def peak(self) -> int:
        """Most bytes on the device at any moment, by the measured costs; never more than the budget."""
        return self.base + chain_bytes(self.operations, self.costs)

    @property
    def makespan(self) -> float:
        """Seconds of all operations, by the measured costs."""
        return sum(_seconds(operation, self.costs) for operation in self.operations)

    @property
    def overhead(self) -> float:
        """The makespan over the time of running every stage once."""
        once = sum(stage.forward_time + stage.backward_time for stage in self.costs.stages)
        return self.makespan / once if once else 1.0

    def __str__(self) -> str:
        size = _native.format_bytes
        head = (
            f"{self.strategy}: {len(self.costs.stages) - 1} stages within {size(self.budget)}: "
            f"peak {size(self.peak)}, of which "
            f"{size(self.base)} is there anyway; {self.overhead:.3f} of the time without a limit"
        )
        return f"{head}\n{in_words(self.operations, [stage.name for stage in self.costs.stages])}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan to a file, as JSON."""
        data = {
            "remat_chain_plan": _FORMAT,
            "strategy": self.strategy,
            "budget": self.budget,
            "sequence": [list(operation) for operation in self.operations],
            "chain": self.measured.to_json(),
            "changing": [sorted(map(list, places)) for places in self.changing],
            "made_for": list(self.made_for),
        }
        Path(path).write_text(json.dumps(data, indent=1) + "\n")


def load_plan(
    path: str | os.PathLike[str], made_for: tuple[str, ...], budget: int | None, base: int, gradients_there: bool
) -> ChainPlan:
    """Reads a plan and checks it against the module, the sample and the budget.

    Raises ``ValueError`` for a file that is no valid plan, ``RematError`` for a plan of another module or sample,
    :class:`BudgetError` where the plan takes more than the budget.
    """
    try:
        data = json.loads(Path(path).read_text())
        if not isinstance(data, dict) or "remat_chain_plan" not in data:
            raise ValueError('expected an object with "remat_chain_plan", as Checkpointable(...).plan.save writes it')
        if data["remat_chain_plan"] != _FORMAT:
            raise ValueError(f"plan format {data['remat_chain_plan']}: this version reads format {_FORMAT}")
        plan = ChainPlan(
            _operations_of(data["sequence"]),
            ChainCosts.from_json(data["chain"]),
            gradients_there,
            str(data["strategy"]),
            int(data["budget"]) if budget is None else budget,
            base,
            tuple(frozenset((int(m), str(name)) for m, name in places) for places in data["changing"]),
            tuple(map(str, data["made_for"])),
        )
        peak = plan.peak
    except (KeyError, TypeError, UnicodeDecodeError, ValueError) as error:
        raise ValueError(f"{os.fspath(path)}: no valid plan: {error}") from None
    for was, now in zip(plan.made_for, made_for, strict=False):
        if was != now:
            raise RematError(f"{os.fspath(path)} was made for {_shown(was)} and this is {_shown(now)}: make a new plan")
    if len(plan.made_for) != len(made_for) or len(plan.changing) != len(plan.costs.stages) - 1:
        raise RematError(
            f"{os.fspath(path)} was made for {len(plan.made_for) - 1} stages, these are {len(made_for) - 1}"
        )
    if peak > plan.budget:
        raise BudgetError("the saved plan", peak, peak, plan.budget, "the device")
    return plan


def make_plan(
    costs: ChainCosts, budget: int, base: int, strategy: str, slots: str, device: str
) -> tuple[Operation, ...]:
    """The fastest sequence of the planner that stays within the budget.

    Planners drop activations no earlier than definition 3.4 says, and so overestimate the peak of a run. They are
    therefore also asked for plans of somewhat more bytes, and of these the plans that fit count.
    """
    room = budget - base
    plans: list[tuple[Operation, ...]] = []
    least: int | None = None
    low, high, more = 0, room + _slack(costs), room
    for _ in range(_TRIES):
        found = _asked(costs, more, strategy, slots)
        if isinstance(found, int):
            if least is not None or found > high:
                break
            low, more = more, found
            continue
        needed = chain_bytes(found, costs)
        least = needed if least is None else min(least, needed)
        if needed <= room:
            plans.append(found)
            low = more
        else:
            high = more
        if high - low <= room // 256:
            break
        more = (low + high + 1) // 2
    if not plans:
        needed = base + _smallest(costs, strategy, slots, least)
        # When the smallest budget is tried, the resident bytes may differ by those of scalars.
        raise BudgetError("the chain", needed, needed + SCALARS, budget, device)
    return min(plans, key=lambda plan: sum(_seconds(operation, costs) for operation in plan))


def _smallest(costs: ChainCosts, strategy: str, slots: str, known: int | None) -> int:
    """The fewest bytes that any known plan of this strategy needs."""
    found = _asked(costs, 0, strategy, slots)
    if isinstance(found, int):
        again = _asked(costs, found, strategy, slots)
        found = found if isinstance(again, int) else chain_bytes(again, costs)
    else:
        found = chain_bytes(found, costs)
    return found if known is None else min(found, known)


def chain_bytes(operations: Sequence[Operation], costs: ChainCosts) -> int:
    """Most bytes that the chain takes on top of those that are there anyway."""
    return max(costs.fixed_bytes + peak_of(operations, costs), costs.before_bytes)


def _slack(costs: ChainCosts) -> int:
    return max(stage.saved_bytes + stage.forward_overhead_bytes for stage in costs.stages)


def _seconds(operation: Operation, costs: ChainCosts) -> float:
    stage = costs.stages[operation[1] - 1]
    return stage.backward_time if operation[0] == "B" else stage.forward_time


def _asked(costs: ChainCosts, room: int, strategy: str, slots: str) -> tuple[Operation, ...] | int:
    """A planner's sequence within so many bytes; where there is none, the fewest bytes that the planner needs."""
    given = room - costs.fixed_bytes
    try:
        text = _native.plan_chain(json.dumps(costs.for_planner()), max(0, given), strategy, slots)
    except ValueError as error:
        if len(error.args) != 2:
            raise
        return int(error.args[1]) + costs.fixed_bytes
    return _operations_of(json.loads(text)["sequence"])


def _operations_of(pairs: Sequence[Sequence[Any]]) -> tuple[Operation, ...]:
    """The operations of a plan that was read from JSON; ``ValueError`` where they are none."""
    try:
        return tuple((str(kind), int(index)) for kind, index in pairs)
    except (TypeError, ValueError):
        raise ValueError("the sequence of a plan is a list of pairs such as ['Fck', 1]") from None


def made_for(shape: Shape, sample: Any) -> tuple[str, ...]:
    """Texts of all that a plan depends on: for the input and for each stage, a name and a digest."""
    values = [f"{t.dtype} {tuple(t.shape)} {t.requires_grad} {t.device}" for t in tensors(sample)]
    kinds = dict.fromkeys(("cpu", shape.device.type))
    autocast = [f"{torch.is_autocast_enabled(kind)} {torch.get_autocast_dtype(kind)}" for kind in kinds]
    return (_text("input", [*values, *autocast]), *(_stage_text(stage) for stage in (*shape.before, *shape.stages)))


def _stage_text(stage: Stage) -> str:
    facts = []
    for function in stage.functions:
        facts.append(repr(function) if isinstance(function, torch.nn.Module) else getattr(function, "__qualname__", ""))
        facts.append(str(getattr(function, "code", "")) if isinstance(function, torch.fx.GraphModule) else "")
    facts += [f"{module.training}" for module in stage.modules()]
    facts += [f"{p.dtype} {tuple(p.shape)} {p.requires_grad}" for p in stage.parameters()]
    facts += [f"{name} {held.dtype} {tuple(held.shape)}" for _, name, held in stage.buffers()]
    return _text(stage.name, facts)


def _text(name: str, facts: list[str]) -> str:
    return f"{name} {hashlib.sha256(chr(10).join(facts).encode()).hexdigest()[:16]}"


def _shown(text: str) -> str:
    name, _, digest = text.rpartition(" ")
    return f"{name!r} ({digest})"
