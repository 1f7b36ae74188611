"""Budgets on accelerators, seen on the stand-in; `test_accelerator.py` runs each case in a process that has it."""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import remat
import torch
from bits import bits, differences
from remat._chain.stage.measure import measure_chain
from remat._chain.stage.probe import shape_of
from remat._chain.stage.stage import Stage
from remat._memory.step_peak import step_peak
from remat._torch_internals import eager
from repeated_steps import until_planned
from torch.nn.parallel import parallel_apply

from . import standin
from .programs import (
    DEVICES,
    attention,
    budgeted,
    convolutions,
    data,
    host,
    perceptron,
    plain,
    restart,
    seeded,
)

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


def replays_get_larger_blocks_within_the_budget(seed: int) -> None:
    """Tensors of irregular sizes: what comes again seldom finds a block of its size, and takes a larger one."""

    def program() -> list[torch.Tensor]:
        draw = random.Random(seed)
        values = [torch.full((draw.randrange(200_000, 1_500_000),), 0.5, device="standin") for _ in range(8)]
        for _ in range(60):
            i = draw.randrange(len(values))
            if draw.random() < 0.3:
                first, second = draw.randrange(100_000, 200_000), draw.randrange(100_000, 900_000)
                values[i] = torch.cat([values[i][:first], draw.choice(values)[:second]])
            else:
                values[i] = values[i].sin()
            if draw.random() < 0.2:
                values.append(values[i].cos())
        return [value.sum() for value in values]

    reference = plain(program)
    for fraction in (0.8, 0.6, 0.45):
        assert budgeted(program, {"standin:0": reference.at(fraction)}, reference).recomputed > 0


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


def a_budget_follows_to_the_accelerator() -> None:
    """A budget of `remat run` names no device. It moves with the first op there, not to tensors without memory."""
    with remat.budget("64MiB", device="cpu")._following_accelerator() as run:
        on_meta = torch.ones(1 << 16, device="meta") + 1
        here = torch.ones(1024)
        assert on_meta.is_meta and run.stats().peak == here.nbytes
        there = torch.ones(1 << 10, device="standin")
        for _ in range(3):
            there = there + 1
        assert run.stats().budget == 64 << 20 and run.stats().peak == 2 * there.nbytes
    assert remat.measure(lambda: torch.ones(1 << 10, device="standin")).peak >= 1 << 12


