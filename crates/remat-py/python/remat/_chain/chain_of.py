"""``remat.chain_of``: a model whose forward pass is a chain becomes an ``nn.Sequential`` of its own modules."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from .._errors import RematError
from .._memory.tensors import tensors
from .._torch_internals import eager
from .capture.cuts import cut, give_own
from .capture.given import Given
from .capture.record import recorded
from .capture.replay import Answers
from .capture.trace import Call, traced
from .stage.saved import forgetting
from .stage.stage import Stage, check_value, copied
from .stage.state import Random, in_place_of_buffers, random_again, random_state, same_bits

Stages = OrderedDict[str, fx.GraphModule]


@dataclass(frozen=True)
class _Split:
    """Stages of a model. Traced ones serve any input, recorded ones only inputs of the sample's kind."""

    stages: Stages
    given: Given | None = None
    answers: Answers | None = None

    def fits(self, value: Any) -> bool:
        """Whether the model takes this course on an input of the right kind."""
        return self.answers is None or self.answers.fit(value)


class Chain(nn.Sequential):
    """A model as a chain. Parameters and modules are the model's own, and so are buffers.

    A chain is split in one training mode. One that was recorded is also split for one kind of input. In another mode,
    for another kind of input, and where a recorded chain runs without gradients, it calls the model itself; then it
    cannot be planned.
    """

    def __init__(self, model: nn.Module, split: _Split) -> None:
        super().__init__(OrderedDict[str, nn.Module](split.stages))
        self.__dict__["model"] = model  # not as a submodule: its parameters are those of the stages
        self._modes = _modes(model)
        self._splits = [split]

    def forward(self, value: Any) -> Any:
        """The model's output."""
        first = self._splits[0]
        whole = first.given is not None and not torch.is_grad_enabled()
        if whole or self._unlike(value) is not None or not first.fits(value):
            return called(self.__dict__["model"], value)
        for stage in self:
            value = stage(value)
        return value

    def train(self, mode: bool = True) -> Chain:
        """Sets the training mode of the model; see ``nn.Module.train``."""
        self.__dict__["model"].train(mode)
        super().train(mode)
        return self

    def course(self, value: Any) -> int:
        """The number of the course that the model takes on an input. For a new course the model is split again.

        Raises ``RematError`` for another training mode or kind of input than it was split for.
        """
        unlike = self._unlike(value)
        if unlike is not None:
            raise RematError(f"the model was split {unlike}: split it again with remat.chain_of")
        for number, split in enumerate(self._splits):
            if split.fits(value):
                return number
        self._splits.append(_split_and_compared(self.__dict__["model"], value))
        return len(self._splits) - 1

    def stages(self, course: int) -> tuple[Stage, ...]:
        """The stages of a course."""
        return tuple(Stage(name, (stage,)) for name, stage in self._splits[course].stages.items())

    def _unlike(self, value: Any) -> str | None:
        if _modes(self.__dict__["model"]) != self._modes:
            return "in another training mode"
        given = self._splits[0].given
        differs = None if given is None else given.differs(Given.of(value))
        return None if differs is None else f"for {differs}"


def chain_of(model: nn.Module, sample: Any) -> Chain:
    """The model as a chain for :class:`remat.Checkpointable`, in its present training mode.

    ``sample`` is an input of the model: a tensor, a tuple of positional or a dict of keyword arguments. The chain takes
    its input in the same form.

    The forward pass is traced (``torch.fx``) and cut where a single tensor with a gradient goes on, and between the
    elements of lists of modules. Modules that cannot be traced stay whole. Where they are most of the model, the
    functions of torch that the model calls on the sample are recorded instead; such a chain serves inputs of the
    sample's shapes, dtypes, numbers and autocast state. If the model asks a question about its input alone, such as
    whether a mask masks anything, :class:`remat.Checkpointable` records it once for each answer.

    At the end, model and chain both run on the sample and are compared bit for bit.

    Raises ``ValueError`` where ``model`` is no module or ``sample`` holds no tensor. Raises :class:`remat.RematError`
    for a model that is no chain, with the reason: the line where its course depends on values in tensors, or forward
    hooks whose effects would be lost.

    >>> import torch, remat
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
    ...     def forward(self, x):
    ...         for layer in self.layers:
    ...             x = x + layer(x).relu()
    ...         return x
    >>> len(remat.chain_of(Model(), torch.ones(2, 8)))
    4
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"{type(model).__name__} is no module")
    if not tensors(sample):
        raise ValueError("the sample holds no tensor: expected what the model is called on")
    return Chain(model, _split_and_compared(model, sample))


def _split_and_compared(model: nn.Module, sample: Any) -> _Split:
    call, device = Call(model, sample), tensors(sample)[0].device
    random = random_state(device)
    buffers = [(module, name, held) for module in model.modules() for name, held in module.named_buffers(recurse=False)]
    with random_again(device, random), in_place_of_buffers(buffers), torch.enable_grad(), forgetting():
        split = _split(call, sample)
    give_own(split.stages, call)
    _compare(model, split.stages, sample, random, device)
    return split


def called(model: nn.Module, value: Any) -> Any:
    """The model's output on an input that has the form of the sample."""
    if isinstance(value, dict):
        return model(**value)
    return model(*value) if isinstance(value, tuple) else model(value)


def _split(call: Call, sample: Any) -> _Split:
    """The stages from a trace; from a recording of the sample where the trace does not see enough."""
    name = type(call.model).__name__
    graph = traced(call)
    if graph is not None:
        try:
            return _Split(cut(graph, call, copied(sample), name))
        except RematError:
            if not _any_closed(graph):
                raise
    graph, answers = recorded(call, copied(sample), lambda value: called(call.model, value))
    return _Split(cut(graph, call, copied(sample), name), Given.of(sample), answers)


def _any_closed(graph: fx.GraphModule) -> bool:
    """Whether a graph calls a module as a whole that has modules inside."""
    whole = [graph.get_submodule(str(node.target)) for node in graph.graph.nodes if node.op == "call_module"]
    return any(True for module in whole for _ in module.children())


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(module.training for module in model.modules())


def _compare(model: nn.Module, stages: Stages, sample: Any, random: Random, device: torch.device) -> None:
    """Raises ``RematError`` unless stages and model give the same bits in outputs, buffers and random streams."""
    whole, chain = Stage("model", (lambda value: called(model, value),)), Stage("chain", tuple(stages.values()))
    buffers = [(module, name, held) for module in model.modules() for name, held in module.named_buffers(recurse=False)]
    seen, forms = [], []
    for run in (whole, chain):
        with random_again(device, random), in_place_of_buffers(buffers), torch.enable_grad(), forgetting():
            output = run(copied(sample))
            check_value(output, type(model).__name__, device)
            after = [held.detach().clone() for module in model.modules() for held in module.buffers(recurse=False)]
            seen.append(([tensor.detach() for tensor in (*tensors(output), *after)], random_state(device)))
            forms.append((eager.flatten_tree(output)[1], [tensor.requires_grad for tensor in tensors(output)]))
            del output
    (one, streams), (other, others) = seen
    same = len(one) == len(other) and streams == others and forms[0] == forms[1]
    if not (same and all(same_bits(a, b) for a, b in zip(one, other, strict=True))):
        raise RematError(
            f"{type(model).__name__} is no chain that can be seen: cut apart it gives other bits than whole; its "
            "forward pass depends on more than its input"
        )
