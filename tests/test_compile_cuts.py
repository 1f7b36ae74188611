"""The values that compiled programs save between forward and backward pass."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import pytest
import remat
import torch
from compiled import traced
from remat import _native
from torch import nn
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.usefixtures("nothing_compiled_before")


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def test_tanh_of_tanh_saves_only_its_input() -> None:
    run = traced(lambda x: x.tanh().tanh())
    run(leaf(64)).sum().backward()
    assert run.cut.saved == ["primals_1"]


def test_of_a_sum_only_the_sum_is_saved() -> None:
    run = traced(lambda a, b, c, d: (a + b + c + d).cos().cos())
    run(*(leaf(64) for _ in range(4))).sum().backward()
    assert run.ops(run.cut.saved) == ["add"]
    assert run.cut.bytes_after == 64 * 4


def test_of_dropout_the_mask_is_saved_and_not_the_random_numbers() -> None:
    run = traced(lambda x: torch.where(torch.rand_like(x) < 0.5, x * 2, 0.0))
    run(leaf(64)).sum().backward()
    assert run.ops(run.cut.saved) == ["lt"]
    assert run.cut.bytes_after == 64


def gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def test_gelu_in_primitives_is_recomputed() -> None:
    run = traced(lambda x, w: gelu(x @ w).sum())
    run(leaf(64, 64), leaf(64, 64)).backward()
    assert set(run.ops(run.cut.saved)) <= {"mm", "placeholder", "permute"}
    assert "tanh" in run.ops(run.cut.recomputed)
    assert run.cut.bytes_after < run.cut.bytes_before


def test_products_random_numbers_and_reductions_are_not_recomputed() -> None:
    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        scaled = x @ w
        return (scaled * torch.rand_like(scaled) / scaled.exp().sum(1, keepdim=True)).sin()

    run = traced(step)
    run(leaf(64, 64), leaf(64, 64)).sum().backward()
    assert not {"mm", "inductor_random", "sum", "exp_sum"} & set(run.ops(run.cut.recomputed))
    assert {"random", "reduction"} <= set(run.cut.banned.values())


def residual(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight in weights:
        x = x + (x.sin() @ weight).relu() * 0.5
    return x.exp()


def long_chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(120):
        x = x.sin()
    return x


RULES: dict[str, tuple[str, Any, int]] = {
    "unfusible": ("ban_recompute_materialized_backward", residual, 3),
    "used far apart": ("ban_recompute_used_far_apart", residual, 3),
    "end of a long chain": ("ban_recompute_long_fusible_chains", long_chain, 0),
}


@pytest.mark.parametrize("reason", RULES)
def test_the_rules_of_torchs_partitioner_follow_its_switches(reason: str) -> None:
    switch, function, weights = RULES[reason]
    banned = []
    for on in (True, False):
        with torch._functorch.config.patch({switch: on}):
            run = traced(function)
            run(leaf(16, 16), *(leaf(16, 16) for _ in range(weights))).sum().backward()
            banned.append({name for name, why in run.cut.banned.items() if why == reason})
    assert banned[0] > banned[1]


def test_the_planner_has_kernels_read_as_many_values_as_inductor_does() -> None:
    default = torch._inductor.config.realize_reads_threshold
    for limit in (default, default + 3):
        with torch._inductor.config.patch(realize_reads_threshold=limit):
            run = traced(lambda x: x.tanh().tanh())
            run(leaf(64)).sum().backward()
            assert run.cut.graph["shared_reads"] == limit
    # A graph that does not say is planned with Inductor's default.
    for count in (default, default + 1):
        assert peak_of_shared(count) == peak_of_shared(count, default)
    assert peak_of_shared(default + 1) != peak_of_shared(default + 1, default + 1)


def peak_of_shared(count: int, limit: int | None = None) -> int:
    """The peak of a graph in which two kernels that cannot be one read a value computed from so many others."""

    def node(name: str, inputs: list[str], **more: Any) -> dict[str, Any]:
        return {"name": name, "bytes": 4, "inputs": inputs, "op": "op", "fusible": True, **more}

    products = [node(f"p{k}", ["g"], fusible=False) for k in range(count)]
    sums = [node(f"s{k}", [f"s{k - 1}" if k > 1 else "p0", f"p{k}"]) for k in range(1, count)]
    value = sums[-1]["name"]
    graph = {
        "nodes": [
            *(node("x", []), node("y", ["x"]), node("g", []), *products, *sums),
            *(node("w", [value]), node("m", ["w"], fusible=False), node("dx", [value, "m"])),
        ],
        **{"inputs": ["x"], "tangents": ["g"], "forward_outputs": ["y"], "backward_outputs": ["dx"]},
        **({} if limit is None else {"shared_reads": limit}),
    }
    return int(json.loads(_native.plan_cut(json.dumps(graph)))["peak_bytes"])


def test_parameters_cost_nothing() -> None:
    model = nn.Linear(256, 4)
    run = traced(lambda x: model(x).tanh())
    run(torch.randn(2, 256)).sum().backward()
    assert run.cut.bytes_after <= 2 * 256 * 4 + 2 * 4 * 4


def test_what_checkpoint_says_is_followed() -> None:
    inner = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.5), nn.Sigmoid(), nn.Linear(64, 32))
    run = traced(lambda x: checkpoint(inner, x, use_reentrant=False).sin())
    run(leaf(8, 32)).sum().backward()
    assert "addmm" in run.ops(run.cut.recomputed)
    assert "sigmoid" not in run.ops(run.cut.saved)


def test_a_policy_can_save_what_is_cheap() -> None:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        keep = op == torch.ops.aten.sin.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    def step(x: torch.Tensor) -> torch.Tensor:
        contexts = partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(lambda y: y.cos().sin().exp(), x, use_reentrant=False, context_fn=contexts)

    run = traced(step)
    run(leaf(64)).sum().backward()
    assert "sin" in run.ops(run.cut.saved)


PROGRAMS: dict[str, Any] = {
    "views": lambda x: (x.view(4, -1).t()[1:] * 2).reshape(-1).unfold(0, 3, 2).sin(),
    "in-place": lambda x: (x * 2).sin_().add_(x).mul_(3),
    "multi-output": lambda x: torch.var_mean(x.reshape(8, -1), 1)[0].exp() * x.reshape(8, -1).max(1).values,
    "split": lambda x: torch.stack([part.exp() for part in x.chunk(4)]).softmax(0),
    "gather": lambda x: x[torch.arange(0, 60, 3)].sin() * 2,
    "cumulative": lambda x: x.cumsum(0).tanh(),
    "complex": lambda x: torch.fft.rfft(x).abs(),
    "sort": lambda x: x.sort().values.exp(),
    "expand": lambda x: (x[:, None] * x[None, :]).sin().sum(1),
    "detached": lambda x: x.detach().cos() * x.sin(),
    "unused": lambda x: x.sin() + 0 * torch.ones(64).cos(),
    "constant": lambda x: x * torch.tensor([2.0]).exp(),
    "convolution": lambda x: nn.functional.conv1d(x.view(1, 1, -1), x[:3].view(1, 1, 3)).relu(),
    "attention": lambda x: nn.functional.scaled_dot_product_attention(*(x.view(1, 2, 8, 4),) * 3),
    "pool": lambda x: nn.functional.max_pool2d(x.view(1, 1, 8, 8), 2).tanh(),
    "batch norm": lambda x: nn.functional.batch_norm(x.view(16, 4), None, None, training=True).relu(),
    "double use": lambda x: torch.cat([x.sin(), x.cos().exp()]) @ torch.cat([x, x]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_eager(name: str) -> None:
    x = leaf(64, dtype=torch.float64)
    wanted = PROGRAMS[name](x)
    (expected,) = torch.autograd.grad(wanted.square().sum(), x)
    run = traced(PROGRAMS[name])
    out = run(x)
    torch.testing.assert_close(out, wanted)
    torch.testing.assert_close(torch.autograd.grad(out.square().sum(), x)[0], expected)


def test_dynamic_shapes() -> None:
    run = traced(lambda x, w: (x @ w).sin().reshape(x.shape[0] * 2, -1).exp(), dynamic=True)
    w = leaf(8, 8)
    for rows in (6, 10, 14):
        x = leaf(rows, 8)
        out = run(x, w)
        eager = (x @ w).sin().reshape(rows * 2, -1).exp()
        for found, wanted in zip(
            torch.autograd.grad(out.sum(), (x, w)), torch.autograd.grad(eager.sum(), (x, w)), strict=True
        ):
            torch.testing.assert_close(found, wanted)
    assert len(run.report.cuts) == 1


def test_autocast_buffers_frozen_parameters_and_graph_breaks() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16)).double()
    model[0].weight.requires_grad_(False)

    def step(x: torch.Tensor) -> torch.Tensor:
        half = model(x).sin()
        torch._dynamo.graph_break()
        return half.exp().sum()

    step(torch.randn(8, 16, dtype=torch.float64)).backward()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(8, 16, dtype=torch.float64)
    model.zero_grad()
    step(x).backward()
    wanted = [parameter.grad for parameter in model.parameters()]
    after = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    model.zero_grad()
    run = traced(step)
    run(x).backward()
    assert len(run.report.cuts) == 2
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, after[name])
    model.float()
    with torch.autocast("cpu", torch.bfloat16):
        traced(step)(x.float()).backward()


def test_without_a_backward_pass_nothing_is_cut() -> None:
    run = traced(lambda x: x.sin().cos())
    torch.testing.assert_close(run(torch.ones(4)), torch.ones(4).sin().cos())
    assert run.report.cuts == []
    assert "no backward pass" in str(run.report)


def test_the_report_says_what_was_done(tmp_path: Any) -> None:
    run = traced(lambda x, w: gelu(x @ w).sum())
    run(leaf(64, 64), leaf(64, 64)).backward()
    told = json.loads(run.report.json())["graphs"][0]
    assert [value["name"] for value in told["saved"]] == run.cut.saved
    assert told["bytes_after"] < told["bytes_before"]
    assert set(told["banned"].values()) <= {"compute-bound", "unfusible", "reduction", "random"}
    assert "without recomputing" in str(run.report)
    run.report.svg(tmp_path / "cut.svg")
    drawing = (tmp_path / "cut.svg").read_text()
    assert drawing.startswith("<svg") and all(name in drawing for name in run.cut.saved)


def test_a_ratio_for_torchs_own_partitioner_is_refused() -> None:
    with (
        torch._functorch.config.patch(activation_memory_budget=0.5),
        pytest.raises(Exception, match="a ratio of its own partitioner"),
    ):
        traced(lambda x: x.sin().exp())(leaf(8))


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="backend"):
        remat.compile(nn.Linear(2, 2), backend="inductor")
    with pytest.raises(ValueError, match="called"):
        remat.compile(3)  # type: ignore[arg-type]