def what_is_lent_on_the_cpu_is_not_lent_on_the_accelerator() -> None:
    """A part of a budget is kept back, less of it on the CPU. It is as large as ever where the budget moves."""
    with remat.budget("64MiB", device="cpu")._following_accelerator():
        most = (64 << 20) - (128 << 10)
        torch.ones(most // 4)
        try:
            torch.ones((most - (1 << 20)) // 4, device="standin")  # a block may be larger by 1 MiB
        except remat.BudgetError as error:
            assert "standin" in str(error)
        else:
            raise AssertionError("it was lent")


def a_constant_for_which_nothing_could_be_evicted_is_not_counted() -> None:
    real, fails = eager.empty_storage, False

    def empty_storage(device: torch.device) -> torch.UntypedStorage:
        if fails:
            raise KeyError("no storage to exchange bytes with")
        return real(device)

    eager.empty_storage = empty_storage
    try:
        with remat.budget("32MiB", device="standin", plan="off") as run:
            made = [torch.ones(1 << 20, device="standin") * k for k in range(6)]
            with torch._C._DisableTorchDispatch():
                unseen = torch.ones(2 << 20, device="standin")
            used, fails = run.stats().used, True
            try:
                unseen.add(1)
            except KeyError:
                assert run.stats().used == used
            else:
                raise AssertionError("nothing had to be evicted")
            fails = False
            assert (unseen + 1)[:9].tolist() == [2.0] * 9
            assert [tensor[7].item() for tensor in made] == [0, 1, 2, 3, 4, 5]
    finally:
        eager.empty_storage = real


def the_programs_own_peak_is_told_by_watches() -> None:
    """Measuring workspace restarts torch's peak. `step_peak` and the plans of chains do not lose what was before."""

    def step() -> None:
        x = torch.ones(1 << 20, device="standin")
        del x
        with remat.budget("64MiB", device="standin"):
            torch.ones(1 << 10, device="standin").erfinv()

    assert step_peak(step, torch.device("standin:0")) >= 4 << 20


def a_planned_chain_keeps_its_budget() -> None:
    """Stages are measured by the allocator's statistics and timed on the device; random numbers come again."""
    layers = [(torch.nn.Linear(128, 128), torch.nn.GELU(), torch.nn.Dropout(0.1)) for _ in range(6)]
    model = torch.nn.Sequential(*(torch.nn.Sequential(*layer) for layer in layers)).to("standin:0")
    batch = data(1024, 128).to("standin:0")

    def step(module: torch.nn.Module) -> list[torch.Tensor]:
        module.zero_grad()
        module(batch).square().mean().backward()
        return [parameter.grad for parameter in module.parameters()]

    reference = plain(lambda: step(model))
    budget = reference.at(0.6)
    model.zero_grad()
    chain = remat.Checkpointable(model, batch, budget=budget)
    step(chain)  # its gradients are there from then on
    seeded()
    restart()
    found = host(step(chain))
    peak = restart()["standin:0"]
    assert peak <= budget, f"a peak of {peak} bytes in a budget of {budget}, planned as {chain.plan}"
    assert differences(reference.bits[: len(found)], bits(found)) == []


def what_is_measured_waits_for_autograd() -> None:
    """Its thread frees what it ran last after it has told of the end: what is measured meanwhile is too little."""
    device = torch.device("standin:0")
    happened: list[str] = []

    def doubled(x: torch.Tensor) -> torch.Tensor:
        happened.append("measured")
        return x * 2

    batch = torch.ones(4, device=device, requires_grad=True)
    shape = shape_of([Stage("doubled", (doubled,))], batch, device)
    for measure in (lambda: step_peak(lambda: doubled(batch), device), lambda: measure_chain(shape, batch, None)):
        happened.clear()
        with ending_late(happened):
            measure()
        assert happened[:2] == ["a backward pass", "measured"]
    eager.wait_for_autograd(device)
    before = torch.accelerator.memory_allocated()
    eager.wait_for_autograd(device)
    assert torch.accelerator.memory_allocated() == before  # waiting itself takes nothing


@contextmanager
def ending_late(happened: list[str]) -> Iterator[None]:
    """A backward pass in a thread of its own goes on for some time within the block."""
    entered, may_end = threading.Event(), threading.Event()

    def ends_late(gradient: torch.Tensor) -> None:
        entered.set()
        may_end.wait()
        time.sleep(0.1)
        happened.append("a backward pass")

    x = torch.ones(4, device="standin", requires_grad=True)
    x.register_hook(ends_late)
    other = threading.Thread(target=lambda: (x * 2).sum().backward())
    other.start()
    entered.wait()
    may_end.set()
    try:
        yield
    finally:
        other.join()


def forked_children_leave_the_device_alone() -> None:
    """Real accelerators raise in the child of a fork, such as the worker of a data loader."""

    def raises(*_: object) -> torch.Stream:
        raise RuntimeError("the device was used in the child of a fork")

    with remat.budget("64MiB", device="standin"):
        x = torch.ones(1 << 10, device="standin") + 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.accelerator.current_stream = torch.accelerator.current_device_index = raises
                code = 0 if torch.ones(1 << 10).exp().numel() else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert x.sum().item() == 2 << 10


def costs_are_times_on_the_device() -> None:
    """Launching an op takes no time worth the name; the device takes the time that the test gave it."""
    standin.set_duration("aten::tanh", 7_000_000)
    standin.set_duration("aten::sinh", 3_000_000)
    with tempfile.TemporaryDirectory() as there:
        path = Path(there) / "run.trace"
        with remat.budget("1GiB", device="standin", trace=path):
            x = torch.ones(1000, device="standin")
            for _ in range(5):
                y = x.tanh().sinh()
        lines = path.read_text().splitlines()
    assert sum('"aten.tanh.default"' in line and '"c":7000000}' in line for line in lines) == 5
    assert sum('"aten.sinh.default"' in line and '"c":3000000}' in line for line in lines) == 5
    assert y.sum().item() > 0


def ops_of_known_cost_are_not_waited_for() -> None:
    stream = torch.accelerator.current_stream()
    x = torch.ones(777, device="standin")
    with remat.budget("1GiB", device="standin"):
        for _ in range(5):
            y = x + 1
        before = standin.launched(stream)
        y = x + 1
        assert standin.launched(stream) > before
        assert not standin.was_done(stream, standin.launched(stream))
    assert y.sum().item() == 2 * 777


def a_stream_that_reads_is_waited_for_before_its_bytes_are_taken() -> None:
    """A stream still reads a tensor when that is evicted, and another stream gets its block."""

    def program() -> list[torch.Tensor]:
        main, side = torch.accelerator.current_stream(), torch.Stream("standin")
        x = torch.linspace(0, 1, 1 << 16, device="standin")
        values = [x.sin()]
        side.wait_stream(main)
        with side:
            read = values[0].sum()  # so small that it stays
        for _ in range(12):  # on the main stream, which takes the block of what is evicted
            values.append(values[-1].cos())
        main.synchronize()  # its work is done first
        side.synchronize()
        main.wait_stream(side)
        return [read, *values]

    reference = plain(program, measured=4)
    stats = budgeted(program, {"standin:0": reference.at(0.4)}, reference)
    assert stats.recomputed > 0


def a_stream_reads_what_another_brought_back() -> None:
    """The program ordered its streams once. A tensor is evicted and brought back on one, and then read on the other."""

    def program() -> list[torch.Tensor]:
        main, side = torch.accelerator.current_stream(), torch.Stream("standin")
        first = torch.linspace(0, 1, 1 << 16, device="standin").sin()
        with side:
            side.wait_stream(main)
            warm = first + 1
        values = [first]
        for _ in range(12):
            values.append(values[-1].cos())
        again = first * 3  # brings it back on the main stream
        with side:
            read = first.sum()
        side.synchronize()  # before any work of the main stream is asked for
        main.wait_stream(side)
        return [warm, again, read, *values]

    reference = plain(program, measured=4)
    stats = budgeted(program, {"standin:0": reference.at(0.4)}, reference)
    assert stats.recomputed > 0


def streams_that_the_program_records_stay_recorded() -> None:
    """`record_stream` keeps a block from others until the stream is done. It is an op, and the tensor comes again."""

    def program() -> list[torch.Tensor]:
        main, side = torch.accelerator.current_stream(), torch.Stream("standin")
        values, reads = [], []
        for step in range(12):
            values.append(torch.full((1 << 16,), float(step), device="standin").exp())
            side.wait_stream(main)
            with side:
                reads.append(values[-1].sum())
            values[-1].record_stream(side)
        main.synchronize()
        main.wait_stream(side)
        return [*reads, *values]

    reference = plain(program, measured=4)
    stats = budgeted(program, {"standin:0": reference.at(0.5)}, reference)
    assert stats.evictions > 0


def a_model_on_two_devices() -> None:
    """Halves of a model on two devices, with copies between them, a budget for each and the CPU's as well."""

    def program() -> list[torch.Tensor]:
        torch.manual_seed(3)
        front = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(8)))
        back = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8)))
        front, back = front.to("standin:0"), back.to("standin:1")
        parameters = [*front.parameters(), *back.parameters()]
        optimizer = torch.optim.SGD(parameters, lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            back(front(data(512, 64).to("standin:0")).to("standin:1")).square().mean().backward()
            optimizer.step()
        return parameters

    reference = plain(program)
    budgets = {"standin:1": reference.at(0.7, "standin:1"), "standin:0": reference.at(0.7), "cpu": 1 << 30}
    assert budgeted(program, budgets, reference).recomputed > 0


def factories_go_by_the_current_device() -> None:
    with remat.budget({"standin:0": "1GiB", "standin:1": "1GiB"}):
        made = []
        for index in (0, 1, 0, 1):
            with torch.accelerator.device_index(index):
                made.append(torch.ones(100, device="standin").exp())
        assert [tensor.device.index for tensor in made] == [0, 1, 0, 1]
    assert torch.stack([tensor.cpu() for tensor in made]).unique().numel() == 1


def a_budget_of_another_device_loses_no_measurements() -> None:
    measured, profile = [], torch.autograd._enable_profiler_legacy
    x, y = torch.ones(57, 59), torch.ones(57, 59, device="standin")

    def count(config: object) -> None:
        measured.append(config)
        profile(config)

    torch.autograd._enable_profiler_legacy = count
    try:
        for known in (False, True):
            with remat.budget("1GiB", device="cpu"):
                x.cumsum(0)
            assert bool(measured) != known
            measured.clear()
            with remat.budget("1GiB", device="standin"):
                y + 1
    finally:
        torch.autograd._enable_profiler_legacy = profile


def replicas_in_threads() -> None:
    """Two replicas of a model, each on a device and in a thread of its own, as data parallelism runs them."""

    def program() -> list[torch.Tensor]:
        replicas = []
        for name in DEVICES:
            torch.manual_seed(3)
            layers = (torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(8))
            replicas.append(torch.nn.Sequential(*layers).to(name))
        batches = [part.to(name) for part, name in zip(data(1024, 64).chunk(2), DEVICES, strict=True)]
        outputs = parallel_apply(replicas, batches, devices=[0, 1])
        sum(output.square().mean().to("standin:0") for output in outputs).backward()
        return [parameter.grad for replica in replicas for parameter in replica.parameters()]

    reference = plain(program)
    budgets = {name: reference.at(0.7, name) for name in DEVICES}
    assert budgeted(program, budgets, reference).recomputed > 0


def planned_steps_keep_results() -> None:
    """Layers that autograd keeps are made from small features, which replays read after the program let go of them."""

    def trained() -> Iterator[torch.Tensor]:
        frozen = data(128, 128).to("standin") / 12
        levels = [data(1, 512).to("standin").requires_grad_() for _ in range(8)]
        batch = data(256, 128).to("standin")
        while True:
            loss = batch.new_zeros(())
            for level in levels:
                with torch.no_grad():
                    features = ((batch @ frozen).tanh() @ frozen).tanh().mean(1, keepdim=True)
                loss = loss + (features + level).exp().mean()
            loss.backward()
            for level in levels:
                level.grad = None
            yield loss.detach()

    def program() -> list[torch.Tensor]:
        return list(itertools.islice(trained(), 8))

    reference = plain(program)
    budget = {"standin:0": reference.at(0.5)}
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        with remat.budget(budget, plan="auto", plan_out=plan, costs="bytes") as run:
            step = trained().__next__
            list(until_planned(run, step))
            del step
        kept = [step.get("kept", []) for step in json.loads(plan.read_text())["steps"]]
        stats = budgeted(program, budget, reference, plan=plan, costs="bytes")
    assert stats.dispatch == "native" and sum(map(len, kept)) > 0
    assert stats.plan is not None and stats.plan.steps >= 5


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
        f"replays get larger blocks within the budget: {seed}": (replays_get_larger_blocks_within_the_budget, (seed,))
        for seed in (2, 5, 6)
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
            a_budget_follows_to_the_accelerator,
            what_is_lent_on_the_cpu_is_not_lent_on_the_accelerator,
            a_constant_for_which_nothing_could_be_evicted_is_not_counted,
            the_programs_own_peak_is_told_by_watches,
            a_planned_chain_keeps_its_budget,
            what_is_measured_waits_for_autograd,
            planned_steps_keep_results,
            forked_children_leave_the_device_alone,
            costs_are_times_on_the_device,
            ops_of_known_cost_are_not_waited_for,
            a_stream_that_reads_is_waited_for_before_its_bytes_are_taken,
            a_stream_reads_what_another_brought_back,
            streams_that_the_program_records_stay_recorded,
            a_model_on_two_devices,
            factories_go_by_the_current_device,
            replicas_in_threads,
            a_budget_of_another_device_loses_no_measurements,
            a_budget_too_small_is_refused,
            devices_that_are_not_there_are_refused,
        )
    },
}
