"""Compiled architectures that people use: forward and backward, with and without a budget, as the program not compiled.

Models of images compute in double precision, so that another order of sums shows in the last digits only. Those of
transformers normalize in single precision whatever they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
from architectures import ARCHITECTURES
from compiled import generates_code
from torch import Tensor, nn
from true_peak import true_peak

pytestmark = [generates_code, pytest.mark.usefixtures("nothing_compiled_before")]

# Each takes half a minute and more to compile: with --all only.
CASES = [pytest.param(name, kind, marks=pytest.mark.full) for name in ARCHITECTURES for kind in ("free", "budget")]


def step(model: Callable[..., Tensor], module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The loss of a training step, its gradients, and the buffers after it."""
    leaf = x.detach().requires_grad_()
    loss = model(leaf).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    found = {"loss": loss.detach(), "input": leaf.grad}
    found |= {name: parameter.grad for name, parameter in module.named_parameters()}
    module.zero_grad()
    return {name: value for name, value in found.items() if value is not None}


def within(module: nn.Module, x: Tensor) -> Any:
    """The model compiled for three quarters of what it takes by itself, or for what is named if that is too little."""
    with true_peak() as plain:
        step(module, module, x)
    budget = plain.base + 3 * (plain.highest - plain.base) // 4
    run = remat.compile(module, budget=budget)
    if named := smallest(run, x):
        torch._dynamo.reset()
        budget = named + 2**16  # what is resident differs by scalars
        run = remat.compile(module, budget=budget)
    for _ in range(3):
        step(run, module, x)
    with true_peak() as peak:
        step(run, module, x)
    assert peak.highest <= budget
    return run


def smallest(run: Callable[..., Tensor], x: Tensor) -> int | None:
    """The smallest budget that is named where the one given is refused; what the error keeps is gone then."""
    try:
        run(x.detach().requires_grad_())
    except remat.BudgetError as refused:
        return refused.smallest
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, kind", CASES)
def test_compiled_as_not_compiled(name: str, kind: str) -> None:
    package, make = ARCHITECTURES[name]
    pytest.importorskip(package)
    torch.manual_seed(1)
    module, x = make()
    single = package == "transformers"
    close = {"rtol": 1e-4, "atol": 1e-5} if single else {"rtol": 1e-6, "atol": 1e-8}
    dtype = torch.float32 if single else torch.float64
    module, x = module.to(dtype).train(), x.to(dtype)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    wanted = step(module, module, x)
    after = {key: value.clone() for key, value in module.state_dict().items()}
    module.load_state_dict(before)
    run = remat.compile(module) if kind == "free" else within(module, x)
    module.load_state_dict(before)
    found = step(run, module, x)
    assert run.report().cuts
    assert found.keys() == wanted.keys() and len(wanted) > 2
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, **close, msg=lambda text, key=key: f"{key}: {text}")
    for key, value in module.state_dict().items():
        torch.testing.assert_close(value, after[key], **close)
