"""Inductor with our partitioner, for one compilation at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from .partitioner import Partitioner


def compile_graph(gm: fx.GraphModule, inputs: Any, partitioner: Partitioner, options: dict[str, Any]) -> Any:
    """A graph of Dynamo's, compiled. ``options`` are names and values of ``torch._inductor.config``."""
    from torch._inductor.compile_fx import compile_fx

    patches = {name.replace("-", "_"): value for name, value in options.items()}
    return compile_fx(gm, inputs, config_patches={**patches, "custom_partitioner_fn": partitioner})


def mode_options(mode: str | None, dynamic: bool | None) -> dict[str, Any]:
    """The options that a ``mode`` of ``torch.compile`` stands for."""
    if mode is None or mode == "default":
        return {}
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode, dynamic))


def register(name: str, backend: Callable[..., Any]) -> None:
    """Makes ``torch.compile(.., backend=name)`` find the backend; it does not matter who came first."""
    from torch._dynamo.backends import registry

    if name not in registry._COMPILER_FNS:
        registry.register_backend(backend, name=name)


def compiler_missing() -> Exception | None:
    """Torch's own error where there is no C++ compiler, which code for the CPU needs."""
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        return error
    return None
