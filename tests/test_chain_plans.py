"""Plans in words and in files; what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from bits import bits, differences
from chains import loss_of, made
from torch import nn


@pytest.fixture(autouse=True)
def _one_thread(_limited_and_seeded: None) -> None:
    torch.set_num_threads(1)


def layers(width: int = 32, count: int = 6) -> nn.Sequential:
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(count)))


def tight(model: nn.Sequential, sample: Any, **options: Any) -> remat.Checkpointable:
    """At the smallest budget that a refusal names, and a little."""
    with pytest.raises(remat.BudgetError, match="smallest budget known to work") as refused:
        remat.Checkpointable(model, sample, 1, **options)
    smallest = refused.value.smallest
    del refused
    return remat.Checkpointable(model, sample, smallest + 2**16, **options)


def test_words() -> None:
    x = torch.randn(512, 32)
    words = str(tight(layers(), x).plan)
    assert "persistent: 6 stages within" in words
    for phrase in ("forward:", "backward:", "and keep the input", "and save all", "backward of 6 (5)"):
        assert phrase in words, words
    assert "and keep the input" not in str(remat.Checkpointable(layers(), x, "1GiB").plan)


def test_a_plan_is_saved_and_loaded(tmp_path: Path) -> None:
    path, seen, plans = tmp_path / "plan.json", [], []
    for load in (False, True):
        model, sample = made("images")
        chain = remat.Checkpointable(model, sample, plan=path) if load else tight(model, sample)
        plans.append(chain.plan.operations)
        if not load:
            chain.plan.save(path)
        torch.manual_seed(2)
        loss_of(chain(sample)).backward()
        seen.append(bits([p.grad for p in chain.parameters()] + list(chain.buffers())))
        del model, chain  # the budget is tight: there is no room for two of them
    assert plans[0] == plans[1]
    assert differences(*seen) == []


CHANGES: dict[str, Callable[[], tuple[nn.Sequential, torch.Tensor]]] = {
    "width": lambda: (layers(33), torch.randn(512, 33)),
    "count": lambda: (layers(count=7), torch.randn(512, 32)),
    "batch": lambda: (layers(), torch.randn(256, 32)),
    "frozen": lambda: (layers().requires_grad_(False).append(nn.Linear(32, 32)), torch.randn(512, 32)),
    "evaluation": lambda: (layers().eval(), torch.randn(512, 32)),
    "activation": lambda: (nn.Sequential(*layers()[:5], nn.ReLU()), torch.randn(512, 32)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_for_something_else_is_refused(change: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    tight(layers(), torch.randn(512, 32)).plan.save(path)
    with pytest.raises(remat.RematError, match="was made for"):
        remat.Checkpointable(*CHANGES[change](), plan=path)


EDITS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no json": lambda data: "{",
    "a list": lambda data: [],
    "another format": lambda data: {**data, "remat_chain_plan": 99},
    "nothing": lambda data: {},
    "an operation less": lambda data: {**data, "sequence": data["sequence"][1:]},
    "a backward pass less": lambda data: {**data, "sequence": data["sequence"][:-1]},
    "an unknown operation": lambda data: {**data, "sequence": [["Fsome", 1], *data["sequence"][1:]]},
    "an unknown stage": lambda data: {**data, "sequence": [["Fck", 99], *data["sequence"][1:]]},
    "not kept": lambda data: {
        **data,
        "sequence": [["Fnone", i] if k == "Fck" else [k, i] for k, i in data["sequence"]],
    },
    "text": lambda data: {**data, "sequence": "Fck 1"},
    "negative bytes": lambda data: {**data, "chain": {**data["chain"], "input_bytes": -1}},
    "not a number": lambda data: {**data, "chain": {**data["chain"], "before_bytes": float("nan")}},
    "no bytes": lambda data: {**data, "chain": {"input_bytes": "many"}},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_plan_is_refused(edit: str, tmp_path: Path) -> None:
    path, x = tmp_path / "plan.json", torch.randn(512, 32)
    tight(layers(), x).plan.save(path)
    data = EDITS[edit](json.loads(path.read_text()))
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(ValueError, match="no valid plan"):
        remat.Checkpointable(layers(), x, plan=path)


@pytest.mark.parametrize("text", ["{}", "[]", "null", "3"])
def test_json_that_is_no_plan_is_refused_with_what_is_wanted(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ValueError, match='no valid plan: expected an object with "remat_chain_plan"'):
        remat.Checkpointable(layers(), torch.randn(512, 32), plan=path)


def test_a_plan_that_takes_more_than_the_budget_is_refused(tmp_path: Path) -> None:
    path, x = tmp_path / "plan.json", torch.randn(512, 32)
    whole = remat.Checkpointable(layers(), x, "1GiB")
    whole.plan.save(path)
    with pytest.raises(remat.BudgetError, match="the saved plan"):
        remat.Checkpointable(layers(), x, whole.plan.peak // 2, plan=path)


class Text(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return object()


@pytest.mark.parametrize(
    ("make", "kind", "why"),
    [
        (lambda x: remat.Checkpointable(nn.Linear(32, 32), x, "1GiB"), remat.RematError, "chain_of"),
        (lambda x: remat.Checkpointable(nn.Sequential(), x, "1GiB"), ValueError, "at least one stage"),
        (lambda x: remat.Checkpointable(layers(), x), ValueError, "expected a budget"),
        (lambda x: remat.Checkpointable(layers(), x, "lots"), ValueError, "lots"),
        (lambda x: remat.Checkpointable(layers(), x, 0), ValueError, "0"),
        (lambda x: remat.Checkpointable(layers(), (), "1GiB"), ValueError, "no tensor"),
        (lambda x: remat.Checkpointable(layers(), x, "1GiB", strategy="best"), ValueError, "best"),
        (lambda x: remat.Checkpointable(layers(), x, "1GiB", strategy="free"), ValueError, "planning only"),
        (lambda x: remat.Checkpointable(layers(), x, "1GiB", slots="some"), ValueError, "some"),
        (lambda x: remat.Checkpointable(layers(), x, plan="/nowhere/plan.json"), FileNotFoundError, "nowhere"),
        (lambda x: remat.Checkpointable(layers().requires_grad_(False), x, "1GiB"), remat.RematError, "no gradient"),
        (
            lambda x: remat.Checkpointable(nn.Sequential(*layers(), Text()), x, "1GiB"),
            remat.RematError,
            "gives a object",
        ),
        (lambda x: remat.Checkpointable(nn.Sequential(*layers(), nn.Linear(3, 3)), x, "1GiB"), RuntimeError, "shapes"),
        (lambda x: remat.sequential([], x, "1GiB"), ValueError, "at least one stage"),
        (lambda x: remat.sequential([3], x, "1GiB"), ValueError, "cannot be called"),
    ],
)
def test_bad_input(make: Callable[[Any], Any], kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        make(torch.randn(64, 32))


def test_one_stage_and_a_long_chain() -> None:
    x = torch.randn(64, 32)
    for model in (layers(count=1), nn.Sequential(*(nn.Tanh() for _ in range(300)), nn.Linear(32, 32))):
        remat.Checkpointable(model, x, "1GiB")(x).sum().backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_profiler_in_the_way() -> None:
    with torch.autograd.profiler.profile(), pytest.raises(remat.RematError, match="profiler"):
        remat.Checkpointable(layers(), torch.randn(64, 32), "1GiB")
