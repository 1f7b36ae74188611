"""Code compiled by torch stays compiled inside of a budget: each of its graphs is one op, which can run again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import remat
import torch
import torch._inductor.output_code as output_code
from native import needed
from process import PYTHON, ran
from torch import Tensor, nn
from torch._dynamo.utils import counters

pytestmark = needed


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("REMAT_DISPATCH", "native")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64))
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.inner(x))


def blocks(count: int = 6) -> nn.Sequential:
    """Blocks that are compiled one by one, so that each has a graph of its own in either pass.

    They are compiled anew, and not for what sizes were like before.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(count)))
    for block in model:
        block.compile()
    return model


def train(model: nn.Module, steps: int = 4, rows: Callable[[int], int] = lambda step: 512) -> list[Any]:
    """Losses, and the bytes of the model's state."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(rows(step), 64)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [*losses, *map(bits, model.state_dict().values())]


def bits(value: Any) -> Any:
    return (
        value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes() if isinstance(value, Tensor) else value
    )


def test_bits_are_those_of_the_compiled_program_and_bytes_bounded() -> None:
    plain, measured = train(blocks()), remat.measure(lambda: train(blocks()))
    for fraction, evicts in ((1.5, False), (0.75, True)):
        budget = measured.fraction(fraction)
        with remat.budget(budget) as run:
            assert train(blocks()) == plain
        stats = run.stats()
        assert (stats.evictions > 0, stats.recomputed > 0) == (evicts, evicts)
        assert stats.peak <= budget


@pytest.mark.parametrize("where", ["before", "inside"])
def test_nothing_is_compiled_more_than_once_for_a_budget(where: str) -> None:
    model = blocks(1)
    if where == "before":
        train(model, 1)
    for _ in range(2):
        with remat.budget("1GiB"):
            train(model)
        train(model)
    # Guards compare the dispatch keys of the thread: one variant inside of budgets and one outside.
    assert counters["frames"]["ok"] == counters["frames"]["total"] == 2
    assert counters["stats"]["unique_graphs"] == 2


def test_each_graph_is_one_op() -> None:
    step = torch.compile(lambda x: (x.sin().exp() + x).cos())
    x = torch.randn(64, 64)
    with remat.budget("1GiB") as run:
        step(x)
        before = run.stats().ops
        step(x)
        assert run.stats().ops == before + 1


def test_sizes_that_change() -> None:
    def rows(step: int) -> int:
        return 256 + 32 * step

    plain, measured = train(blocks(), 5, rows), remat.measure(lambda: train(blocks(), 5, rows))
    with remat.budget(measured.fraction(0.8)) as run:
        assert train(blocks(), 5, rows) == plain
    assert run.stats().recomputed > 0


def write(x: Tensor) -> Tensor:
    x.mul_(2)
    return x.sin()


def hand_through(x: Tensor) -> tuple[Tensor, Tensor, int]:
    return x, x[1:].t(), x.shape[0] * 2


def branch(x: Tensor) -> Any:
    return torch.cond(x.sum() > 300000, lambda x: x.sin(), lambda x: x.cos(), (x,))


def loop(x: Tensor) -> Any:
    def goes_on(count: Tensor, x: Tensor) -> Tensor:
        return count < x.min()

    return torch.while_loop(goes_on, lambda count, x: (count + 1, x * 0.9), (torch.tensor(0), x))


CALLS: dict[str, Callable[..., Any]] = {
    "writes to its input": write,
    "hands its input through": hand_through,
    "has no inputs": lambda x: torch.arange(65536.0).sin(),
    "draws random numbers": lambda x: torch.rand(256, 256) + x,
    "writes to a part": lambda x: write(x[:128]),
    "chooses a branch by data": branch,
    "loops as long as data says": loop,
    "has results sized by data": lambda x: x[x.sin() > 0].exp() + 1,
    "has a size among data": lambda x: torch.ones(int(x.sum().item())).cumsum(0),
}


@pytest.mark.parametrize("name", CALLS)
@torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
def test_calls(name: str) -> None:
    def results() -> list[Any]:
        torch.manual_seed(0)
        compiled = torch.compile(CALLS[name])
        values: list[Any] = []
        for number in range(12):
            x = torch.full((256, 256), float(number)).add(0.5)
            found = compiled(x)
            values += [x, *found] if isinstance(found, tuple) else [x, found]
        return values

    plain, measured = list(map(bits, results())), remat.measure(lambda: results() and None)
    with remat.budget(measured.fraction(0.6), policy="lru") as run:
        found = results()
        evicted = run.stats().evictions
    assert evicted > 0
    assert list(map(bits, found)) == plain


def test_without_autograd_and_after_the_budget() -> None:
    model, x = blocks(3), torch.randn(256, 64)
    model.eval()
    with torch.no_grad():
        plain = model(x)
        with remat.budget("1GiB"):
            kept = model(x)
        assert torch.equal(kept, plain) and torch.equal(model(x), plain)


def test_a_gradient_is_taken_after_the_budget() -> None:
    """The graph of the backward pass then runs without a budget."""
    plain, bounded = blocks(2), blocks(2)
    x = torch.randn(256, 64)
    torch.manual_seed(2)
    plain(x).sum().backward()
    torch.manual_seed(2)
    with remat.budget("1GiB"):
        loss = bounded(x).sum()
    loss.backward()
    for expected, parameter in zip(plain.parameters(), bounded.parameters(), strict=True):
        assert expected.grad is not None and parameter.grad is not None
        assert torch.equal(expected.grad, parameter.grad)


def test_graphs_for_cuda_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    step, x = torch.compile(lambda x: x.sin() + 1), torch.ones(8)
    with remat.budget("1GiB"):
        step(x)
        for graph in (one for one in gc.get_objects() if type(one) is output_code.CompiledFxGraph):
            monkeypatch.setattr(graph, "cudagraph_info", object())
        with pytest.raises(remat.RematError, match="compiled for CUDA graphs cannot run inside of a budget"):
            step(x)


def test_through_python_it_runs_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", "python")
    step, x = torch.compile(lambda x: (x.sin().exp() + x).cos()), torch.randn(64, 64)
    with remat.budget("1GiB") as run:
        step(x)
    assert run.stats().ops >= 4 and not counters["frames"]


def test_a_budget_loads_no_compiler() -> None:
    program = """
