"""A forward pass recorded on a sample: the functions of torch that the model calls, as a graph of ``torch.fx``.

The model runs as ever, so the graph holds the calls of a training step one for one. Sizes and numbers that Python sees
are written into the graph.
"""

from __future__ import annotations

import operator
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from ..._errors import RematError
from ..._memory.tensors import tensors
from ..._torch_internals import eager
from ..stage.stage import check_value
from .replay import Answers, Rebuilt, State, Under, call, leaf_at
from .varying import Ops, Varying, refusal

# Functions that change a tensor or its graph in ways that a stage would not repeat.
_REFUSED = re.compile(
    "__set__|__delete__|register_hook|register_post_accumulate_grad_hook|retain_grad|backward|set_|resize_"
)
_CONSTANTS = "constants"


def recorded(root: nn.Module, sample: Any, run: Callable[[Any], Any]) -> tuple[fx.GraphModule, Answers]:
    """The graph of ``run(sample)``, which calls the only child of ``root``, and the answers that it is valid for.

    Raises ``RematError`` with the line of the model where its course depends on values in tensors.
    """
    _check_hooks(root)
    recorder = _Recorder(root, sample)
    with recorder.watching():
        output = run(sample)
    return recorder.ended(output)


def _check_hooks(root: nn.Module) -> None:
    for path, module in root.named_modules():
        if any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)):
            raise RematError(
                f"{path} has hooks, whose effects a chain would not repeat: remove them, or use remat.budget, which "
                "needs no chain"
            )


