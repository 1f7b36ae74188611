"""The byte bound of compiled programs: what autograd and the program allocate around the compiled code."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from compiled import generates_code
from remat._compiled.budget.watch import Watch
from sample import some
from torch import Tensor, nn
from torch.profiler import profile
from true_peak import room, true_peak

pytestmark = [generates_code, pytest.mark.usefixtures("nothing_compiled_before")]

SIZE = 2**16
UNIT = 4 * SIZE
#: What is resident differs by scalars and the state of a random generator.
SLACK = 2**14


class Terms(nn.Module):
    """A function of parameters of 256 KiB."""

    def __init__(self, function: Callable[..., Tensor], *terms: Tensor) -> None:
        super().__init__()
        self.function = function
        self.terms = nn.ParameterList(terms)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.terms)


def vectors(count: int) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(SIZE) for _ in range(count)]


def square() -> Tensor:
    return torch.randn(256, 256)


class Loss(torch.autograd.Function):
    """A number whose gradient is a tensor of ones of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.size = x.shape
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_gradient: Tensor) -> Tensor:
        return torch.ones(ctx.size)


def step(run: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> None:
    """A training step in which the program holds the result, and nothing else."""
    result = run(x)
    Loss.apply(result).backward()
    del result
    model.zero_grad()
    x.grad = None


def named(model: nn.Module, x: Tensor) -> int:
    """The smallest budget that is named before anything ran."""
    torch._dynamo.reset()
    with pytest.raises(remat.BudgetError) as refused:
        remat.compile(model, budget=room(1))(x)
    torch._dynamo.reset()
    return refused.value.smallest


def peak_of(run: Any, model: nn.Module, x: Tensor) -> int:
    with true_peak() as peak:
        step(run, model, x)
    return peak.highest


SHARED = {
    "one for four parameters": lambda: (Terms(lambda x, a, b, c, d: (a + b + c + d).cos().cos() * x, *vectors(4)), 3),
    "one for two parameters, another for two": lambda: (
        Terms(lambda x, a, b, c, d: (a + b).sin() * (c + d).cos() * x, *vectors(4)),
        2,
    ),
    "one expanded": lambda: (Terms(lambda x, a, b: a.sum() * b.sin() * x, *vectors(2)), 1),
    "one that lies across": lambda: (Terms(lambda x, a: a.t().sin() * x, square().t()), 1),
    "a parameter used twice": lambda: (Terms(lambda x, a: a.sin() * a.cos() * x, *vectors(1)), 0),
    "each its own": lambda: (Terms(lambda x, a, b: a.sin() * b.cos() * x, *vectors(2)), 0),
}


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("kind", some(SHARED))
def test_copies_of_gradients_are_within_the_budget(kind: str) -> None:
    model, _ = SHARED[kind]()
    x = torch.ones(1)
    budget = named(model, x) + SLACK
    run = remat.compile(model, budget=budget)
    for _ in range(4):
        step(run, model, x)
    taken = peak_of(run, model, x)
    assert taken <= budget
    assert taken >= budget - 2 * SLACK, "less would have been enough"


def test_a_gradient_is_copied_for_all_leaves_but_one() -> None:
    model, copies = SHARED["one for four parameters"]()
    x = torch.ones(1)
    run = remat.compile(model, budget="1GiB")
    step(run, model, x)
    (cut,) = run.report().cuts
    # The result, the gradient, its copies.
    assert cut.foreseen_bytes == (2 + copies) * UNIT


@pytest.mark.filterwarnings("error::UserWarning")
def test_leaves_among_the_inputs_get_copies_too() -> None:
    model = Terms(lambda x, a, b: (x + a + b).sin(), *vectors(2))
    x = torch.randn(SIZE, requires_grad=True)
    budget = named(model, x) + SLACK
    run = remat.compile(model, budget=budget)
    for _ in range(4):
        step(run, model, x)
    assert budget - 2 * SLACK <= peak_of(run, model, x) <= budget


@pytest.mark.filterwarnings("error::UserWarning")
def test_results_that_are_views_of_inputs_are_within_the_budget() -> None:
    model = Terms(lambda x, a, b: (a + b).sin().view(2, -1) + x.view(2, -1)[:, :1], *vectors(2))
    x = torch.randn(SIZE)
    budget = named(model, x) + SLACK
    run = remat.compile(lambda x: (model(x), x.view(2, -1)), budget=budget)
    for _ in range(4):
        step(lambda x: run(x)[0], model, x)
    assert peak_of(lambda x: run(x)[0], model, x) <= budget


def settled(model: nn.Module, x: Tensor, around: Callable[[Any], None]) -> tuple[Any, int]:
    """A compiled model within the smallest budget that works by what refusals name, and that budget."""
    budget = named(model, x) + SLACK
    for _ in range(3):
        torch._dynamo.reset()
        run = remat.compile(model, budget=budget)
        try:
            for _ in range(8):
                around(run)
        except remat.BudgetError as refused:
            budget = refused.smallest + SLACK
        else:
            return run, budget
    raise AssertionError("each budget that was named was refused")


@pytest.mark.filterwarnings("ignore:a compiled step took")
def test_a_loss_in_eager_code_is_within_the_budget_or_refused_with_one_that_works() -> None:
    model = Terms(lambda x, a, b: (a * b).sin() * x, *vectors(2))
    x = torch.ones(1)

    def around(run: Any) -> None:
        run(x).square().mean().backward()
        model.zero_grad()

    run, budget = settled(model, x, around)
    assert budget > named(model, x) + UNIT, "squares and their gradients are not in the code"
    with true_peak() as peak:
        around(run)
    assert budget - 2 * SLACK <= peak.highest <= budget


def test_a_shape_that_does_not_fit_is_refused_though_one_before_it_did() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    run = remat.compile(model, "1MiB")
    run(torch.randn(4, 16)).sum().backward()
    for _ in range(2):  # each time it is compiled
        with pytest.raises(remat.BudgetError) as refused:
            run(torch.randn(20_000, 16)).sum().backward()
        assert refused.value.smallest >= 20_000 * 16 * 4
    run(torch.randn(4, 16)).sum().backward()


def test_what_graphs_keep_for_their_backward_passes_is_known_after_planning_anew() -> None:
    watch = Watch(1 << 40, torch.device("cpu"), lambda _: None)
    run = watch.graph(torch.compile(lambda x: x.sin().sin(), backend="aot_eager"), 3)
    result = run(torch.ones(8, requires_grad=True))
    later = watch.renewed()
    assert later.between_passes() == {3}
    result.sum().backward()
    assert later.between_passes() == set()


@pytest.mark.filterwarnings("ignore:a compiled step took")
def test_gradients_that_hooks_keep_are_within_the_budget_or_refused_with_one_that_works() -> None:
    model = Terms(lambda x, a, b, c, d: a.sin() * b.cos() * c.sin() * d.cos() * x, *vectors(4))
    x = torch.ones(1)
    kept: list[Tensor] = []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: kept.append(gradient))

    def around(run: Any) -> None:
        step(run, model, x)
        kept.clear()

    run, budget = settled(model, x, around)
    with true_peak() as peak:
        around(run)
    # Four gradients that are kept, and their copies.
    assert peak.base + 8 * UNIT <= peak.highest <= budget


