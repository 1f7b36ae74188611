"""Callables in the graph of a recorded forward pass that are no functions of torch."""

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
    """The state that a function of torch is called under: grad mode and autocast."""

    gradients: bool
    autocast: Autocast

    @staticmethod
    def now(device: torch.device) -> State:
        """The state in force on a device."""
        return State(torch.is_grad_enabled(), Autocast.now(device))


@dataclass(frozen=True)
class Under:
    """A function that is always called under one state."""

    state: State
    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(self.state.gradients), self.state.autocast.again():
            return self.function(*args, **kwargs)


@dataclass(frozen=True)
class Rebuilt:
    """Puts leaves back into the structure that they were taken from."""

    form: Any

    def __call__(self, *leaves: Any) -> Any:
        return eager.unflatten_tree(list(leaves), self.form)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function that has no name; a graph cannot hold it as a target."""
    return function(*args, **kwargs)


def leaf_at(value: Any, position: int) -> Any:
    """One leaf of the model's input, by its position among all leaves."""
    return eager.flatten_tree(value)[0][position]


@dataclass(frozen=True)
class Answers:
    """Yes-or-no questions that a model asks about its input alone, and the answers that a recording is valid for."""

    questions: fx.GraphModule
    expected: tuple[bool, ...]

    def fit(self, value: Any) -> bool:
        """Whether an input gives the same answers."""
        with torch.no_grad():
            return not self.expected or tuple(self.questions(value)) == self.expected
