"""A pass that Inductor runs on each graph before it makes kernels of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from torch._inductor.custom_graph_pass import CustomGraphPass


class PostGradPass(CustomGraphPass):
    """Changes the forward and the backward graph after torch's own passes and after those that the user has set."""

    def __init__(self, change: Callable[[fx.Graph], object], identity: Callable[[], bytes], before: Any = None) -> None:
        self._change = change
        self._identity = identity
        self._before = _passes(before)

    def __call__(self, graph: fx.Graph) -> None:
        """Changes the graph in place."""
        for before in self._before:
            before(graph)
        self._change(graph)

    def uuid(self) -> Any:
        """An id that differs whenever the change may; ``None``, and nothing is cached, if another pass has none."""
        others = [before.uuid() if isinstance(before, CustomGraphPass) else None for before in self._before]
        return None if None in others else (self._identity(), *others)


def _passes(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, (list, tuple)) else [given]
