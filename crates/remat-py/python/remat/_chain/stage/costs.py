"""The costs of each stage of a chain, in the terms of Beaumont et al. 2024 (Rotor), section 3.1."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class StageCosts:
    """Seconds and bytes of one stage. Bytes are those that the allocator gives out."""

    name: str
    forward_time: float
    backward_time: float
    #: The value that the stage returns.
    activation_bytes: int
    #: Tensors kept for its backward pass once it has run: the activation among them, its input not.
    saved_bytes: int
    #: Gradients of the value that it returns.
    gradient_bytes: int
    #: On top of input and activation while it runs and saves nothing.
    forward_overhead_bytes: int
    #: On top of input and saved set while it runs and saves everything.
    saving_overhead_bytes: int
    #: In its backward pass, on top of the saved set without the released part: gradients of output and input, and the
    #: rest.
    backward_bytes: int
    #: The part of the saved set that only the next stage needs. It is freed before the backward pass of this one.
    released_bytes: int = 0
    #: Gradients that its backward pass leaves behind: those of parameters that no earlier stage uses.
    parameter_gradient_bytes: int = 0
    #: Tensors that the graph keeps of it whatever it saves.
    kept_bytes: int = 0
    #: Copies of the buffers that it changes.
    buffer_bytes: int = 0
    #: Whether it draws random numbers.
    random: bool = False


@dataclass(frozen=True)
class ChainCosts:
    """A measured chain; the last stage is the loss."""

    input_bytes: int
    #: The gradient of the input, where it is wanted.
    input_gradient_bytes: int
    #: Most bytes, on top of those that are there anyway, before the first stage that has a gradient.
    before_bytes: int
    stages: tuple[StageCosts, ...]

    @property
    def fixed_bytes(self) -> int:
        """Bytes that the chain takes from start to end, whatever the plan.

        They are those of tensors that graphs keep, of copies of buffers, and of the output that the caller holds.
        """
        output = self.stages[-2].activation_bytes if len(self.stages) > 1 else 0
        copies = sum(stage.buffer_bytes for stage in self.stages) + max(stage.buffer_bytes for stage in self.stages)
        return output + copies + sum(stage.kept_bytes for stage in self.stages) + _SMALL

    def for_planner(self) -> dict[str, Any]:
        """The chain in the form that the planners read."""
        stages = []
        gradients = self.input_gradient_bytes
        for stage in self.stages:
            row: dict[str, Any] = {key: getattr(stage, key) for key in _PLANNED}
            gradients += stage.gradient_bytes
            row["backward_overhead_bytes"] = max(0, stage.backward_bytes - gradients)
            gradients = stage.gradient_bytes
            stages.append(row)
        first = {"input_bytes": self.input_bytes, "input_gradient_bytes": self.input_gradient_bytes}
        return {**first, "stages": stages}

    def with_gradients(self) -> ChainCosts:
        """The same chain where gradients of parameters exist from the start and are added to."""
        return replace(self, stages=tuple(replace(stage, parameter_gradient_bytes=0) for stage in self.stages))

    def to_json(self) -> dict[str, Any]:
        """The costs as plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> ChainCosts:
        """Costs from the data of :meth:`to_json`; ``ValueError`` for negative or huge numbers."""
        stages = tuple(StageCosts(**stage) for stage in data["stages"])
        numbers = [
            value for row in (data, *data["stages"]) for value in row.values() if isinstance(value, (int, float))
        ]
        if not all(0 <= value < 2**63 for value in numbers):
            raise ValueError("bytes and times are numbers from 0 to 2^63")
        sizes = {key: int(data[key]) for key in ("input_bytes", "input_gradient_bytes", "before_bytes")}
        return ChainCosts(**sizes, stages=stages)


_PLANNED = (
    *("name", "forward_time", "backward_time", "activation_bytes", "saved_bytes", "gradient_bytes"),
    *("forward_overhead_bytes", "saving_overhead_bytes", "released_bytes", "parameter_gradient_bytes"),
    "backward_bytes",
)

#: Bytes of losses, counters and other small tensors that come and go between steps.
SCALARS = 8192
# Also bytes of generator states that are read and set, and of autograd's scalars.
_SMALL = SCALARS + 24576
