"""The step of a compiled graph as the step planner reads it: kernels of the forward pass, then of the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..._torch_internals.compiled import Action, Free, KernelOp, Pass, Run, Value


@dataclass
class Recording:
    """Events of the recorded step, and what their numbers mean."""

    forward: Pass
    backward: Pass
    #: Results of the forward pass that the backward pass is handed, by the names of its inputs.
    slots: list[str]
    #: Whether torch has a backward pass write into saved values, and so refuses to run it twice.
    donates: bool
    cost: Callable[[KernelOp], int]
    workspace: Callable[[KernelOp], int]
    #: Bytes that are taken between the passes, and after them.
    held: tuple[int, int] = (0, 0)
    events: list[dict[str, Any]] = field(default_factory=list)
    #: By number of an op in plans: the op; ``None`` for what is given, and for the gradients between the passes.
    ops: list[KernelOp | None] = field(default_factory=list)
    #: By number of an op in plans, its event.
    event_of: list[int] = field(default_factory=list)
    storages: list[Value] = field(default_factory=list)
    #: Number of the op that stands for what happens between the passes.
    between: int = 0
    #: Old values of each op whose blocks its first run takes; other writes may go into copies.
    in_place: dict[int, frozenset[Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {seen.value for seen in self.forward.given.values()}
        given |= {new for op in self.forward.ops for _, new, _ in op.restores}
        for value in sorted(given, key=lambda value: value.number):
            # What the program holds anyway takes no room of the step's.
            self._add({"const": {"t": value.number, "b": 0}}, None)
            self.storages.append(value)
        for op in self.forward.ops:
            self._op(op)
        returned = self._returned()
        for value in returned:
            self.events.append({"pin": {"t": value.number}})
        self._between()
        # The backward pass drops a result of the forward pass that it is handed; others are the caller's.
        last = {value: at for at, op in enumerate(self.backward.ops) for value in op.reads}
        handed = {self.backward.given[slot].value for slot in self.slots}
        kept = {seen.value for _, seen in self.backward.results if seen is not None}
        kept |= set(returned) - handed
        # Autograd holds the gradients until the backward pass is over.
        kept |= {seen.value for name, seen in self.backward.given.items() if name not in self.slots}
        ending: dict[int, list[Value]] = {}
        for value in returned:
            if value not in kept:
                ending.setdefault(last.get(value, 0), []).append(value)
        for at, op in enumerate(self.backward.ops):
            self._op(op)
            for value in ending.get(at, []):
                self._release(value)
        self._add({"op": {"n": "(after)", "o": [], "w": self.held[1], "r": False}}, None)
        gone = {value for values in ending.values() for value in values}
        for value in self.storages:
            if value not in kept and value not in gone and value.given is None:
                self._release(value)

    @property
    def consumes_saved(self) -> bool:
        """Whether ops may take the blocks of values that the forward pass saved."""
        returned = set(self._returned())
        saved = [self.backward.given[slot].value for slot in self.slots]
        return self.donates and any(value.given is None and value not in returned for value in saved)

    def _returned(self) -> list[Value]:
        """Values that the forward pass returns to the program."""
        own = self.forward.results[: len(self.forward.results) - len(self.slots)]
        found = {seen.value: None for _, seen in own if seen is not None and seen.value.given is None}
        return list(found)

    def _between(self) -> None:
        """The gradients that the backward pass is given."""
        gradients = {seen.value: None for name, seen in self.backward.given.items() if name not in self.slots}
        self.between = len(self.ops)
        outputs = [{"t": value.number, "b": value.bytes} for value in gradients]
        self._add({"op": {"n": "(backward)", "o": outputs, "w": self.held[0], "r": False}}, None)
        self.storages += gradients

    def _op(self, op: KernelOp) -> None:
        # The forward pass writes into a block that it is free to take, or into a copy where the old value stays.
        takes = op.fixed or op.backward
        inputs = [value.number for value in op.reads]
        outputs: list[dict[str, int]] = [{"t": value.number, "b": value.bytes} for value in op.makes]
        self.storages += op.makes
        for old, new in op.writes:
            outputs.append(
                {"t": new.number, "into": op.reads.index(old)} if takes else {"t": new.number, "b": new.bytes}
            )
            self.storages.append(new)
        if takes:
            self.in_place[len(self.ops)] = frozenset(old for old, _ in op.writes)
        workspace = self.workspace(op) + sum(copy.bytes for _, _, copy in op.restores)
        told = {"n": op.name, "i": inputs, "o": outputs, "w": workspace, "c": self.cost(op), "r": not op.once}
        self._add({"op": told}, op)
        for old, _ in op.writes:
            if old.given is not None:
                self._release(old)

    def _add(self, event: dict[str, Any], op: KernelOp | None) -> None:
        self.ops.append(op)
        self.event_of.append(len(self.events))
        self.events.append(event)

    def _release(self, value: Value) -> None:
        self.events.append({"rel": {"t": value.number}})

    def actions(self, steps: list[list[Any]]) -> tuple[list[Action], list[Action]]:
        """The actions of a plan in the forward and in the backward pass."""
        passes: tuple[list[Action], list[Action]] = ([], [])
        now = passes[0]
        seen: set[int] = set()
        made: set[Value] = set()
        consumes_saved = self.consumes_saved
        for at, (what, number, *how) in enumerate(steps):
            if what == "free":
                now.append(Free(self.storages[number]))
                continue
            op = self.ops[number]
            if number == self.between:
                now = passes[1]
            elif op is not None:
                freed = set()
                for after, other, *_ in steps[at + 1 :]:
                    if after != "free":
                        break
                    freed.add(self.storages[other])
                always = self.in_place.get(number)
                if always is None:
                    free = freed if now is passes[0] or consumes_saved else freed & made
                    consumed = frozenset(old for old, _ in op.writes if old in free)
                else:
                    consumed = always if how or number not in seen else frozenset()
                now.append(Run(op, consumed, number in seen))
                seen.add(number)
                if now is passes[1]:
                    made.update(op.makes, (new for _, new in op.writes))
        return passes

    def reruns(self, steps: list[list[Any]]) -> list[tuple[int, int]]:
        """The ops that run again in a plan, each with the event before which it does."""
        seen: set[int] = set()
        waiting: list[int] = []
        found: list[tuple[int, int]] = []
        for what, number, *_ in steps:
            if what != "run":
                continue
            if number in seen:
                waiting.append(number)
                continue
            seen.add(number)
            found += [(op, self.event_of[number]) for op in waiting]
            waiting = []
        return found
