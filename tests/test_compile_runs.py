"""Compiled programs as they run: bits, peaks, torch's compile cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from compiled import generates_code
from process import PYTHON, program, ran
from remat._compiled.capture.cut import choose
from remat._torch_internals import compiled, compiler
from torch import nn
from true_peak import true_peak

pytestmark = [generates_code, pytest.mark.usefixtures("nothing_compiled_before")]


class Block(nn.Module):
    """One of everything: products, normalisation, dropout, GELU, a buffer, something in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(32)
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.gelu(self.first(self.norm(x)))
        hidden = nn.functional.dropout(hidden, 0.25)
        return x + self.second(hidden).mul_(0.5)


def step(model: Callable[..., torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(3)
    leaf = x.detach().requires_grad_()
    loss = model(leaf).square().sum()
    loss.backward()
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    found = [loss.detach(), leaf.grad, *(p.grad for p in parameters)]
    for parameter in parameters:
        parameter.grad = None
    return found


def test_bits_are_those_of_torchs_own_compiler() -> None:
    torch.manual_seed(1)
    model, x = Block(), torch.randn(64, 32)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch._dynamo.reset()
    wanted = step(torch.compile(model), x)
    after = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state)
    torch._dynamo.reset()
    ours = remat.compile(model)
    for found, expected in zip(step(ours, x), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    for name, value in model.state_dict().items():
        assert torch.equal(value, after[name])


def test_the_backend_has_a_name() -> None:
    torch._dynamo.reset()
    x = torch.randn(32, requires_grad=True)
    torch.compile(lambda x: x.sin().exp(), backend="remat")(x).sum().backward()
    torch.testing.assert_close(x.grad, x.sin().exp() * x.cos())


CACHED = """
import torch, remat
from torch._dynamo.utils import counters
x = torch.arange(32.0, requires_grad=True)
run = remat.compile(lambda x: x.sin().exp().cos())
run(x).sum().backward()
print(len(run.report().cuts), counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_another_process_finds_the_code_in_torchs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    script = program(tmp_path, CACHED)
    assert [ran([*PYTHON, script]).out.split() for _ in range(2)] == [["1", "0"], ["1", "1"]]


def expected_improvement(mean: torch.Tensor, deviation: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Monte-Carlo q-expected improvement, smoothed: [N, q] candidates, [S, q] draws, [N, S, q] samples; section 4.5."""
    samples = mean[:, None] + deviation[:, None] * draws
    gain = (samples - 1.0) / 0.1
    smooth = torch.where(gain > 0, gain + (-gain.abs()).exp().log1p(), gain.exp().log1p()) * 0.1
    best = (smooth * torch.sigmoid(4 * gain) * (1 + 0.1 * torch.tanh(gain))).sum(-1)
    return (best.mean(1) + 1e-6).log().sum()


def test_an_acquisition_function_needs_a_fifth_of_the_memory() -> None:
    mean = torch.randn(128, 8, requires_grad=True)
    deviation = torch.rand(128, 8, requires_grad=True)
    draws = torch.randn(256, 8)

    def peak(partitioner: Any) -> int:
        torch._dynamo.reset()

        def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
            return compiler.compile_graph(gm, inputs, partitioner, {})

        run = torch.compile(expected_improvement, backend=backend)
        run(mean, deviation, draws).backward()
        with true_peak() as measured:
            run(mean, deviation, draws).backward()
        return measured.highest - measured.base

    plain = peak(compiler.without_recomputing())
    ours = peak(compiler.Partitioner(choose(lambda cut: None), lambda: b"acquisition"))
    assert plain >= 5 * ours


def acquisition() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(128, 8, requires_grad=True), torch.rand(128, 8, requires_grad=True), torch.randn(256, 8)


@pytest.mark.filterwarnings("error::UserWarning")
def test_the_first_step_is_within_the_budget() -> None:
    inputs = acquisition()
    torch._dynamo.reset()
    free = remat.compile(expected_improvement)
    free(*inputs).backward()
    with true_peak() as without:
        free(*inputs).backward()
    budget = without.highest + 2**16
    torch._dynamo.reset()
    run = remat.compile(expected_improvement, budget=budget)
    run(*inputs).backward()  # a step that took more would be planned anew, with a warning
    with true_peak() as within:
        run(*inputs).backward()
    assert within.highest <= budget
    (cut,) = run.report().cuts
    foreseen = within.base + (cut.foreseen_bytes or 0)
    assert within.highest <= foreseen + 2**12
    assert foreseen <= within.highest + 2**16


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_budget_is_refused_before_anything_runs_with_one_that_works() -> None:
    inputs = acquisition()
    torch._dynamo.reset()
    run = remat.compile(expected_improvement, budget=remat.measure(lambda: None).base + 2**17)
    with pytest.raises(remat.BudgetError) as refused:
        run(*inputs)
    smallest = refused.value.smallest
    torch._dynamo.reset()
    slack = 2**14  # what is resident differs by scalars
    again = remat.compile(expected_improvement, budget=smallest + slack)
    for _ in range(3):
        again(*inputs).backward()
    with true_peak() as within:
        again(*inputs).backward()
    assert within.highest <= smallest + slack


def test_generated_code_is_run_without_memory() -> None:
    source = """
aten = torch.ops.aten
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()
fused = async_compile.cpp_pybinding(['const float*', 'float*'], r'''none''')
class Runner:
    def call(self, args):
        given, own = args
        args.clear()
        buf0 = empty_strided_cpu((256, ), (1, ), torch.float32)
        fused(given, buf0)
        del given
        buf1 = own; del own  # reuse
        fused(buf0, buf1)
        buf2 = empty_strided_cpu((512, ), (1, ), torch.float32)
        del buf1
        buf3 = reinterpret_tensor(buf0, (16, 16), (16, 1), 0); del buf0  # reuse
        return (buf3, buf2)
runner = Runner()
call = runner.call
"""
    inputs = [torch.empty(100), torch.empty(256)]
    taken = compiled.dry_run("import torch\n" + source, inputs, lambda name: name == "own")
    assert (taken.before, taken.peak, taken.after) == (1024, 1024 + 1024 + 2048, 1024 + 2048)
    assert not taken.handed_through


def test_views_of_one_block_are_freed_with_the_last_of_them() -> None:
    source = """
import torch
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
class Runner:
    def call(self, args):
        query, key = args
        args.clear()
        del query
        buf0 = empty_strided_cpu((256, ), (1, ), torch.float32)
        del key
        return (buf0, )
runner = Runner()
call = runner.call
"""
    block = torch.empty(512)
    handed = {"query": block[:256], "key": block[256:]}
    taken = compiled.dry_run(source, list(handed.values()), lambda name: True, handed)
    assert (taken.before, taken.peak, taken.after) == (2048, 2048 + 1024, 1024)
    apart = compiled.dry_run(source, list(handed.values()), lambda name: True)
    assert apart.peak == 2048


class Deep(nn.Module):
    """Products and GELU, four times."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = nn.functional.gelu(layer(x))
        return x


def test_a_budget_holds_for_the_allocator_and_changes_no_gradient() -> None:
    model, x = Deep(), torch.randn(2048, 32)
    free = remat.compile(model)
    wanted = step(free, x)
    with true_peak() as without:
        step(free, x)
    budget = without.base + int(0.8 * (without.highest - without.base))
    run = remat.compile(model, budget=budget)
    for _ in range(4):
        found = step(run, x)
    del found
    with true_peak() as within:
        found = step(run, x)
    assert within.highest <= budget < without.highest
    cut = run.report().cuts[-1]
    assert cut.lifted or cut.kernels_again
    for gradient, expected in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-5)


def test_a_budget_that_no_plan_fits_is_refused_with_the_smallest() -> None:
    model, x = Deep(), torch.randn(256, 32)
    run = remat.compile(model, budget="64KiB")
    with pytest.raises(remat.BudgetError) as refused:
        run(x)
    assert refused.value.smallest > refused.value.budget == 64 * 1024


@pytest.mark.full
def test_a_graph_leaves_room_for_those_after_a_break() -> None:
    model, other = Deep(), Deep()

    def both(x: torch.Tensor) -> torch.Tensor:
        x = model(x)
        torch._dynamo.graph_break()
        return other(x).square().sum()

    x = torch.randn(2048, 32)
    torch._dynamo.reset()
    free = remat.compile(both)
    for _ in range(2):
        free(x).backward()
    for parameter in [*model.parameters(), *other.parameters()]:
        parameter.grad = None
    with true_peak() as without:
        free(x).backward()
    budget = without.base + int(0.6 * (without.highest - without.base))
    torch._dynamo.reset()
    run = remat.compile(both, budget=budget)
    with pytest.warns(UserWarning, match="graphs before it are planned anew"):
        for _ in range(5):
            for parameter in [*model.parameters(), *other.parameters()]:
                parameter.grad = None
            run(x).backward()
    for parameter in [*model.parameters(), *other.parameters()]:
        parameter.grad = None
    with true_peak() as within:
        run(x).backward()
    assert within.highest <= budget < without.highest
    first, second = run.report().cuts
    assert all(cut.lifted or cut.kernels_again for cut in (first, second))


def test_code_that_cannot_be_run_without_memory_is_measured_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: Any) -> Any:
        raise ValueError("a size that depends on data")

    monkeypatch.setattr(compiled, "dry_run", refuse)
    model, x = Deep(), torch.randn(256, 32)
    run = remat.compile(model, budget="1GiB")
    with pytest.warns(UserWarning, match="only estimated.*depends on data"):
        step(run, x)
    assert run.report().cuts[0].foreseen_bytes is None
