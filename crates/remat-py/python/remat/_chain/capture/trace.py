"""A forward pass traced symbolically (``torch.fx``), for inputs of any shape; modules that resist stay whole."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from ..._errors import reraise_interrupt
from ..._torch_internals import eager
from .replay import Rebuilt, call

# The largest share of all innermost modules that may lie inside one module that stays whole.
_LARGEST = 0.6


class Call(nn.Module):
    """The model as a function of one value, so that it can be traced."""

    def __init__(self, model: nn.Module, sample: Any) -> None:
        super().__init__()
        self.model = model
        self.keys = list(sample) if isinstance(sample, dict) else None
        self.count = len(sample) if isinstance(sample, tuple) else None

    def forward(self, value: Any) -> Any:
        """The model's output."""
        if self.keys is not None:
            return self.model(**{key: value[key] for key in self.keys})
        if self.count is not None:
            return self.model(*[value[index] for index in range(self.count)])
        return self.model(value)


class _Tracer(fx.Tracer):
    """Traces into every module that is not closed; keeps the innermost one whose tracing failed."""

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

    def create_arg(self, a: Any) -> Any:
        if not isinstance(a, dict) or type(a) is dict:
            return super().create_arg(a)
        leaves, form = eager.flatten_tree(a)  # such as Hugging Face's outputs, of which fx would make plain dicts
        name = f"form{len(self.graph.nodes)}"
        setattr(self.root, name, Rebuilt(form))
        return super().create_arg(
            self.create_proxy("call_function", call, (self.create_proxy("get_attr", name, (), {}), *leaves), {})
        )


def traced(root: Call) -> fx.GraphModule | None:
    """The forward pass; ``None`` where it cannot be traced, or most of it lies inside one module that stays whole."""
    closed: set[int] = set()
    for _ in root.modules():
        tracer = _Tracer(closed)
        try:
            graph = fx.GraphModule(root, tracer.trace(root))
        except Exception as error:  # a module may raise anything when it is called on proxies
            reraise_interrupt(error)
            if tracer.failed is None or tracer.failed is root.model:
                return None
            closed.add(id(tracer.failed))
        else:
            return None if _too_large(graph, root) else graph
    return None


def _too_large(graph: fx.GraphModule, root: Call) -> bool:
    called = [graph.get_submodule(str(node.target)) for node in graph.graph.nodes if node.op == "call_module"]
    every = _innermost(root)
    return any(_innermost(module) > max(1, _LARGEST * every) for module in called)


def _innermost(module: nn.Module) -> int:
    return sum(not any(True for _ in inside.children()) for inside in module.modules())
