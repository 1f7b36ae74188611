"""Compiled programs whose kernels run again by a plan of the step planner: bits, peaks, refusals."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import remat
import torch
from compiled import generates_code
from remat._torch_internals import compiled
from torch import Tensor, nn
from true_peak import true_peak

pytestmark = [generates_code, pytest.mark.usefixtures("nothing_compiled_before")]


class Chain(nn.Module):
    """Layers with a residual stream, normalization of batches and dropout."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(32) for _ in range(depth))
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + nn.functional.dropout(nn.functional.gelu(layer(norm(x))), 0.1)
        return x


def step(run: Callable[[Tensor], Tensor], model: nn.Module, x: Tensor) -> list[Tensor]:
    """The gradients of a step."""
    torch.manual_seed(3)
    leaf = x.detach().requires_grad_()
    result = run(leaf)
    result.backward(torch.ones_like(result))  # type: ignore[no-untyped-call]
    found = [leaf.grad, *(parameter.grad for parameter in model.parameters())]
    model.zero_grad()
    return [gradient for gradient in found if gradient is not None]


def refused(model: nn.Module, x: Tensor, budget: int) -> int:
    """The smallest budget that is named where one is refused."""
    torch._dynamo.reset()
    with pytest.raises(remat.BudgetError) as error:
        remat.compile(model, budget=budget)(x.detach().requires_grad_())
    return error.value.smallest


@pytest.mark.parametrize("depth", [2, pytest.param(3, marks=pytest.mark.full)])
def test_kernels_run_again_to_the_same_bits(depth: int) -> None:
    torch.manual_seed(1)
    model, x = Chain(depth), torch.randn(2048, 32)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ample = remat.compile(model, budget="1GiB")
    wanted = step(ample, model, x)
    (minimum,) = ample.report().cuts
    after = {name: value.clone() for name, value in model.state_dict().items()}
    budget = refused(model, x, 2**16) + 2**15  # what is resident differs by scalars
    torch._dynamo.reset()
    model.load_state_dict(before)
    run = remat.compile(model, budget=budget)
    found = step(run, model, x)
    (cut,) = run.report().cuts
    assert cut.kernels_again
    assert f"run again   {cut.kernels_again} kernels" in str(run.report())
    for gradient, expected in zip(found, wanted, strict=True):
        assert torch.equal(gradient, expected)
    for name, value in model.state_dict().items():
        assert torch.equal(value, after[name]), name
    del found, gradient
    with true_peak() as within:
        step(run, model, x)
    taken = within.highest - within.base
    assert taken <= (cut.foreseen_bytes or 0) + 2**10
    assert within.highest <= budget
    assert taken < (minimum.foreseen_bytes or 0)


@pytest.mark.full
def test_every_budget_that_is_refused_names_one_need() -> None:
    model, x = Chain(3), torch.randn(2048, 32)
    base = sum(value.nbytes for value in [*model.state_dict().values(), x])
    named = [refused(model, x, base + extra) for extra in (0, 2**18, 2**20)]
    assert max(named) - min(named) < 2**12, "what is resident differs by scalars"


SOURCE = """
import torch
from torch._inductor.select_algorithm import extern_kernels
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor
async_compile = AsyncCompile()
twice = async_compile.cpp_pybinding(['float*', 'const float*'], r'''void kernel(float* in_out_ptr0,
                       const float* in_ptr0)''')
sine = async_compile.cpp_pybinding(['const float*', 'float*'], r'''void kernel(const float* in_ptr0,
                       float* out_ptr0)''')
async_compile.wait(globals())
class Runner:
    def call(self, args):
        primals_1, = args
        args.clear()
        buf0 = empty_strided_cpu((4, 4), (4, 1), torch.float32)
        sine(primals_1, buf0)
        buf1 = buf0; del buf0  # reuse
        twice(buf1, primals_1)
        buf2 = buf1; del buf1  # reuse
        sine(primals_1, buf2)
        buf3 = empty_strided_cpu((2, 4), (4, 1), torch.float32)
        extern_kernels.mm(reinterpret_tensor(buf2, (2, 4), (4, 1), 8), primals_1, out=buf3)
        return (buf3, )
runner = Runner()
call = runner.call
"""


def test_generated_code_is_taken_apart() -> None:
    one, _ = compiled.KernelCode().take(SOURCE, [torch.empty(4, 4)], False, lambda name: None)
    first, second, third, product = one.ops
    given = one.given["primals_1"].value
    (sine,), ((old, new),), (again,), (made,) = first.makes, second.writes, third.makes, product.makes
    assert first.reads == [given] and given.given == "primals_1"
    assert old == sine and second.reads == [sine, given] and not second.makes
    assert not third.writes, "memory that was free, and not the value in it"
    assert set(product.reads) == {again, given} and product.names["buf2"].value == again
    assert (new.bytes, made.bytes) == (64, 32)


def test_code_of_another_form_is_left_alone() -> None:
    source = SOURCE.replace("sine(primals_1, buf0)", "print(primals_1, buf0)")
    with pytest.raises(compiled.NotTakenApart, match="a call of print"):
        compiled.KernelCode().take(source, [torch.empty(4, 4)], False, lambda name: None)
