"""What stands in the graph of a recorded forward pass beside functions of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..._torch_internals import eager
from ..stage.state import Autocast


@dataclass(frozen=True)
class State:
    """What a function of torch is called under."""

    gradients: bool
    autocast: Autocast

    @staticmethod
    def now(device: torch.device) -> State:
        """What is in force."""
        return State(torch.is_grad_enabled(), Autocast.now(device))


@dataclass(frozen=True)
class Under:
    """A function that is called under a state of its own."""

    state: State
    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(self.state.gradients), self.state.autocast.again():
            return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Rebuilt:
    """Puts leaves into a form."""

    form: Any

    def __call__(self, *leaves: Any) -> Any:
        return eager.unflatten_tree(list(leaves), self.form)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls what has no name that a graph could hold."""
    return function(*args, **kwargs)


def leaf_at(value: Any, position: int) -> Any:
    """A leaf of the model's input."""
    return eager.flatten_tree(value)[0][position]


@dataclass(frozen=True)
class Answers:
    """Questions of yes or no that a model asks about its input alone, and the answers that a recording is good for."""

    questions: fx.GraphModule
    expected: tuple[bool, ...]

    def fit(self, value: Any) -> bool:
        """Whether an input gives the same answers."""
        with torch.no_grad():
            return not self.expected or tuple(self.questions(value)) == self.expected
