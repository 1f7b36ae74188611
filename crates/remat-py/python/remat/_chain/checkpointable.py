"""``remat.Checkpointable``: trains a chain of modules inside a byte budget, by a plan that is made ahead."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from .._errors import RematError
from .._memory.amounts import Budget
from .._memory.budgets import bytes_of
from .._memory.resident import resident
from .._memory.tensors import distinct_bytes, tensors
from .._torch_internals import eager
from .chain_of import Chain
from .plan import ChainPlan, chain_bytes, load_plan, made_for, make_plan
from .run import Script
from .stage.costs import SCALARS
from .stage.measure import Measured, measure_chain
from .stage.probe import Shape, shape_of
from .stage.stage import Function, Stage

_RECOUNTS = 3


@dataclass
class _Prepared:
    """A plan in force for one kind of input."""

    shape: Shape
    plan: ChainPlan
    script: Script
    recounts: int = _RECOUNTS


class Checkpointable(nn.Module):
    """An ``nn.Sequential`` that trains inside a byte budget, by the plan that takes least time there.

    Remat measures every stage on ``sample``, a batch as it comes in training. A planner chooses the stages that save
    their tensors and those that run again (Beaumont et al. 2024, Rotor), and forward and backward passes follow that
    plan. Outputs, gradients, buffers and random streams are those of the module itself, bit for bit.

    - ``budget`` is in bytes, an int or a text such as ``"6GiB"``. It covers every tensor storage on the device,
      parameters and gradients included, and workspace, as that of :func:`remat.budget` does. Resident tensors are
      counted now and in the first three training steps of each kind of input, when an optimizer's state has come to
      exist. If they grew, the plan is made anew.
    - ``reserve`` is in bytes too. They stay free for tensors that come later, such as an optimizer's state, and for
      memory that torch does not show, such as DDP's buckets (as large as the gradients).
    - ``loss`` maps the output to the loss and is measured as the last stage. Without it, twice the output stays free.
    - ``strategy`` and ``slots`` are those of ``remat plan chain``.
    - ``plan`` is a file that ``.plan.save(path)`` wrote for the same module and sample; nothing is measured then.

    An input of other shapes, or under another autocast state or training mode, is measured and planned when it first
    comes. The plan bounds one forward and backward pass at a time. Forward code runs more than once: beside buffers,
    random numbers and its input it must depend on nothing that changes. All tensors are on one device.

    Raises :class:`remat.BudgetError` with the smallest budget that would do, :class:`remat.RematError` for a module
    that is no chain and for a plan of another module or sample, ``ValueError`` for arguments that make no sense.

    >>> import torch, remat
    >>> layers = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(8)]
    >>> x = torch.ones(256, 64)
    >>> model = remat.Checkpointable(torch.nn.Sequential(*layers), x, budget="64MiB")
    >>> model(x).sum().backward()
    """

    def __init__(
        self,
        module: nn.Sequential,
        sample: Any,
        budget: Budget | None = None,
        *,
        strategy: str = "persistent",
        slots: str | int = "500",
        loss: Callable[[Any], Any] | None = None,
        reserve: Budget = 0,
        plan: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Sequential):
            raise RematError(f"{type(module).__name__} is no nn.Sequential: remat.chain_of(model, sample) makes one")
        self.module = module
        self._functions = tuple(Stage(name, (child,)) for name, child in module._modules.items())
        self._start(sample, budget, strategy, slots, loss, reserve, plan)

    def _start(
        self,
        sample: Any,
        budget: Budget | None,
        strategy: str,
        slots: str | int,
        loss: Callable[[Any], Any] | None,
        reserve: Budget,
        plan: str | os.PathLike[str] | None,
    ) -> None:
        if not self._functions:
            raise ValueError("a chain needs at least one stage")
        if budget is None and plan is None:
            raise ValueError("expected a budget, e.g. '6GiB', or a saved plan")
        if not any(isinstance(value, torch.Tensor) for value in tensors(sample)):
            raise ValueError("the sample holds no tensor: expected a batch as it comes in training")
        if strategy == "free":
            raise ValueError("strategy 'free' is for planning only: autograd keeps a stage's input with what it saves")
        device = next(value.device for value in tensors(sample) if isinstance(value, torch.Tensor))
        self._budget = None if budget is None else bytes_of(budget, device)
        self._reserve = 0 if reserve == 0 else bytes_of(reserve, device)
        self._strategy, self._slots, self._loss = strategy, str(slots), loss
        self._measured: dict[Any, tuple[Shape, Measured]] = {}
        self._prepared: dict[Any, _Prepared] = {}
        # The output of the latest forward pass. Callers often hold it until the next one returns, and plans have room
        # for it.
        self._returned: list[weakref.ref[torch.Tensor]] = []
        self._floor: int | None = None
        self._latest = self._prepare(sample, self._kind(sample), plan)

    @property
    def plan(self) -> ChainPlan:
        """The plan of the latest kind of input; ``print`` says it in words, ``save`` writes it to a file."""
        return self._latest.plan

    def forward(self, value: Any) -> Any:
        """The output of the chain."""
        if not torch.is_grad_enabled():
            return self._plainly(value)
        kind = self._kind(value)
        known = self._measured.get(kind)
        prepared = self._prepared.get((kind, known is not None and _gradients_there(known[0])))
        if prepared is None:
            prepared = self._prepare(value, kind, None)
        self._latest = prepared
        if prepared.recounts:
            prepared.recounts -= 1
            self._recount(prepared, value)
        for stage in prepared.shape.before:
            value = stage(value)
        output = prepared.script.run(value)
        self._returned = [weakref.ref(tensor) for tensor in tensors(output)]
        return output

    def _plainly(self, value: Any) -> Any:
        if isinstance(self.module, Chain):
            return self.module(value)
        for stage in self._functions:
            value = stage(value)
        return value

    def _kind(self, value: Any) -> Any:
        """The kind of an input: inputs of one kind follow one plan."""
        leaves, form = eager.flatten_tree(value)
        modes = tuple(module.training for module in self.modules())
        wanted = tuple(parameter.requires_grad for parameter in self.parameters())
        device = next((leaf.device for leaf in leaves if isinstance(leaf, torch.Tensor)), torch.device("cpu"))
        autocast = [(torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in ("cpu", device.type)]
        course = self.module.course(value) if isinstance(self.module, Chain) else 0
        return (str(form), tuple(map(_leaf_kind, leaves)), modes, wanted, tuple(autocast), course)

    def _prepare(self, sample: Any, kind: Any, saved: str | os.PathLike[str] | None) -> _Prepared:
        if kind not in self._measured:
            functions = self.module.stages(kind[-1]) if isinstance(self.module, Chain) else self._functions
            shape = shape_of(functions, sample, tensors(sample)[0].device)
            if saved is None:
                self._measured[kind] = shape, measure_chain(shape, sample, self._loss)
        else:
            shape = self._measured[kind][0]
        there = _gradients_there(shape)
        base = self._base(shape, sample)
        texts = made_for(shape, sample)
        if saved is not None:
            plan = load_plan(saved, texts, self._budget, base, there)
            self._budget = plan.budget
            self._measured[kind] = shape, Measured(plan.measured, plan.changing)
        else:
            assert self._budget is not None
            measured = self._measured[kind][1]
            costs = measured.costs.with_gradients() if there else measured.costs
            operations = make_plan(
                costs, self._budget, base, self._strategy, self._slots, eager.device_name(shape.device)
            )
            plan = ChainPlan(
                operations, measured.costs, there, self._strategy, self._budget, base, measured.changing, texts
            )
        prepared = self._prepared[kind, there] = _Prepared(shape, plan, self._script(shape, plan))
        return prepared

    def _script(self, shape: Shape, plan: ChainPlan) -> Script:
        writes = shape.writes_input and not shape.before
        return Script(shape.stages, plan.operations, plan.changing, writes, shape.device)

    def _base(self, shape: Shape, value: Any) -> int:
        """Bytes on the device that are there whatever the chain does, and reserved ones that are not taken up yet.

        The chain's input, and the output that the caller may still hold, belong to the chain and do not count.
        """
        gc.collect()
        returned = [tensor for tensor in (weak() for weak in self._returned) if tensor is not None]
        own = [*returned, *(tensors(value) if not shape.before else [])]
        gradients = [leaf.grad for leaf in shape.leaves if leaf.grad is not None]
        others = resident(shape.device) - distinct_bytes([*own, *gradients])
        if self._floor is None:
            self._floor = others + self._reserve
        every = sum(leaf.numel() * leaf.element_size() for leaf in shape.leaves) if gradients else 0
        return max(others, self._floor) + every

    def _recount(self, prepared: _Prepared, value: Any) -> None:
        """Makes the plan anew if more is resident than it was made for."""
        base = self._base(prepared.shape, value)
        plan = prepared.plan
        if base <= plan.base + SCALARS:
            return
        room = plan.budget - base
        if chain_bytes(plan.operations, plan.costs) <= room:
            prepared.plan = replace(plan, base=base)
            return
        name = eager.device_name(prepared.shape.device)
        operations = make_plan(plan.costs, plan.budget, base, plan.strategy, self._slots, name)
        prepared.plan = replace(plan, base=base, operations=operations)
        prepared.script = self._script(prepared.shape, prepared.plan)


class _Functions(nn.Sequential):
    """Functions as an ``nn.Sequential``, so that torch finds the modules among them."""

    def __init__(self, functions: Sequence[Function]) -> None:
        super().__init__()
        for number, function in enumerate(functions):
            if isinstance(function, nn.Module):
                self.add_module(str(number), function)


class _Sequential(Checkpointable):
    def __init__(self, functions: Sequence[Function], sample: Any, budget: Budget | None, **options: Any) -> None:
        nn.Module.__init__(self)
        self.module = _Functions(functions)
        self._functions = tuple(Stage(_name(f, number), (f,)) for number, f in enumerate(functions, 1))
        self._start(sample, budget, **options)


def sequential(
    functions: Sequence[Function],
    sample: Any,
    budget: Budget | None = None,
    *,
    strategy: str = "persistent",
    slots: str | int = "500",
    loss: Callable[[Any], Any] | None = None,
    reserve: Budget = 0,
    plan: str | os.PathLike[str] | None = None,
) -> Checkpointable:
    """A :class:`Checkpointable` of functions, modules or not, each called on the value that the one before returned.

    Arguments and errors are those of :class:`Checkpointable`; ``ValueError`` for a function that cannot be called.

    >>> import torch, remat
    >>> run = remat.sequential([torch.nn.Linear(8, 8), torch.tanh], torch.ones(4, 8), budget="64MiB")
    >>> run(torch.ones(4, 8)).shape
    torch.Size([4, 8])
    """
    wrong = [function for function in functions if not callable(function)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} cannot be called: expected modules or functions")
    return _Sequential(functions, sample, budget, strategy=strategy, slots=slots, loss=loss, reserve=reserve, plan=plan)


def _name(function: Function, number: int) -> str:
    kind = type(function).__name__ if isinstance(function, nn.Module) else getattr(function, "__name__", "function")
    return f"{number}:{kind}"


def _gradients_there(shape: Shape) -> bool:
    """Whether gradients exist already that a backward pass will add to."""
    return any(leaf.grad is not None for leaf in shape.leaves)


def _leaf_kind(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return (leaf.shape, leaf.dtype, leaf.requires_grad, leaf.device)
    return leaf
