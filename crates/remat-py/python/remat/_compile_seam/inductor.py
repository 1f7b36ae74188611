"""Inductor with our partitioner, for one compilation at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import fx

from .._errors import RematError
from .partitioner import Partitioner
from .post_grad import PostGradPass

_POST_GRAD = "post_grad_custom_post_pass"


def compile_graph(
    gm: fx.GraphModule,
    inputs: Any,
    partitioner: Partitioner,
    options: dict[str, Any],
    change: Callable[[fx.Graph], object] | None = None,
) -> Any:
    """A graph of Dynamo's, compiled. ``options`` are names and values of ``torch._inductor.config``.

    ``change`` is made to the forward and to the backward graph; the partitioner's id says which change it is."""
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx

    patches = {name.replace("-", "_"): value for name, value in options.items()}
    patches["custom_partitioner_fn"] = partitioner
    if change is not None:
        before = patches.get(_POST_GRAD, getattr(config, _POST_GRAD))
        patches[_POST_GRAD] = PostGradPass(change, partitioner.uuid, before)
    return compile_fx(gm, inputs, config_patches=patches)


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
