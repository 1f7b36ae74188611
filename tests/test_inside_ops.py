"""A run is asked and changed between ops; from within one it refuses, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import native
import pytest
import remat
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

ASKS: dict[str, Callable[[remat.Run], object]] = {
    "stats": lambda run: run.stats(),
    "set_budget": lambda run: run.set_budget("32MiB"),
    "mark": lambda run: run.mark("amid an op"),
    "step": lambda run: run.step(),
}


class Asking(TorchDispatchMode):
    """Calls a function when it sees the next op."""

    ask: Callable[[], object] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ask, self.ask = self.ask, None
        if ask is not None:
            ask()
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ASKS)
def test_from_a_mode_that_sees_the_ops_of_the_budget(name: str) -> None:
    """The mode lies above the key of native dispatch: it sees an op before the budget does, so it may ask."""
    x, asking, refused, answered = torch.ones(1000), Asking(), [], []

    def ask() -> None:
        try:
            ASKS[name](run)
        except remat.RematError as error:
            refused.append(str(error))
        else:
            answered.append(name)

    with asking, remat.budget("64MiB") as run:
        asking.ask = ask
        assert (x * 2).sum() == 2000
        native = run.stats().dispatch == "native"
        assert run.stats().budget == (32 if native and name == "set_budget" else 64) << 20
    if native:
        assert (answered, refused) == ([name], [])
    else:
        assert not answered
        assert [f"Run.{name}() was called from within an op" in message for message in refused] == [True]


def test_between_the_ops_of_an_autograd_function() -> None:
    seen: list[remat.Stats] = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            seen.append(run.stats())
            run.set_budget("32MiB")
            run.mark("amid a function")
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            seen.append(run.stats())
            return gradients[0] * 2

    x = torch.ones(1000, requires_grad=True)
    with remat.budget("64MiB") as run:
        Doubled.apply(x).sum().backward()  # type: ignore[no-untyped-call]
    assert [stats.budget for stats in seen] == [64 << 20, 32 << 20]
    assert 0 <= seen[0].ops < seen[1].ops
    assert x.grad is not None and torch.equal(x.grad, torch.full((1000,), 2.0))


class Came(BaseException):
    """Raised by the handler of a signal."""


def test_an_interrupt_while_a_class_is_defined_is_not_lost() -> None:
    """As when torch imports a module to work out a shape; up to 3.11 Python makes a ``RuntimeError`` of it."""

    class Interrupted:
        def __set_name__(self, owner: type, name: str) -> None:
            signal.raise_signal(signal.SIGUSR1)

    def handler(*_: object) -> None:
        raise Came

    def shape(x: Tensor) -> Tensor:
        if signal.getsignal(signal.SIGUSR1) is handler:
            type("Defined", (), {"field": Interrupted()})
        return torch.empty_like(x)

    with torch.library._scoped_library("remat_tests", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", shape, "Meta")
        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with remat.budget("64MiB") as run:
                x = torch.ones(1000)
                with pytest.raises(Came):
                    torch.ops.remat_tests.twice(x)
                signal.signal(signal.SIGUSR1, before)
                assert torch.ops.remat_tests.twice(x).sum() == 2000
                assert run.stats().ops > 0
        finally:
            signal.signal(signal.SIGUSR1, before)


def test_compiled_code_has_none_of_remats_own_functions_compiled() -> None:
    torch._dynamo.reset()
    counters.clear()
    compiled, x = torch.compile(lambda x: torch.mm(x.sin().exp(), x).cos() + 1, backend="eager"), torch.ones(8, 8)
    with remat.budget("64MiB") as run:
        compiled(x)
    assert run.stats().ops >= 5
    # Under a dispatch mode, torch compiles nothing.
    assert counters["frames"]["total"] == (1 if run.stats().dispatch == "native" else 0)


FOREACH: dict[str, Callable[[Tensor], object]] = {
    "mul": lambda y: torch._foreach_mul_([y], 2.0),
    "copy": lambda y: torch._foreach_copy_([y], [torch.zeros_like(y)]),
    "zero": lambda y: torch._foreach_zero_([y]),
    "addcmul": lambda y: torch._foreach_addcmul_([y], [y.clone()], [y.clone()]),
}


@native.needed
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("change", FOREACH.values(), ids=FOREACH)
def test_a_saved_tensor_that_an_op_on_lists_changed_is_an_error_as_in_plain_eager(
    change: Callable[[Tensor], object],
) -> None:
    """Its version is counted by the ops within the op, the first time too."""
    with remat.budget("64MiB"):
        for _ in range(3):
            w = torch.ones(64, 64, requires_grad=True)
            y = w.exp()  # saves its result
            with torch.no_grad():
                change(y)
            assert y._version == 1
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
