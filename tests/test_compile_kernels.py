"""Values that kernels compute again instead of reading them from one another."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from compiled import generates_code
from remat._compiled.capture.cut import choose
from remat._compiled.fusion.between_kernels import recompute_between_kernels
from remat._torch_internals import compiler
from torch import fx, nn
from torch._inductor.graph import GraphLowering
from torch.fx.experimental.proxy_tensor import make_fx

ROWS, COLUMNS = 64, 32


def scaled(x: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """Of more factors than Inductor has every reader read anew."""
    for factor in factors:
        x = x * factor
    return x


def normalized(x: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """Reads what was scaled before and after a sum over the rows."""
    y = scaled(x, *factors)
    return y / y.sum(0)


def traced(function: Callable[..., Any], *inputs: torch.Tensor) -> fx.Graph:
    graph: fx.Graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    return graph


def operands() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS), *(torch.randn(COLUMNS) for _ in range(5))]


def ops(graph: fx.Graph) -> list[str]:
    return [str(node.target).split(".")[1] for node in graph.nodes if node.op == "call_function"]


def test_each_reader_computes_what_was_written_for_several() -> None:
    graph = traced(normalized, *operands())
    before = ops(graph)
    (done,) = recompute_between_kernels(graph, hold_nothing_longer=False)
    # Written, and read twice; now the input is read once more than before.
    assert done.bytes == (3 - 1) * ROWS * COLUMNS * 4 - 5 * COLUMNS * 4
    assert ops(graph).count("mul") == 2 * before.count("mul")
    inputs = operands()
    module = fx.GraphModule(nn.Module(), graph)
    assert torch.equal(module(*inputs), normalized(*inputs))


def test_nothing_is_held_longer_where_a_budget_counts() -> None:
    def kept(x: torch.Tensor, *factors: torch.Tensor) -> Any:
        return (normalized(x, *factors), x, *factors)

    assert recompute_between_kernels(traced(normalized, *operands()), hold_nothing_longer=True) == []
    assert recompute_between_kernels(traced(kept, *operands()), hold_nothing_longer=True)


def normalized_twice(x: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """Values that the second change would compute again read some that the first one does."""
    return normalized(normalized(x, *factors), *factors)


def of_two_kernels(x: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    """An op reads values of two kernels, both of which it could compute itself."""
    y = scaled(x, *factors)
    z = scaled(y.sum(0) + x, *factors)
    return y * z / z.sum(0)


def one_after_the_other(x: torch.Tensor, *factors: torch.Tensor) -> Any:
    """The second change would hold the input longer than its last reader, which follows on the first change."""
    first = normalized(x, *factors) + x
    return first, normalized(x.cos(), *factors), factors


@pytest.mark.parametrize("function", [normalized_twice, of_two_kernels, one_after_the_other])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_changes_follow_on_others(function: Callable[..., Any], strict: bool, kept: bool) -> None:
    def whole(*inputs: torch.Tensor) -> Any:
        return function(*inputs), inputs if kept else None

    graph = traced(whole, *operands())
    done = recompute_between_kernels(graph, hold_nothing_longer=strict)
    assert bool(done) == (kept or not strict or function is one_after_the_other)
    assert not [node for node in graph.nodes if node.op == "call_function" and not node.users]
    graph.lint()  # type: ignore[no-untyped-call]
    inputs = operands()
    found, wanted = fx.GraphModule(nn.Module(), graph)(*inputs), whole(*inputs)
    for one, other in zip(*map(pytree.tree_leaves, (found, wanted)), strict=True):
        assert one is other or torch.equal(one, other)


def written_to(x: torch.Tensor, *factors: torch.Tensor) -> torch.Tensor:
    result = normalized(x, *factors)
    torch.ops.aten.copy_.default(x, result)
    return result


def returned(x: torch.Tensor, *factors: torch.Tensor) -> Any:
    y = scaled(x, *factors)
    return y / y.sum(0), y


LEFT: dict[str, Callable[..., Any]] = {
    "returned anyway": returned,
    "random": lambda x, *f: normalized(torch.rand_like(x), *f),
    "what Inductor has readers compute anyway": lambda x, *f: normalized(x, f[0]),
    "rounded where it is written": lambda x, *f: normalized(x.bfloat16(), *(one.bfloat16() for one in f)),
    "written to": written_to,
    "computed longer than it is read": lambda x, *f: (y := x.tanh()) / y.sum(0),
}


@pytest.mark.parametrize("why", LEFT)
def test_the_rest_is_left_as_it_is(why: str) -> None:
    graph = traced(LEFT[why], *operands())
    before = ops(graph)
    assert recompute_between_kernels(graph, hold_nothing_longer=False) == []
    assert ops(graph) == before


class Block(nn.Module):
    """Its backward pass reads a part of the activation, which is written, told apart from the convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.silu(self.norm(self.first(x))))


def compiled(model: Callable[..., Any], on: bool, name: str) -> Callable[..., Any]:
    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        partitioner = compiler.Partitioner(choose(lambda cut: None), lambda: f"{name} {on}".encode())
        change = (lambda graph: recompute_between_kernels(graph, hold_nothing_longer=False)) if on else None
        return compiler.compile_graph(gm, inputs, partitioner, {"force_disable_caches": True}, change)

    torch._dynamo.reset()
    return torch.compile(model, backend=backend)


class NotCompiled(Exception):
    """There is code, and nothing that runs."""


def not_compiled(*_inputs: Any) -> None:
    raise NotCompiled


def test_inductor_counts_fewer_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def count(lowering: GraphLowering) -> Any:
        lowering.codegen()
        counted.append(lowering.count_bytes()[0])
        return SimpleNamespace(call=not_compiled, runner=None, __file__="")

    monkeypatch.setattr(GraphLowering, "compile_to_module", count)
    model, x = Block(), torch.randn(4, 4, 32, 32)
    for on in (False, True):
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True), pytest.raises(NotCompiled):
            compiled(model, on, "bytes")(x)
    plain_forward, plain_backward, forward, backward = counted
    assert forward <= plain_forward
    assert backward < 0.9 * plain_backward


@generates_code
@pytest.mark.usefixtures("nothing_compiled_before")
def test_bits_are_the_same_with_and_without() -> None:
    model, found = Block(), []
    for on in (False, True):
        x = torch.linspace(-2, 2, 4 * 4 * 32 * 32).reshape(4, 4, 32, 32).requires_grad_()
        out = compiled(model, on, "bits")(x)
        gradients = torch.autograd.grad(out.square().sum(), [x, *model.parameters()])
        found.append([out, *gradients])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
