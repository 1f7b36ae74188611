"""Dry runs of the Python that Inductor generates around its kernels: without kernels, on tensors without memory.

A dry run makes and drops tensors exactly as the real run does, and in place where the real run is. It so counts the
bytes that a compiled graph will allocate, before the graph first runs. Workspace of ops outside of kernels is not
counted.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode

from .sizes import number_of

_MADE_BY = "async_compile"


@dataclass(frozen=True)
class Call:
    """An op outside of kernels, with the bytes allocated when it is over; tensors among its arguments are fake."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    there: int


@dataclass(frozen=True)
class Taken:
    """Bytes of one run of a graph: of its tensors, its results, and the inputs that it alone holds."""

    #: Bytes when it begins.
    before: int
    #: Most bytes at once, without workspace of ops outside of kernels.
    peak: int
    #: Bytes when it is over.
    after: int
    #: Bytes of the gradients that it is handed.
    gradients: int
    #: Bytes when it is over and the gradients that it was handed are dropped.
    left: int
    #: Numbers of the results that are inputs, or views of inputs.
    handed_through: frozenset[int]
    calls: list[Call]
    #: What it returned; tensors without memory.
    results: list[Any]


def dry_run(
    source: str, inputs: Sequence[Any], own: Callable[[str], bool], handed: Mapping[str, torch.Tensor] | None = None
) -> Taken:
    """The bytes that generated code takes.

    ``own`` says of an input, by its name, whether the graph alone holds it and can free it. ``handed`` are tensors
    without memory that inputs of these names are: views of one block stay views of one block. Raises the error of an op
    that cannot run without memory.
    """
    code = ast.parse(source)
    function, names = main_function(code)
    with FakeTensorMode(allow_non_fake_inputs=True):
        given = _without_memory(names, inputs, handed or {})
        memory = Memory()
        for name, value in zip(names, given, strict=True):
            if isinstance(value, torch.Tensor):
                memory.watch(value, counted=own(name))
        held = [value for name, value in zip(names, given, strict=True) if not own(name)]
        entered = {value.untyped_storage()._cdata for value in held if isinstance(value, torch.Tensor)}
        tangents = [value for name, value in zip(names, given, strict=True) if name.startswith("tangents_")]
        gradients = sum(value.untyped_storage().nbytes() for value in tangents if isinstance(value, torch.Tensor))
        value = None
        scope = kernel_scope(code)
        exec(compile(ast.Module([function], []), "<generated>", "exec"), scope)  # torch wrote it, and would run it
        before = memory.peak = memory.level
        with memory:
            results = list(scope["call"](None, given))
        through = {
            number
            for number, result in enumerate(results)
            if isinstance(result, torch.Tensor) and result.untyped_storage()._cdata in entered
        }
        after = memory.level
        tangents.clear()
        return Taken(before, memory.peak, after, gradients, memory.level, frozenset(through), memory.calls, results)


def main_function(code: ast.Module) -> tuple[ast.FunctionDef, list[str]]:
    """The function that is called, with ``self`` first, and the names of its inputs."""
    for node in ast.walk(code):
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            if len(node.args.args) == 1:
                node.args.args.insert(0, ast.arg("self", lineno=node.lineno, col_offset=0))
            return node, _names(node)
    raise ValueError("generated code without a function named call")


def _names(function: ast.FunctionDef) -> list[str]:
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Name) and statement.value.id == "args":
            (target,) = statement.targets
            elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
            return [element.id for element in elements if isinstance(element, ast.Name)]
    return []


def kernel_scope(code: ast.Module) -> dict[str, Any]:
    """The names that the function refers to; kernels among them do nothing."""
    scope: dict[str, Any] = {}
    kept: list[ast.stmt] = []
    for node in code.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kept.append(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id != "call":
            if any(isinstance(part, ast.Name) and part.id == _MADE_BY for part in ast.walk(node.value)):
                scope[node.targets[0].id] = _Nothing()
            elif node.targets[0].id not in (_MADE_BY, "runner", "recursively_apply_fns"):
                kept.append(node)
    kernels = dict(scope)
    exec(compile(ast.Module(kept, []), "<generated>", "exec"), scope)
    for name in scope:
        if name.startswith("assert_"):
            scope[name] = _nothing
        elif name.startswith("empty_strided_"):
            scope[name] = _maker(name.removeprefix("empty_strided_"))
    scope["reinterpret_tensor"] = torch.as_strided
    return {**scope, **kernels}


class _Nothing:
    """A kernel: called by itself, or through its method ``run``."""

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        return None

    run = __call__


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


def _maker(kind: str) -> Callable[..., torch.Tensor]:
    device = "cpu" if kind.startswith("cpu") else kind
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)


