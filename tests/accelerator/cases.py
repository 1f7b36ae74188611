"""What holds on accelerators, seen on the stand-in. `test_accelerator.py` runs each function in a process that has it."""

from __future__ import annotations

import remat
import torch

from . import standin
from .programs import attention, budgeted, convolutions, data, perceptron, plain

NETWORKS = {"perceptron": perceptron, "convolutions": convolutions, "attention": attention}


def the_device_works_late() -> None:
    """The tests below rest on it: work that nobody waits for is not done."""
    stream = torch.accelerator.current_stream()
    x = torch.ones(8, device="standin")
    y = x + 1
    assert not standin.was_done(stream, standin.launched(stream))
    assert y.tolist() == [2.0] * 8
    assert standin.was_done(stream, standin.launched(stream))


def the_device_computes_as_the_cpu() -> None:
    for network in (convolutions, attention):
        torch.manual_seed(0)
        on_cpu = network("cpu")
        torch.manual_seed(0)
        losses = 2
        for expected, found in zip(on_cpu[:losses], network("standin:0")[:losses], strict=True):
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-6)


def a_budget_is_held_with_the_same_bits(network: str, fraction: float) -> None:
    program = NETWORKS[network]
    reference = plain(program)
    stats = budgeted(program, {"standin:0": reference.at(fraction)}, reference)
    assert stats.recomputed > 0


def random_numbers_come_again_from_the_device() -> None:
    """Dropout is replayed with the state of the device's generator, which stands as after the plain run at the end."""

    def program() -> list[torch.Tensor]:
        x, masks = torch.ones(1 << 16, device="standin"), []
        own = torch.Generator("standin").manual_seed(7)
        for _ in range(12):
            masks.append(torch.nn.functional.dropout(x, 0.5) + torch.rand(1 << 16, device="standin", generator=own))
        return [mask * 2 for mask in masks] + [own.get_state()]

    reference = plain(program)
    stats = budgeted(program, {"standin:0": reference.at(0.6)}, reference)
    assert stats.recomputed > 0


def each_device_has_its_budget() -> None:
    """A step whose halves are on the CPU and on the device, each in a budget of its own."""

    def program() -> list[torch.Tensor]:
        x = data(512, 128).requires_grad_()
        y = x
        for _ in range(12):
            y = y.sin() * 1.5
        z = y.to("standin:0")
        for _ in range(12):
            z = z.cos() * 1.5
        z.cpu().square().sum().backward()
        assert x.grad is not None
        return [x.grad]

    reference = plain(program)
    on_cpu = remat.measure(program, device="cpu").peak
    budgets = {"cpu": int(0.7 * on_cpu), "standin:0": reference.at(0.7)}
    assert budgeted(program, budgets, reference).recomputed > 0
    only_device = budgeted(program, {"standin:0": reference.at(0.7)}, reference)
    assert only_device.recomputed > 0


def large_blocks_count_as_the_allocator_cuts_them() -> None:
    """A block of more than 1 MiB may be larger than its tensor. The budget bounds blocks."""

    def program() -> list[torch.Tensor]:
        values = [torch.full((size,), 0.5, device="standin") for size in range(300_000, 600_000, 25_000)]
        for _ in range(3):
            values = [value.sin() for value in values]
        return [value.sum() for value in values]

    reference = plain(program)
    stats = budgeted(program, {"standin:0": reference.at(0.75)}, reference)
    assert stats.evictions > 0


def workspace_is_measured_by_statistics() -> None:
    """A product works on packed copies of its operands: 128 KiB beside the operands and the result."""
    a, b = torch.ones(128, 128, device="standin"), torch.ones(128, 128, device="standin")
    remat.measure(lambda: a.mm(b))
    seen = remat.measure(lambda: a.mm(b))
    assert seen.peak - seen.base >= 3 * 64 * 1024, seen
    standin.restart_highest()
    a.mm(b)
    assert seen.peak - seen.base == standin.restart_highest() - torch.accelerator.memory_allocated()


def a_budget_too_small_is_refused() -> None:
    try:
        with remat.budget("1MiB", device="standin"):
            x = torch.ones(1 << 18, device="standin")
            x + 1
    except remat.BudgetError as error:
        assert error.device == "standin:0" and error.smallest > error.budget == 1 << 20
        with remat.budget(error.smallest, device="standin"):
            y = torch.ones(1 << 18, device="standin")
        assert y.sum().item() == 1 << 18
    else:
        raise AssertionError("not refused")


def devices_that_are_not_there_are_refused() -> None:
    for budget in ({"standin:2": "1MiB"}, {"cuda": "1MiB"}, {"standin:1": 1 << 40}):
        try:
            remat.budget(budget)
        except ValueError as error:
            assert "standin" in str(error)
        else:
            raise AssertionError(f"{budget} was not refused")


CASES = {
    **{
        f"a budget is held with the same bits: {network} at {fraction}": (
            a_budget_is_held_with_the_same_bits,
            (network, fraction),
        )
        for network in NETWORKS
        for fraction in (0.8, 0.65)
    },
    **{
        case.__name__.replace("_", " "): (case, ())
        for case in (
            the_device_works_late,
            the_device_computes_as_the_cpu,
            random_numbers_come_again_from_the_device,
            each_device_has_its_budget,
            large_blocks_count_as_the_allocator_cuts_them,
            workspace_is_measured_by_statistics,
            a_budget_too_small_is_refused,
            devices_that_are_not_there_are_refused,
        )
    },
}
