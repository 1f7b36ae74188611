"""Inductor with Remat's partitioner, for one compilation at a time."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.utils._pytree as pytree
from torch import fx

from ..._errors import RematError, reraise_interrupt
from .partitioner import Partitioner
from .post_grad import PostGradPass

_POST_GRAD = "post_grad_custom_post_pass"


@dataclass(frozen=True)
class Generated:
    """The code that Inductor generated for the forward or the backward pass of a graph."""

    backward: bool
    source: str
    #: Tensors, of which only the shapes matter, and sizes.
    inputs: list[Any]
    #: Names of the results in both passes; ``None`` for a result that is no node.
    results: list[str | None]


def compile_graph(
    gm: fx.GraphModule,
    inputs: Any,
    partitioner: Partitioner,
    options: dict[str, Any],
    change: Callable[[fx.Graph], object] | None = None,
    rewrite: Callable[[bool, str], str] | None = None,
) -> Any:
    """Compiles a graph of Dynamo's. ``options`` are names and values of ``torch._inductor.config``.

    ``change`` changes the forward and the backward graph, ``rewrite`` the code of each; it is told whether that is the
    backward graph's. The partitioner's id covers both in the compile cache.
    """
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx

    patches = _patches(partitioner, options, change)
    if rewrite is None:
        return compile_fx(gm, inputs, config_patches=patches)
    with config.patch(force_non_lazy_backward_lowering=True), _rewritten(rewrite):
        return compile_fx(gm, inputs, config_patches=patches)


@contextmanager
def _rewritten(rewrite: Callable[[bool, str], str]) -> Iterator[None]:
    """Has Inductor compile other code than it generates."""
    from torch._inductor.graph import GraphLowering

    real = GraphLowering.codegen

    def codegen(self: Any) -> Any:
        code, kernels = real(self)
        code.value = rewrite(self.is_backward, code.value)
        code.line_map = []  # of lines that are no longer there
        return code, kernels

    GraphLowering.codegen = codegen  # type: ignore[method-assign]
    try:
        yield
    finally:
        GraphLowering.codegen = real  # type: ignore[method-assign]


def generate_graph(
    gm: fx.GraphModule,
    inputs: Any,
    partitioner: Partitioner,
    options: dict[str, Any],
    change: Callable[[fx.Graph], object] | None,
    seen: Callable[[Generated], None],
) -> None:
    """As :func:`compile_graph`, but stops once the code is written: no kernel is compiled.

    ``seen`` is called with the code of each pass.
    """
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    patches = _patches(partitioner, options, change)
    patches.update(fx_graph_cache=False, fx_graph_remote_cache=False)

    def write_pass(gm: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        results = _results(gm)
        with _only_written() as written:
            try:
                compile_fx_inner(gm, inputs, **kwargs)
            except Exception as error:
                reraise_interrupt(error)
                if not written:
                    raise
        seen(Generated(bool(kwargs.get("is_backward")), written[0], list(inputs), results))
        return _never_run

    with config.patch(_BOTH_AT_ONCE):
        compile_fx(_copied(gm), inputs, inner_compile=write_pass, config_patches=patches)


#: Has Inductor compile the backward pass along with the forward pass, rather than when it first runs, and without its
#: cache of both.
_BOTH_AT_ONCE = {"force_non_lazy_backward_lowering": True, "enable_autograd_cache": False}


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy that keeps Dynamo's notes on its inputs: which of them are parameters."""
    copied = fx.GraphModule(gm, copy.deepcopy(gm.graph))
    copied.meta.update(gm.meta)
    if hasattr(gm, "_param_name_to_source"):
        vars(copied)["_param_name_to_source"] = gm._param_name_to_source
    for node, original in zip(copied.graph.nodes, gm.graph.nodes, strict=True):
        if hasattr(original, "_dynamo_source"):
            node._dynamo_source = original._dynamo_source
    return copied


def _never_run(_inputs: Any) -> Any:
    raise AssertionError("code that was only written down does not run")


_never_run._boxed_call = True  # type: ignore[attr-defined]


class _Written(Exception):
    """Raised once the code is written."""


@contextmanager
def _only_written() -> Iterator[list[str]]:
    """Has Inductor stop where it would compile its kernels; the yielded list gets the code."""
    from torch._inductor.graph import GraphLowering

    written: list[str] = []

    def stop(self: Any) -> Any:
        code, _ = self.codegen()
        written.append(code.value)
        _report_strides(self)
        raise _Written

    real = GraphLowering.compile_to_module
    GraphLowering.compile_to_module = stop  # type: ignore[method-assign]
    try:
        yield written
    finally:
        GraphLowering.compile_to_module = real  # type: ignore[method-assign]


def _report_strides(lowering: Any) -> None:
    """Tells torch how the results of a forward pass are laid out: the backward pass is compiled for saved values so."""
    from torch._guards import TracingContext
    from torch._inductor.ir import IRNode

    context = TracingContext.try_get()
    if lowering.is_backward or context is None or context.output_strides is None:
        return
    for result in lowering.graph_outputs or []:
        tensor = isinstance(result, IRNode) and result.has_tensor_output()
        strides = tuple(result.get_layout().stride) if tensor else ()
        known = tensor and all(isinstance(stride, int) or stride.is_Integer for stride in strides)
        context.output_strides.append(tuple(int(stride) for stride in strides) if known else None)


def _results(gm: fx.GraphModule) -> list[str | None]:
    (output,) = gm.graph.find_nodes(op="output")
    returned = pytree.arg_tree_leaves(*output.args)
    return [value.name if isinstance(value, fx.Node) else None for value in returned]


def _patches(
    partitioner: Partitioner, options: dict[str, Any], change: Callable[[fx.Graph], object] | None
) -> dict[str, Any]:
    from torch._inductor import config

    patches = {name.replace("-", "_"): value for name, value in options.items()}
    patches["custom_partitioner_fn"] = partitioner
    if change is not None:
        before = patches.get(_POST_GRAD, getattr(config, _POST_GRAD))
        patches[_POST_GRAD] = PostGradPass(change, partitioner.uuid, before)
    return patches


def mode_options(mode: str | None, dynamic: bool | None) -> dict[str, Any]:
    """The options that a ``mode`` of ``torch.compile`` stands for."""
    if mode is None or mode == "default":
        return {}
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode, dynamic))


def plainly(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a call so that it raises ``RematError`` of the backend as it is, and not as an error of Dynamo's."""
    from torch._dynamo.exc import BackendCompilerFailed

    @functools.wraps(call)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except BackendCompilerFailed as error:
            if isinstance(error.inner_exception, RematError):
                raise error.inner_exception from None
            raise

    return called


def exchange(compiled: Any, fresh: Any) -> None:
    """Has a compiled module go on with the code of another one, compiled from the same module."""
    compiled.__dict__["dynamo_ctx"] = fresh.__dict__["dynamo_ctx"]
    compiled.__dict__["forward"] = plainly(fresh.__dict__["forward"])
