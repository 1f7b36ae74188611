"""Runs a plan: its forward part at once, its backward part as autograd reaches the stages.

Autograd's graph is that of a plain run: hooks, accumulation, DDP and ``torch.autograd.grad`` see no difference. Where
the plan saves nothing, an empty :class:`_Slot` replaces each saved tensor. When the gradient of a stage's output is
complete, the run performs the plan's operations up to that stage's backward pass. A stage that runs again and saves all
fills its slots, and autograd frees them one by one as it goes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from .._errors import RematError
from .._memory.tensors import tensors
from .._torch_internals import eager
from .sequence import Operation, read_later, run_again
from .stage.saved import drop, never_unpacked
from .stage.stage import Stage, StageInUse, apart, copied
from .stage.state import (
    Autocast,
    Buffer,
    Place,
    Random,
    at_places,
    in_place_of_buffers,
    parameter_versions,
    random_again,
    random_state,
    snapshot,
)


@dataclass(frozen=True)
class Script:
    """A plan ready to run, with its stages."""

    stages: tuple[Stage, ...]
    operations: tuple[Operation, ...]
    #: By stage, the buffers that its forward pass changes.
    changing: tuple[frozenset[Place], ...]
    #: Whether the first stage writes to its input.
    writes_input: bool
    device: torch.device

    def run(self, value: Any) -> Any:
        """Runs the forward part of the plan and returns the output; its backward pass runs the rest."""
        return _Execution(self, value).forward(value)


class _Slot:
    """Takes the place of a saved tensor; autograd holds it exactly as long as it would hold the tensor."""

    __slots__ = ("__weakref__", "form", "run", "stage", "tensor")

    def __init__(self, run: _Execution, stage: int, form: tuple[torch.Size, torch.dtype]) -> None:
        self.run, self.stage, self.form = run, stage, form
        self.tensor: torch.Tensor | None = None


def _recall(slot: _Slot) -> torch.Tensor:
    if slot.tensor is None:
        slot.run.reach(slot.stage)
    if slot.tensor is None:
        raise _unlike(slot.run.stages[slot.stage - 1])
    return slot.tensor


@dataclass
class _Before:
    """The state that a stage found when it first ran."""

    random: Random
    buffers: list[Buffer]
    parameters: list[tuple[torch.Tensor, int]]
    drew: bool = False


class _Execution:
    """One forward pass and the backward passes of its output. Slots hold it, and it holds slots weakly."""

    def __init__(self, script: Script, value: Any) -> None:
        self.script = script
        self.again = run_again(script.operations)
        self.stages = tuple(map(StageInUse, script.stages)) if self.again else script.stages
        self.later = read_later(script.operations)
        self.autocast = Autocast.now(script.device)
        self.source = apart(copied(value) if script.writes_input else value)
        self.versions = [tensor._version for tensor in tensors(self.source)]
        self.before: dict[int, _Before] = {}
        self.slots: dict[int, list[weakref.ref[_Slot]]] = {}
        self.values: dict[int, Any] = {}
        # Operations performed so far, and the stage whose backward pass is under way.
        self.at = len(script.stages) + 1
        self.current = 0

    def forward(self, value: Any) -> Any:
        """Runs the forward part of the plan, in autograd's own graph."""
        hooked: set[int] = set()
        for position, stage in enumerate(self.stages):
            index = position + 1
            saving = self.script.operations[position][0] == "Fall"
            self._note_before(index)
            with nullcontext() if saving else saved_tensors_hooks(self._forgetting(index), _recall):
                value = stage(value)
            self._note_after(index)
            if index in self.later[position]:
                self.values[index] = apart(value)
            for number in [number for number in self.values if number not in self.later[position]]:
                del self.values[number]
            if index in self.again:
                self._watch(index, value, hooked)
        return value

    def _note_before(self, index: int) -> None:
        if self.again:  # a second backward pass may run every stage again
            stage = self.stages[index - 1]
            kept = snapshot(at_places(stage, self.script.changing[index - 1]))
            self.before[index] = _Before(random_state(self.script.device), kept, parameter_versions(stage))

    def _note_after(self, index: int) -> None:
        if self.again:
            self.before[index].drew = self.before[index].random != random_state(self.script.device)

    def _watch(self, index: int, value: Any, hooked: set[int]) -> None:
        """Has the plan go on to a stage once the gradients of the stage's output are complete."""
        itself = weakref.ref(self)

        def reach(_: torch.Tensor) -> None:
            run = itself()
            if run is not None:
                run.reach(index)

        for tensor in tensors(value):
            if tensor.requires_grad and id(tensor) not in hooked:
                hooked.add(id(tensor))
                tensor.register_hook(reach)

    def _forgetting(self, index: int) -> Callable[[torch.Tensor], _Slot]:
        slots = self.slots[index] = []
        stage = self.stages[index - 1]
        buffers = (held for _, _, held in stage.buffers())
        lasting = {eager.storage_id(tensor) for tensor in (*stage.parameters(), *buffers)}

        def forget(tensor: torch.Tensor) -> _Slot:
            slot = _Slot(self, index, (tensor.shape, tensor.dtype))
            slots.append(weakref.ref(slot))
            if eager.storage_id(tensor) in lasting:
                slot.tensor = tensor
            return slot

        return forget

    def reach(self, index: int) -> None:
        """Performs the plan up to the backward pass of a stage."""
        if index == self.current:
            return
        operations = self.script.operations
        if ("B", index) not in operations[self.at :]:
            self._restart()
        while operations[self.at] != ("B", index):
            self._perform(self.at, operations[self.at])
            self.at += 1
        self._leave(self.current)
        self.at += 1
        self.current = index
        self._drop(self.at - 1)

    def _restart(self) -> None:
        """Begins the plan anew, for a second backward pass through a retained graph."""
        self._leave(self.current)
        self.values.clear()
        self.at = self.current = 0

    def _leave(self, index: int) -> None:
        """Ends the backward pass of a stage: tensors that a retained graph still holds of it can be computed again."""
        for slot in self._alive(index):
            if slot.stage in self.again and slot.tensor is not None and not self._lasting(slot):
                slot.tensor = None

    def _lasting(self, slot: _Slot) -> bool:
        assert slot.tensor is not None
        stage = self.stages[slot.stage - 1]
        owned = (*stage.parameters(), *(held for _, _, held in stage.buffers()))
        return eager.storage_id(slot.tensor) in {eager.storage_id(tensor) for tensor in owned}

    def _alive(self, index: int) -> Iterator[_Slot]:
        return (slot for slot in (weak() for weak in self.slots.get(index, ())) if slot is not None)

    def _perform(self, position: int, operation: Operation) -> None:
        kind, index = operation
        if index > len(self.stages):
            return
        if kind == "B":
            self._leave(index)  # no gradient reached this stage
        else:
            value = self._run_again(index, kind)
            if index in self.later[position]:
                self.values[index] = value
        self._drop(position)

    def _drop(self, position: int) -> None:
        for number in [number for number in self.values if number not in self.later[position]]:
            del self.values[number]

    def _run_again(self, index: int, kind: str) -> Any:
        """Runs a stage from the state that it first found; ``Fall`` fills its slots."""
        stage, before = self.stages[index - 1], self.before.get(index)
        if before is not None:
            self._check_unchanged(index, before)
        with ExitStack() as stack:
            stack.enter_context(torch.enable_grad())
            given = self._input(index)
            stack.enter_context(self.autocast.again())
            if before is not None:
                stack.enter_context(in_place_of_buffers(before.buffers))
                if before.drew:
                    stack.enter_context(random_again(self.script.device, before.random))
            filler = _Filler(self.slots.get(index, [])) if kind == "Fall" else None
            stack.enter_context(saved_tensors_hooks(filler or drop, never_unpacked))
            value = apart(stage(given))
        if filler is not None and not filler.complete():
            raise _unlike(stage)
        return value

    def _input(self, index: int) -> Any:
        given = self.source if index == 1 else self.values[index - 1]
        if index == 1 and [tensor._version for tensor in tensors(given)] != self.versions:
            raise RematError("the input of the chain was written to between forward and backward pass")
        return copied(given) if index == 1 and self.script.writes_input else given

    def _check_unchanged(self, index: int, before: _Before) -> None:
        if any(parameter._version != version for parameter, version in before.parameters):
            name = self.stages[index - 1].name
            raise RematError(f"{name}: its parameters were written to between forward and backward pass")


class _Filler:
    """Puts the tensors that a stage saves into the slots of its first run, in the same order."""

    def __init__(self, slots: list[weakref.ref[_Slot]]) -> None:
        self.slots, self.seen, self.same = slots, 0, True

    def __call__(self, tensor: torch.Tensor) -> None:
        slot = self.slots[self.seen]() if self.seen < len(self.slots) else None
        self.seen += 1
        if slot is None:
            return
        self.same = self.same and slot.form == (tensor.shape, tensor.dtype)
        if slot.tensor is None:
            slot.tensor = tensor

    def complete(self) -> bool:
        """Whether the stage saved the same forms as in its first run; true where autograd kept all tensors itself."""
        return not self.slots or (self.same and self.seen == len(self.slots))


def _unlike(stage: Stage) -> RematError:
    return RematError(f"{stage.name} saved other tensors when it was run again: it depends on more than its input")