import sys, remat, torch, torch._dynamo
with remat.budget("1GiB"):
    torch.ones(8) + 1
print([name for name in ("torch._functorch.aot_autograd", "torch._inductor.output_code") if name in sys.modules])
"""
    done = ran([*PYTHON, "-c", program])
    assert done.out == "[]\n", done.err


def test_ops_within_a_budget_load_nothing() -> None:
    """Torch's rules for shapes load Dynamo and more when they are first applied, amid an op."""
    program = """
import sys, remat, torch
x = torch.randn(8, 8, requires_grad=True)
with remat.budget("1GiB"):
    before = set(sys.modules)
    y = torch.where(x > 0.1, x.exp() + x * 2, x).softmax(1).clamp(0, 1) / 3
    torch.nn.functional.gelu(y).pow(2).maximum(x).sum().backward()
    print(sorted(set(sys.modules) - before))
compiled = torch.compile(lambda x: torch._refs.exp(x) + 1, backend="eager")
print(torch.equal(compiled(x), x.exp() + 1))
"""
    done = ran([*PYTHON, "-c", program])
    assert done.out == "[]\nTrue\n", done.err


@pytest.mark.parametrize(
    "backend", ["inductor", *(pytest.param(one, marks=pytest.mark.full) for one in ("eager", "aot_eager"))]
)
def test_the_first_compilation_of_a_process_may_be_inside_of_a_budget(backend: str) -> None:
    program = f"""
import remat, torch, sys
torch.manual_seed(0)
linear = torch.nn.Linear(8, 8)
x = torch.randn(4, 8)
expected = linear(x).relu()
assert "torch._inductor.output_code" not in sys.modules
with remat.budget("1GiB"):
    compiled = torch.compile(lambda x: linear(x).relu(), backend={backend!r})
    assert torch.allclose(compiled(x), expected)
    compiled(x).sum().backward()
print("ran")
"""
    done = ran([*PYTHON, "-c", program])
    assert done.out == "ran\n", done.err
