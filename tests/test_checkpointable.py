"""Chains trained by a plan have the plain run's bits at every budget, and the allocator never sees more."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import remat
import torch
from bits import bits, differences
from chains import CHAINS, Trained, agree, loss_of, made, plain, planned, train
from process import two_ranks_agree
from sample import one_of_each
from torch import Tensor, nn
from true_peak import true_peak

reference = functools.cache(plain)


@pytest.fixture(autouse=True)
def _one_thread(_limited_and_seeded: None) -> None:
    torch.set_num_threads(1)  # the chains are small


def share(whole: Trained, fraction: float) -> int:
    """Bytes that leave a fraction of what the plain run took on top of what was resident."""
    return int((whole.peak - whole.base) * fraction)


@pytest.mark.parametrize("name, fraction", one_of_each(tuple(CHAINS), (9.0, 0.7, 0.45, 0.0)))
def test_same_bits_and_peak(name: str, fraction: float) -> None:
    found, chain = planned(name, share(reference(name), fraction))
    agree(reference(name), found)
    again = len([kind for kind, _ in chain.plan.operations if kind != "B"]) - len(chain.plan.costs.stages)
    assert (again > 0) == (fraction < 1.0), chain.plan


@pytest.mark.parametrize("strategy", ["persistent", "floating", "revolve", "periodic:3", "chen-sqrt", "treeverse"])
def test_every_strategy(strategy: str) -> None:
    found, _ = planned("images", share(reference("images"), 0.6), strategy=strategy)
    agree(reference("images"), found)


@pytest.mark.parametrize("name", ["images", "tuples", "writes_to_its_input"])
def test_gradient_of_the_input(name: str) -> None:
    whole = plain(name, True)
    found, _ = planned(name, share(whole, 0.5), True)
    agree(whole, found)


@pytest.mark.parametrize("name", ["images", "shared"])
def test_gradients_that_are_added_to(name: str) -> None:
    whole = plain(name, adding=True)
    budget = share(whole, 0.8)
    found, chain = planned(name, budget, adding=True)
    agree(whole, found)
    assert chain.plan.gradients_there
    # In the first step gradients were not there yet: the same module has a plan with more room for it.
    for parameter in chain.parameters():
        parameter.grad = None
    base = chain.plan.base
    chain(made(name)[1])
    assert chain.plan.base < base and not chain.plan.gradients_there


def test_what_no_backward_pass_needs_is_no_activation_of_the_plan() -> None:
    def layers() -> list[nn.Module]:
        return [layer for _ in range(4) for layer in (nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())]

    torch.manual_seed(0)
    module, sample = nn.Sequential(*layers(), nn.Upsample(scale_factor=2)), torch.randn(2, 4, 8, 8)
    plan = remat.Checkpointable(module, sample, "1GiB").plan
    # A ReLU saves what it returns, batch norm what it gets: what lies between belongs to neither. Conv and batch norm
    # save their inputs. What comes out of an upsampling is larger than what goes in.
    names = [stage.name for stage in plan.costs.stages]
    assert names == ["0", "1..2", "3", "4..5", "6", "7..8", "9", "10..11", "12", "loss"]


def test_the_room_that_gradients_do_not_take_yet_is_used() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        *(nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh()) for _ in range(24))
    )
    sample = torch.randn(256, 96)
    parameters = sum(p.nbytes for p in module.parameters())
    whole = remat.Checkpointable(module, sample, "1GiB").plan
    activations = whole.peak - whole.base
    budget = whole.base + int(0.9 * activations)
    assert parameters > 0.1 * activations  # gradients laid aside from the start would leave less than nothing
    chain = remat.Checkpointable(module, sample, budget)
    with true_peak() as peak:
        chain(sample).sum().backward()
    assert 0.85 * budget <= peak.highest <= budget
    assert chain.plan.peak <= budget
    again = len([kind for kind, _ in chain.plan.operations if kind != "B"]) - len(chain.plan.costs.stages)
    assert 0 < again <= 8


def test_autocast() -> None:
    model, sample = made("frozen")
    again, _ = made("frozen")
    seen = []
    with torch.autocast("cpu", torch.bfloat16):
        chain = remat.Checkpointable(again, sample, "1GiB")
        small = remat.Checkpointable(again, sample, smallest(again, sample))
    assert len(small.plan.operations) > len(chain.plan.operations)
    for run in (small, model):
        torch.manual_seed(7)
        with torch.autocast("cpu", torch.bfloat16):
            output = run(sample)
        output.float().square().sum().backward()  # outside: what is run again is cast as it was
        seen.append(bits([output, [p.grad for p in run.parameters()], torch.get_rng_state()]))
    assert differences(*seen) == []


def smallest(model: nn.Sequential, sample: object) -> int:
    with pytest.raises(remat.BudgetError) as refused:
        remat.Checkpointable(model, sample, 1)
    return refused.value.smallest


def test_functions_that_are_no_modules() -> None:
    weights = [(torch.randn(48, 48) / 7).requires_grad_() for _ in range(8)]
    functions = [lambda x, w=w: torch.tanh(x @ w) + x for w in weights]
    x = torch.randn(256, 48)
    seen = []
    with pytest.raises(remat.BudgetError) as refused:
        remat.sequential(functions, x, 1)
    for run in (nn.Sequential(), remat.sequential(functions, x, refused.value.smallest)):
        value = x
        for function in functions if isinstance(run, nn.Sequential) else [run]:
            value = function(value)
        value.sum().backward()
        seen.append(bits([value, [w.grad for w in weights]]))
        for weight in weights:
            weight.grad = None
    assert differences(*seen) == []


def test_hooks_fire_once_and_on_the_real_gradients() -> None:
    model, sample = made("images")
    chain = remat.Checkpointable(model, sample, smallest(model, sample))
    fired: list[Tensor] = []
    first = next(model.parameters())
    first.register_hook(lambda grad: fired.append(grad) or grad * 2)  # type: ignore[func-returns-value]
    loss_of(chain(sample)).backward()
    assert len(fired) == 1
    assert first.grad is not None and torch.equal(first.grad, fired[0] * 2)


def test_measuring_leaves_no_trace() -> None:
    model, sample = made("images")
    before = bits([list(model.parameters()), list(model.buffers()), torch.get_rng_state(), sample])
    calls: list[Tensor] = []
    next(model.parameters()).register_hook(calls.append)
    remat.Checkpointable(model, sample, "1GiB")
    assert (
        differences(before, bits([list(model.parameters()), list(model.buffers()), torch.get_rng_state(), sample]))
        == []
    )
    assert all(parameter.grad is None for parameter in model.parameters())
    assert calls == []


def test_backward_twice_through_a_retained_graph() -> None:
    seen = []
    for budget in ("1GiB", None):
        model, sample = made("images")
        chain = remat.Checkpointable(model, sample, budget or smallest(model, sample))
        torch.manual_seed(7)
        loss = loss_of(chain(sample))
        loss.backward(retain_graph=True)
        loss.backward()
        seen.append(bits([p.grad for p in model.parameters()] + list(model.buffers())))
    assert differences(*seen) == []


def test_gradients_by_autograd_grad_of_some_parameters() -> None:
    model, sample = made("images")
    wanted = list(model[4].parameters())
    chain = remat.Checkpointable(model, sample, smallest(model, sample))
    seen = []
    for run in (chain, model):
        torch.manual_seed(7)
        seen.append(bits(list(torch.autograd.grad(loss_of(run(sample)), wanted))))
    assert differences(*seen) == []


def test_two_forward_passes_before_one_backward_pass() -> None:
    seen = []
    for budget in ("1GiB", None):
        model, sample = made("frozen")
        chain = remat.Checkpointable(model, sample, budget or smallest(model, sample) + 2**20)
        torch.manual_seed(7)
        (loss_of(chain(sample)) + loss_of(chain(2 * sample))).backward()
        seen.append(bits([p.grad for p in model.parameters()]))
    assert differences(*seen) == []


def test_another_batch_size_and_evaluation() -> None:
    model, sample = made("images")
    twin, _ = made("images")
    chain = remat.Checkpointable(model, sample, smallest(model, sample) + 2**19)
    assert differences(bits(train(twin, sample[:3])), bits(train(chain, sample[:3]))[:]) != []  # streams went on
    model.eval(), twin.eval()
    twin.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(chain(sample), twin(sample))


def test_an_optimizer_state_that_comes_later_is_counted() -> None:
    model, sample = made("images")
    whole = remat.Checkpointable(model, sample, "1GiB")
    room = whole.plan.peak + 4096
    del whole
    chain = remat.Checkpointable(model, sample, room)
    assert all(kind != "Fck" for kind, _ in chain.plan.operations)
    held = torch.zeros(3 * 2**16)
    loss_of(chain(sample)).backward()
    assert any(kind == "Fck" for kind, _ in chain.plan.operations)
    assert chain.plan.peak <= room
    del held


def test_what_changes_between_forward_and_backward_is_seen() -> None:
    model, sample = made("images")
    chain = remat.Checkpointable(model, sample, smallest(model, sample))
    loss = loss_of(chain(sample))
    with torch.no_grad():
        model[2].body[0].bias.add_(1)
    with pytest.raises(remat.RematError, match="parameters were written to"):
        loss.backward()


def test_a_stage_that_depends_on_more_than_its_input_is_refused() -> None:
    class Fickle(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x.sin() if self.calls % 2 else x.sin().exp().sin()

    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh(), Fickle()) for _ in range(4)))
    x = torch.randn(64, 32)
    chain = remat.Checkpointable(model, x, smallest(model, x))
    with pytest.raises(remat.RematError, match="saved other tensors"):
        chain(x).sum().backward()


@pytest.mark.full
def test_two_ranks(tmp_path: Path) -> None:
    two_ranks_agree(Path(__file__).with_name("ddp_chain_rank.py"), tmp_path)
