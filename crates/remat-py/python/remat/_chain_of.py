"""``remat.chain_of``: a model whose forward pass is a chain becomes an ``nn.Sequential`` of its own modules."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import fx, nn

from ._chain_cuts import cut
from ._chain_run import forgetting
from ._errors import RematError
from ._stage import Stage, copied, tensors
from ._stage_state import Random, in_place_of_buffers, random_again, random_state, same_bits


class Chain(nn.Sequential):
    """A model as a chain. Parameters and modules are the model's own, and so are buffers in its submodules.

    It was split in one training mode; in another it calls the model itself, and cannot be planned.
    """

    def __init__(self, model: nn.Module, stages: OrderedDict[str, fx.GraphModule]) -> None:
        super().__init__(OrderedDict[str, nn.Module](stages))
        self.__dict__["model"] = model  # not as a submodule: its parameters are those of the stages
        self._modes = _modes(model)

    def forward(self, value: Any) -> Any:
        """The model's output."""
        if _modes(self.__dict__["model"]) != self._modes:
            return _called(self.__dict__["model"], value)
        for stage in self:
            value = stage(value)
        return value

    def train(self, mode: bool = True) -> Chain:
        """As for any module."""
        self.__dict__["model"].train(mode)
        super().train(mode)
        return self

    def check_mode(self) -> None:
        """``RematError`` unless the model is in the training mode that it was split in."""
        if _modes(self.__dict__["model"]) != self._modes:
            raise RematError("the model was split in another training mode: split it again with remat.chain_of")


def chain_of(model: nn.Module, sample: Any) -> Chain:
    """The model as a chain for :class:`remat.Checkpointable`, in its present training mode.

    ``sample`` is what the model is called on: a tensor, a tuple of positional or a dict of keyword arguments; the chain
    takes its input in the same form. The forward pass is traced (``torch.fx``) and cut where a single tensor that has
    a gradient goes on, and between the elements of lists of modules. What cannot be traced inside stays whole. Then
    model and chain are run and compared bit for bit.

    Raises :class:`remat.RematError` for a model that is no chain, and says why.

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
    call = _Call(model, sample)
    traced = _traced(call)
    whole = Stage("model", (lambda value: _called(model, value),))
    device = tensors(sample)[0].device
    random = random_state(device)
    buffers = [(module, name, held) for module in call.modules() for name, held in module.named_buffers(recurse=False)]
    with random_again(device, random), in_place_of_buffers(buffers), torch.enable_grad(), forgetting():
        stages = cut(traced, call, copied(sample), type(model).__name__)
    chain = Chain(model, stages)
    _compare(model, whole, chain, sample, random, device)
    return chain


def _called(model: nn.Module, value: Any) -> Any:
    if isinstance(value, dict):
        return model(**value)
    return model(*value) if isinstance(value, tuple) else model(value)


class _Call(nn.Module):
    """The model as a function of one value, to be traced."""

    def __init__(self, model: nn.Module, sample: Any) -> None:
        super().__init__()
        self.model = model
        self.keys = list(sample) if isinstance(sample, dict) else None
        self.count = len(sample) if isinstance(sample, tuple) else None

    def forward(self, value: Any) -> Any:
        if self.keys is not None:
            return self.model(**{key: value[key] for key in self.keys})
        if self.count is not None:
            return self.model(*[value[index] for index in range(self.count)])
        return self.model(value)


class _Tracer(fx.Tracer):
    """Traces into every module that is not closed; remembers the innermost one that could not be traced."""

    def __init__(self, closed: set[int]) -> None:
        super().__init__()
        self.closed = closed
        self.failed: nn.Module | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if id(m) in self.closed:
            return True
        opens = any(isinstance(child, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) for child in m.children())
        return not opens and super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or m
            raise


def _traced(call: _Call) -> fx.GraphModule:
    closed: set[int] = set()
    for _ in call.modules():
        tracer = _Tracer(closed)
        try:
            return fx.GraphModule(call, tracer.trace(call))
        except Exception as error:
            if tracer.failed is None or tracer.failed is call.model:
                reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
                raise RematError(
                    f"{type(call.model).__name__} is no chain that can be seen: its forward pass cannot be traced "
                    f"({reason}); "
                    "write it as an nn.Sequential, or use remat.budget, which needs no chain"
                ) from error
            closed.add(id(tracer.failed))
    raise RematError(f"{type(call.model).__name__}: its forward pass cannot be traced")


def _modes(model: nn.Module) -> tuple[bool, ...]:
    return tuple(module.training for module in model.modules())


def _compare(model: nn.Module, whole: Stage, chain: Chain, sample: Any, random: Random, device: torch.device) -> None:
    """``RematError`` unless chain and model give the same bits: outputs, buffers, random streams."""
    buffers = [(module, name, held) for module in model.modules() for name, held in module.named_buffers(recurse=False)]
    seen = []
    for run in (whole, chain):
        with random_again(device, random), in_place_of_buffers(buffers), torch.enable_grad(), forgetting():
            output = run(copied(sample))
            after = [held.detach().clone() for module in model.modules() for held in module.buffers(recurse=False)]
            seen.append(([tensor.detach() for tensor in (*tensors(output), *after)], random_state(device)))
    (one, streams), (other, others) = seen
    same = len(one) == len(other) and streams == others
    if not (same and all(same_bits(a, b) for a, b in zip(one, other, strict=True))):
        raise RematError(
            f"{type(model).__name__} is no chain that can be seen: cut apart it gives other bits than whole; its "
            "forward pass depends on more than its input"
        )
