"""One stage of a chain: functions that run one after the other, each on the value that the one before returned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from ..._errors import RematError
from ..._torch_internals import eager

Function = Callable[[Any], Any]

# Types that a value which goes from stage to stage may hold beside tensors.
_PLAIN = (type(None), bool, int, float, complex, str, torch.Size, torch.dtype, torch.device)


@dataclass(frozen=True)
class Stage:
    """Functions between two activations of a chain."""

    name: str
    functions: tuple[Function, ...]

    def __call__(self, value: Any) -> Any:
        for function in self.functions:
            value = function(value)
        return value

    def modules(self) -> list[torch.nn.Module]:
        """Every module inside, each once."""
        found: dict[int, torch.nn.Module] = {}
        for function in self.functions:
            owner = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
            if isinstance(owner, torch.nn.Module):
                found.update((id(module), module) for module in owner.modules())
        return list(found.values())

    def parameters(self) -> list[torch.nn.Parameter]:
        """Every parameter inside, each once."""
        every = (p for module in self.modules() for p in module.parameters(recurse=False))
        return list({id(p): p for p in every}.values())

    def buffers(self) -> list[tuple[torch.nn.Module, str, torch.Tensor]]:
        """Every buffer inside with the module that holds it."""
        return [(module, name, b) for module in self.modules() for name, b in module.named_buffers(recurse=False)]


class StageInUse(Stage):
    """A stage during one forward and backward pass: its modules and parameters are looked up once."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.name, stage.functions)
        self.__dict__["_modules"] = super().modules()
        self.__dict__["_parameters"] = super().parameters()

    def modules(self) -> list[torch.nn.Module]:
        modules: list[torch.nn.Module] = self.__dict__.get("_modules") or super().modules()
        return modules

    def parameters(self) -> list[torch.nn.Parameter]:
        parameters: list[torch.nn.Parameter] = self.__dict__["_parameters"]
        return parameters


def join(stages: Iterable[Stage]) -> Stage:
    """One stage in place of several that follow each other."""
    parts = list(stages)
    functions = tuple(function for stage in parts for function in stage.functions)
    name = parts[0].name if len(parts) == 1 else f"{parts[0].name}..{parts[-1].name}"
    return Stage(name, functions)


def apart(value: Any) -> Any:
    """The same value cut off from the graph that made it; its tensors ask for gradients where they did before."""
    leaves, form = eager.flatten_tree(value)
    return eager.unflatten_tree([_apart(leaf) for leaf in leaves], form)


def _apart(leaf: Any) -> Any:
    return leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf


def copied(value: Any) -> Any:
    """The same value with copies of its tensors."""
    leaves, form = eager.flatten_tree(value)
    return eager.unflatten_tree([leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], form)


def check_value(value: Any, name: str, device: torch.device) -> None:
    """Raises ``RematError`` for a value that cannot go from stage to stage."""
    for leaf in eager.flatten_tree(value)[0]:
        if isinstance(leaf, torch.Tensor):
            if leaf.layout != torch.strided or eager.classify(type(leaf)) not in (0, 3):
                raise RematError(f"{name} gives a {leaf.layout} {type(leaf).__name__}: stages pass strided tensors on")
            if leaf.device != device:
                raise RematError(f"{name} gives a tensor on {leaf.device}: all of a chain must be on {device}")
        elif not isinstance(leaf, _PLAIN):
            raise RematError(
                f"{name} gives a {type(leaf).__name__}: expected tensors and numbers, in tuples, lists or dicts"
            )