class _Recorder(TorchFunctionMode):
    """Records the calls of torch's functions; calls that these functions make themselves are not recorded."""

    def __init__(self, root: nn.Module, sample: Any) -> None:
        super().__init__()
        self.root, self.graph, self.device = root, fx.Graph(), tensors(sample)[0].device
        check_value(sample, "the sample", self.device)
        self.name = type(next(root.children())).__name__
        self.varying = Varying(self.name)
        self.ops = Ops(self.varying)
        self.ambient = State.now(self.device)
        self.open: list[str] = []
        self.modules = {id(module): (path, module) for path, module in root.named_modules() if path}
        # Tensors by identity: those that calls made, while they are alive, and those that modules hold.
        self.made: dict[int, tuple[weakref.ref[torch.Tensor], fx.Node]] = {}
        self.owned = {id(tensor): path for path, tensor in _held(root)}
        self.read: dict[str, fx.Node] = {}
        self.asked: list[tuple[fx.Node, bool]] = []
        self.constants = nn.Module()
        self._enter(sample)

    def _enter(self, sample: Any) -> None:
        value = self.graph.placeholder("value")
        for position, leaf in enumerate(eager.flatten_tree(sample)[0]):
            if isinstance(leaf, torch.Tensor):
                one = leaf is sample
                self._made(leaf, value if one else self.graph.call_function(leaf_at, (value, position)))
        self.varying.values.update(self.graph.nodes)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Records all calls that are made inside."""
        with ExitStack() as stack:
            enter, leave = register_module_forward_pre_hook(self._open), self._close
            stack.callback(enter.remove)
            stack.callback(register_module_forward_hook(leave, always_call=True).remove)
            stack.enter_context(self._own_functions())
            stack.enter_context(self.ops)
            stack.enter_context(self)
            yield

    @contextmanager
    def _own_functions(self) -> Iterator[None]:
        """Records an ``autograd.Function`` as one call.

        It has a backward pass of its own, and modes see only the calls inside of its forward pass.
        """
        plain = torch.autograd.Function.__dict__["apply"]

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            return self._called(plain.__get__(None, cls), args, kwargs)

        torch.autograd.Function.apply = classmethod(apply)  # type: ignore[assignment,method-assign]
        try:
            yield
        finally:
            torch.autograd.Function.apply = plain  # type: ignore[method-assign]

    def _open(self, module: nn.Module, _: Any) -> None:
        if id(module) in self.modules:
            self.open.append(self.modules[id(module)][0])

    def _close(self, module: nn.Module, _: Any, __: Any) -> None:
        if id(module) in self.modules:
            self.open.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._called(func, args, kwargs or {})

    def _called(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls the function. The call becomes a node of the graph where tensors go in or come out."""
        if self.ops.inside:
            return function(*args, **kwargs)
        given = [(tensor, tensor._version) for tensor in _all_tensors((args, kwargs))]
        nodes = [self._node(tensor) for tensor, _ in given]
        name, attribute = _names(function)
        if given and _REFUSED.fullmatch(name):
            raise refusal(self.name, f"it calls {name} of a tensor, which a chain would not repeat")
        result = self._performed(function, args, kwargs)
        made = bool(_all_tensors(result))
        if self.varying.asks(name, attribute, nodes, result, made):
            self.asked.append((self._written(function, args, kwargs), result))
        if made or (given and result is None):
            node = self._written(operator.attrgetter(attribute) if attribute else function, args, kwargs)
            self.varying.note(nodes, self._results(result, node))
            for written in (
                node for node, (tensor, version) in zip(nodes, given, strict=True) if tensor._version != version
            ):
                self.varying.learns(written)
        return result

    def _performed(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.varying.begin()
        self.ops.inside = True
        try:
            return function(*args, **kwargs)
        finally:
            self.ops.inside = False

    def _written(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
        """Adds the node of a call, under the state that the call was made in."""
        inputs, named = self._argument(args), self._argument(kwargs)
        state = State.now(self.device)
        if state != self.ambient:
            function = Under(state, function)
        name = getattr(function, "__name__", "")
        if name and getattr(torch.Tensor, name, None) is function:
            node = self.graph.call_method(name, inputs, named)
        elif name.isidentifier() and function.__module__ and not isinstance(function, MethodType):
            node = self.graph.call_function(function, inputs, named)
        else:
            node = self.graph.call_function(call, (self._constant(function), *inputs), named)
        return self._inside(node)

    def _inside(self, node: fx.Node) -> fx.Node:
        """The node, with the modules that are running noted in it."""
        modules = [self.root.get_submodule(path) for path in self.open]
        node.meta["nn_module_stack"] = {p: (p, type(module)) for p, module in zip(self.open, modules, strict=True)}
        return node

    def _results(self, result: Any, node: fx.Node) -> list[tuple[fx.Node, torch.Tensor]]:
        """The tensors of a result, each with a node that gives it."""
        if isinstance(result, torch.Tensor):
            self._made(result, node)
            return [(node, result)]
        found = []
        if isinstance(result, (tuple, list)):
            for position, part in enumerate(result):
                if _all_tensors(part):
                    item = self._inside(self.graph.call_function(operator.getitem, (node, position)))
                    found += self._results(part, item)
        elif _all_tensors(result):
            raise refusal(self.name, f"{node.name} gives a {type(result).__name__}")
        return found

    def _made(self, tensor: torch.Tensor, node: fx.Node) -> None:
        if id(tensor) not in self.owned:
            self.made[id(tensor)] = weakref.ref(tensor), node

    def _node(self, tensor: torch.Tensor) -> fx.Node:
        """The node that gives a tensor."""
        seen, node = self.made.get(id(tensor), (None, None))
        if seen is not None and node is not None and seen() is tensor:
            return node
        if id(tensor) in self.owned:
            return self._read(self.owned[id(tensor)])
        if tensor.grad_fn is not None:
            raise refusal(self.name, f"a tensor made by {tensor.grad_fn.name()} comes from no function of torch")
        self.owned[id(tensor)] = f"{_CONSTANTS}.{self._hold(tensor)}"
        return self._read(self.owned[id(tensor)])

    def _read(self, path: str) -> fx.Node:
        if path not in self.read:
            self.read[path] = self.graph.create_node("get_attr", path)
            self.varying.learns(self.read[path])
        return self.read[path]

    def _hold(self, value: Any) -> str:
        name = f"c{len(self.constants.__dict__) + len(self.constants._parameters)}"
        setattr(self.constants, name, value)
        return name

    def _constant(self, value: Any) -> fx.Node:
        """The node of a value that a graph cannot write down."""
        return self.graph.create_node("get_attr", f"{_CONSTANTS}.{self._hold(value)}")

    def _argument(self, value: Any) -> Any:
        """An argument with nodes in place of tensors."""
        if isinstance(value, torch.Tensor):
            return self._node(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._argument, value))
        if isinstance(value, (tuple, list)):
            parts = map(self._argument, value)
            return list(parts) if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: self._argument(held) for key, held in value.items()}
        if isinstance(value, slice):
            return slice(*map(self._argument, (value.start, value.stop, value.step)))
        return value if type(value) in _WRITTEN else self._constant(value)

    def ended(self, output: Any) -> tuple[fx.GraphModule, Answers]:
        """The finished graph, and the questions that the model asked."""
        check_value(output, self.name, self.device)
        leaves, form = eager.flatten_tree(output)
        if output is (leaves[0] if leaves else None):
            self.graph.output(self._argument(output))
        else:
            self.graph.output(
                self.graph.call_function(call, (self._constant(Rebuilt(form)), *map(self._argument, leaves)))
            )
        self.root.add_module(_CONSTANTS, self.constants)
        answers = Answers(fx.GraphModule(self.root, self._questions()), tuple(answer for _, answer in self.asked))
        asked = {node for node, _ in self.asked}
        for node in reversed(self.graph.nodes):
            if not node.users and (node in asked or node.target is operator.getitem):
                self.graph.erase_node(node)
        return fx.GraphModule(self.root, self.graph), answers

    def _questions(self) -> fx.Graph:
        """The graph of the questions and of all that they are computed from."""
        needed = {node for node, _ in self.asked}
        for node in reversed(self.graph.nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in self.graph.nodes:
            if node in needed or node.op == "placeholder":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node, _ in self.asked))
        return graph


# Types of the values that a graph can write down.
_WRITTEN = frozenset(
    (
        *(bool, int, float, complex, str, type(None), type(Ellipsis), range),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    )
)


def _held(root: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters and buffers with their paths. Of several paths to one tensor, the first comes last."""
    every = [*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False)]
    return reversed(every)


def _names(function: Any) -> tuple[str, str]:
    """A function's name, and the name of the attribute where the function reads one."""
    name = getattr(function, "__name__", type(function).__name__)
    return name, function.__self__.__name__ if name == "__get__" else ""


def _all_tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in an argument or a result."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, slice):
        value = [value.start, value.stop, value.step]
    return [tensor for part in value for tensor in _all_tensors(part)] if isinstance(value, (tuple, list)) else []