def test_a_step_that_takes_too_much_is_told_when_it_is_over() -> None:
    model = Terms(lambda x, a, b: (a * b).sin() * x, *vectors(2))
    x = torch.ones(1)
    run = remat.compile(model, budget=named(model, x) + SLACK)
    loss = run(x).square().mean()
    with pytest.warns(UserWarning, match="a compiled step took .* where .* are allowed"):
        loss.backward()
    model.zero_grad()
    with pytest.raises(remat.BudgetError) as refused:
        run(x)
    assert refused.value.smallest > refused.value.budget


def test_the_program_may_profile_any_part_of_a_step() -> None:
    model = Terms(lambda x, a, b: (a * b).sin() * x, *vectors(2))
    x = torch.ones(1)
    run = remat.compile(model, budget="1GiB")
    result = run(x)
    with profile(profile_memory=True) as backward:
        result.sum().backward()
    result = run(x)
    result.sum().backward()
    with profile(profile_memory=True) as after:
        torch.ones(4) + 1
    assert backward.events() and after.events()
    assert not torch.autograd._profiler_enabled()  # type: ignore[attr-defined]


@pytest.mark.parametrize("of", ["a module", "a function"])
def test_what_was_refused_is_freed(of: str) -> None:
    def refused() -> list[weakref.ref[Any]]:
        model = Terms(lambda x, a, b: (a + b).sin() * x, *vectors(2))
        with pytest.raises(remat.BudgetError):
            remat.compile(model if of == "a module" else lambda x: model(x), budget=room(1))(torch.ones(1))
        return [weakref.ref(it) for it in (model, *model.terms)]

    references = refused()
    torch._dynamo.reset()
    gc.collect()
    assert [it() for it in references] == [None] * len(references)


def test_a_refused_graph_is_reported_as_one() -> None:
    model = Terms(lambda x, a, b: (a + b).sin() * x, *vectors(2))
    run = remat.compile(model, budget=room(1))
    with pytest.raises(remat.BudgetError):
        run(torch.ones(1))
    report = run.report()
    assert str(report) == "graph 0: refused, and not compiled"
    assert json.loads(report.json())["graphs"] == [{"graph": 0, "cut": False, "from_cache": False, "refused": True}]
