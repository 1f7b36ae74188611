"""What each stage of a chain costs, in the terms of Beaumont et al. 2024 (Rotor), section 3.1."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class StageCosts:
    """Seconds and bytes of one stage; bytes as the allocator counts them."""

    name: str
    forward_time: float
    backward_time: float
    #: What the stage returns.
    activation_bytes: int
    #: What is there for its backward pass once it has run, the activation included, its input not.
    saved_bytes: int
    #: The gradients of what it returns.
    gradient_bytes: int
    #: On top of input and activation, while it runs and nothing is saved.
    forward_overhead_bytes: int
    #: On top of input and saved set, while it runs and everything is saved.
    saving_overhead_bytes: int
    #: In its backward pass, on top of the saved set less what was released: gradients of output and input, all else.
    backward_bytes: int
    #: Of the saved set, what only the next stage needs: it is gone when the backward pass comes to this one.
    released_bytes: int = 0
    #: Gradients that its backward pass leaves behind: those of the parameters that no earlier stage uses.
    parameter_gradient_bytes: int = 0
    #: What the graph keeps of it whatever is saved.
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
    #: Most bytes, above what is there anyway, before the first stage that has a gradient.
    before_bytes: int
    stages: tuple[StageCosts, ...]

    @property
    def fixed_bytes(self) -> int:
        """What the chain takes from start to end whatever the plan: what graphs keep, copies of buffers, the output in
        the caller's hands."""
        output = self.stages[-2].activation_bytes if len(self.stages) > 1 else 0
        copies = sum(stage.buffer_bytes for stage in self.stages) + max(stage.buffer_bytes for stage in self.stages)
        return output + copies + sum(stage.kept_bytes for stage in self.stages) + _SMALL

    def for_planner(self) -> dict[str, Any]:
        """The chain as the planners read it."""
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
        """The same where gradients of parameters are there from the start and are added to."""
        return replace(self, stages=tuple(replace(stage, parameter_gradient_bytes=0) for stage in self.stages))

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> ChainCosts:
        """The opposite of :meth:`to_json`."""
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
)

#: Losses, counters and other small things that come and go between steps.
SCALARS = 8192
# And states of random number generators that are read and set, scalars of autograd.
_SMALL = SCALARS + 24576
