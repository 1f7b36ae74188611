"""Inductor with our partitioner, for one compilation at a time."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.utils._pytree as pytree
from torch import fx

from ..._errors import RematError
from .partitioner import Partitioner
from .post_grad import PostGradPass

_POST_GRAD = "post_grad_custom_post_pass"


@dataclass(frozen=True)
class Generated:
    """Code that Inductor made of the forward or the backward pass of a graph."""

    backward: bool
    source: str
    #: Tensors, whose shapes alone count, and sizes.
    inputs: list[Any]
    #: Names of what it returns, as the other pass knows them; ``None`` for what is no node.
    results: list[str | None]


def compile_graph(
    gm: fx.GraphModule,
    inputs: Any,
    partitioner: Partitioner,
    options: dict[str, Any],
    change: Callable[[fx.Graph], object] | None = None,
) -> Any:
    """A graph of Dynamo's, compiled. ``options`` are names and values of ``torch._inductor.config``.

    ``change`` is made to the forward and to the backward graph; the partitioner's id says which change it is."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, inputs, config_patches=_patches(partitioner, options, change))


def generate_graph(
    gm: fx.GraphModule,
    inputs: Any,
    partitioner: Partitioner,
    options: dict[str, Any],
    change: Callable[[fx.Graph], object] | None,
    seen: Callable[[Generated], None],
) -> None:
    """As :func:`compile_graph`, but kernels are only written down: nothing is compiled that could run.

    ``seen`` is called with the code of each pass."""
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    patches = _patches(partitioner, options, change)
    patches.update(fx_graph_cache=False, fx_graph_remote_cache=False)

    def write_pass(gm: fx.GraphModule, inputs: Any, **kwargs: Any) -> Any:
        results = _results(gm)
        with _only_written() as written:
            try:
                compile_fx_inner(gm, inputs, **kwargs)
            except Exception:
                if not written:
                    raise
        seen(Generated(bool(kwargs.get("is_backward")), written[0], list(inputs), results))
        return _never_run

    with config.patch(_BOTH_AT_ONCE):
        compile_fx(_copied(gm), inputs, inner_compile=write_pass, config_patches=patches)


#: The backward pass is compiled along with the forward pass and not when it first runs, and neither is taken from the
#: cache of both.
_BOTH_AT_ONCE = {"force_non_lazy_backward_lowering": True, "enable_autograd_cache": False}


def _copied(gm: fx.GraphModule) -> fx.GraphModule:
    """With what Dynamo noted of its inputs: which of them are parameters."""
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
    """The code is there."""


@contextmanager
def _only_written() -> Iterator[list[str]]:
    """Inductor stops where it would compile its kernels."""
    from torch._inductor.graph import GraphLowering

    written: list[str] = []

    def stop(self: Any) -> Any:
        code, _ = self.codegen()
        written.append(code.value)
        raise _Written

    real = GraphLowering.compile_to_module
    GraphLowering.compile_to_module = stop  # type: ignore[method-assign]
    try:
        yield written
    finally:
        GraphLowering.compile_to_module = real  # type: ignore[method-assign]


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
    """What a backend raises is raised as it is, and not as an error of Dynamo's."""
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
    """A compiled module goes on with what another one of the same module compiles."""
    compiled.__dict__["dynamo_ctx"] = fresh.__dict__["dynamo_ctx"]
    compiled.__dict__["forward"] = plainly(fresh.__dict__["forward"])