def _without_memory(names: Sequence[str], inputs: Sequence[Any], handed: Mapping[str, torch.Tensor]) -> list[Any]:
    """Inputs as tensors without memory; those that are handed share blocks as they do there."""
    blocks: dict[int, torch.Tensor] = {}
    given = []
    for name, value in zip(names, inputs, strict=True):
        tensor = handed.get(name)
        if tensor is None:
            given.append(without_memory(value))
            continue
        storage = tensor.untyped_storage()
        if storage._cdata not in blocks:
            blocks[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8, device=tensor.device)
        block = blocks[storage._cdata]
        whole = block[: block.numel() - block.numel() % tensor.element_size()].view(tensor.dtype)
        given.append(whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
    return given


def without_memory(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return number_of(value) if isinstance(value, torch.SymInt) else value
    size, stride = [number_of(n) for n in value.shape], [number_of(n) for n in value.stride()]
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)


class Memory(TorchDispatchMode):
    """Counts the bytes of living storages."""

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[int, weakref.ref[Any]] = {}
        self.level = self.peak = 0
        self.calls: list[Call] = []

    def watch(self, tensor: torch.Tensor, *, counted: bool = True) -> None:
        """Counts a tensor's storage until nothing refers to it; one that the graph does not own is not ``counted``."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.there:
            return
        size = storage.nbytes() if counted else 0
        self.level += size

        def freed(_: Any) -> None:
            del self.there[key]
            self.level -= size

        self.there[key] = weakref.ref(storage, freed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in pytree.tree_leaves(result):
            if isinstance(value, torch.Tensor):
                self.watch(value)
        self.peak = max(self.peak, self.level)
        if takes_workspace(func):
            # The arguments are copied: kept, they would keep the storages that they share with others alive.
            args, kwargs = pytree.tree_map(without_memory, (args, kwargs or {}))
            self.calls.append(Call(func, args, kwargs, self.level))
        return result


def takes_workspace(op: Any) -> bool:
    """Whether an op computes something, and so may take workspace."""
    return not op.is_view and op not in _MAKE


_MAKE = {torch.ops.aten.empty_strided.default, torch.ops.prim.device.default}


def call_of(node: fx.Node) -> Call:
    """The op of a node, as a call on tensors without memory."""

    def argument(value: Any) -> Any:
        return pytree.tree_map(without_memory, value.meta.get("val")) if isinstance(value, fx.Node) else value

    with FakeTensorMode():
        args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), argument)
    return Call(node.target, args, dict(kwargs), 0)


def outside_of_compilation() -> AbstractContextManager[Any]:
    """Runs Remat's own ops with memory, while the compiler traces with tensors that have none."""
    return unset_fake_temporarily()


def signature(call: Call) -> str:
    """A text that is the same for calls that take the same workspace."""
    return repr((str(call.op), pytree.tree_map(_spelled, (call.args, call.kwargs))))


def _spelled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device
    return value


def on_zeros(call: Call, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], tuple[Any, int | None]]) -> int | None:
    """Runs an op on zeros and returns its workspace in bytes; random streams stay as they are."""
    with torch.no_grad():
        args, kwargs = pytree.tree_map(_zeros, (call.args, call.kwargs))
        devices = {leaf.device for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        accelerated = [device for device in devices if device.type != "cpu"]
        kind = accelerated[0].type if accelerated else "cuda"  # as torch itself takes it without devices
        with torch.random.fork_rng([device for device in accelerated if device.type == kind], device_type=kind):
            return run(call.op, args, kwargs)[1]


def _zeros(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()
