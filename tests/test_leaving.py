"""However the context is left, every live tensor is resident, usable and has the plain run's bits."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import remat
import torch
import torch.nn.functional as F
from bits import bits, differences
from remat._online.optimizers import Optimizers
from torch import Tensor, nn
from true_peak import resident_bytes, room, true_peak

EXTRA = 4 * 2**20  # features kept across updates of the weights (3 MiB at the end) cannot be evicted


class Stopped(Exception):
    """Raised by a step."""


def raise_stopped() -> None:
    raise Stopped


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)
    raise AssertionError("the interrupt was lost")


def leave_process() -> None:
    sys.exit(3)


def steps(kept: list[Any]) -> Iterator[None]:
    """Trains and keeps every layer's output; pauses twice within a step and once between steps."""
    torch.manual_seed(11)
    model = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
    slopes = torch.zeros(512, 64)
    kept += [*model.parameters(), slopes]
    x, y = torch.randn(512, 64), torch.randn(512, 64)
    for step in range(3):
        hidden = x
        for number, layer in enumerate(model):
            hidden = F.dropout(layer(hidden).tanh(), 0.1)
            kept += [hidden.detach(), hidden.detach()[::2, 3:]]
            if (step, number) == (1, 6):
                yield
        loss = F.mse_loss(hidden, y)
        kept.append(loss)
        if step == 1:
            hidden.register_hook(lambda grad: slopes.copy_(grad * 2) * 0 + grad)
            yield
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                assert p.grad is not None
                p -= 0.1 * p.grad
        if step == 1:
            yield
    kept.append(hidden)


def run_until(pause: int, leave: Callable[[], None], kept: list[Any]) -> None:
    for number, _ in enumerate(steps(kept)):
        if number == pause:
            leave()


LEAVINGS: dict[str, tuple[Callable[[], None], type[BaseException] | None]] = {
    "end": (lambda: None, None),
    "exception": (raise_stopped, Stopped),
    "interrupt": (interrupt, KeyboardInterrupt),
    "exit": (leave_process, SystemExit),
}


def state(kept: list[Any]) -> Any:
    return bits([kept, [t.grad for t in kept if t.is_leaf], torch.get_rng_state()])


@pytest.mark.parametrize("pause", [0, 1, 2])
@pytest.mark.parametrize("how", LEAVINGS)
def test_everything_is_resident_after(how: str, pause: int) -> None:
    leave, error = LEAVINGS[how]

    def attempt(kept: list[Any]) -> None:
        if error is None:
            run_until(pause, leave, kept)
        else:
            with pytest.raises(error):
                run_until(pause, leave, kept)

    plain: list[Any] = []
    attempt(plain)
    expected = state(plain)
    del plain

    kept: list[Any] = []
    if error is None:
        with remat.budget(room(EXTRA)) as run:
            run_until(pause, leave, kept)
            assert run.stats().evictions > 0
    else:
        with pytest.raises(error), remat.budget(room(EXTRA)):
            run_until(pause, leave, kept)
    assert differences(expected, state(kept)) == []
    # usable: in place, by numpy, in a graph, from scratch in a new context
    kept[-2].mul_(1)
    float(kept[20].numpy().sum())
    F.mse_loss(kept[0], torch.zeros(64, 64)).backward()
    with remat.budget(room(64 * EXTRA)):
        assert torch.isfinite(sum((t.sum() for t in kept), torch.zeros(())))


def test_everything_is_resident_after_an_interrupt_as_the_budget_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    plain: list[Any] = []
    run_until(2, lambda: None, plain)
    expected = state(plain)
    del plain

    kept: list[Any] = []
    with pytest.raises(KeyboardInterrupt), remat.budget(room(EXTRA)) as run:
        run_until(2, lambda: None, kept)
        assert run.stats().evictions > 0
        monkeypatch.setattr(run, "stats", interrupt)
    assert differences(expected, state(kept)) == []
    with remat.budget(room(64 * EXTRA)):
        assert torch.isfinite(sum((t.sum() for t in kept), torch.zeros(())))


def test_an_error_as_a_budget_begins_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("remat._online.optimizers.Optimizers.watch", lambda self: raise_stopped())
        with pytest.raises(Stopped), remat.budget(room(EXTRA)):
            raise AssertionError("the error was lost")
    before = torch.compile, torch.Tensor.numpy
    with remat.budget(room(64 * EXTRA)) as run:
        x = torch.ones(64, 64) + 1
        ops = run.stats().ops
    assert ops > 0 and x.sum().item() == 8192
    assert (torch.compile, torch.Tensor.numpy) == before


def test_each_optimizer_is_looked_at_where_one_follows_another() -> None:
    """Each new one takes the place of the last in memory, as in a search for parameters."""
    kept: list[int] = []

    class Told:
        def keep_state(self, state: list[Tensor]) -> None:
            kept.append(len(state))

        def may_begin_step(self) -> None:
            pass

    optimizers = Optimizers(Told())  # type: ignore[arg-type]
    optimizers.watch()
    try:
        for _ in range(30):
            weight = nn.Parameter(torch.ones(4))
            weight.grad = torch.ones(4)
            torch.optim.Adam([weight]).step()
    finally:
        optimizers.leave()
    assert len(kept) == 30


def test_interrupt_inside_backward() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(64, 64) / 8 for _ in range(8)]
    x = torch.randn(512, 64)
    kept: list[Tensor] = []

    def press(grad: Tensor) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt), remat.budget(room(EXTRA)):
        hidden = x.clone().requires_grad_()
        for number, weight in enumerate(weights):
            hidden = (hidden @ weight).tanh()
            kept.append(hidden.detach())
            if number == 3:
                hidden.register_hook(press)
        hidden.sum().backward()
    expected = [x]
    for weight in weights:
        expected.append((expected[-1] @ weight).tanh())
    assert differences(bits(expected[1:]), bits(kept)) == []


def test_generator_closed_with_the_context_inside() -> None:
    plain: list[Any] = []
    walk: Any = steps(plain)
    next(walk)
    next(walk)
    walk.close()
    expected = state(plain)
    kept: list[Any] = []

    def budgeted() -> Iterator[None]:
        with remat.budget(room(EXTRA)):
            yield from steps(kept)

    around = budgeted()
    next(around)
    next(around)
    around.close()  # type: ignore[attr-defined]
    assert differences(expected, state(kept)) == []
    with remat.budget(room(EXTRA)):  # the closed one is really gone
        pass


def test_generator_collected_with_the_context_inside() -> None:
    kept: list[Any] = []

    def budgeted() -> Iterator[None]:
        with remat.budget(room(EXTRA)):
            yield from steps(kept)

    around = budgeted()
    next(around)
    del around
    assert all(torch.isfinite(tensor).all() for tensor in kept)
    with remat.budget(room(64 * EXTRA)):
        pass


def test_decorated_function() -> None:
    @remat.budget(room(EXTRA))
    def train(kept: list[Any]) -> int:
        """Trains."""
        run_until(9, raise_stopped, kept)
        return len(kept)

    assert train.__name__ == "train" and train.__doc__ == "Trains."
    kept: list[Any] = []
    for _ in range(2):
        plain: list[Any] = []
        run_until(9, raise_stopped, plain)
        expected, count = state(plain), len(plain)
        del plain[:], kept[:]
        assert train(kept) == count
        assert differences(expected, state(kept)) == []


def test_nothing_is_held_after() -> None:
    def work() -> None:
        kept: list[Any] = []
        run_until(9, raise_stopped, kept)

    before = resident_bytes()
    for _ in range(3):
        with remat.budget(room(EXTRA)):
            work()
    assert resident_bytes() <= before + 4096


@pytest.mark.parametrize("leave", [False, True])
def test_nested_budgets_are_refused(leave: bool) -> None:
    kept = torch.ones(100)
    try:
        with remat.budget(room(64 * EXTRA)) as run:
            with pytest.raises(remat.RematError) as nested, remat.budget(room(32 * EXTRA)):
                raise AssertionError("entered")
            assert "\n" not in str(nested.value)
            doubled = kept * 2  # the outer one goes on
            assert run.stats().ops > 0
            if leave:
                raise_stopped()
    except Stopped:
        pass
    assert doubled.sum() == 200
    with remat.budget(room(64 * EXTRA)):
        pass


def test_budget_object_used_again() -> None:
    budget = remat.budget(room(64 * EXTRA))
    for _ in range(2):
        with budget as run:
            torch.ones(10) + 1
            assert run.stats().ops > 0


def test_memory_keeps_to_the_budget_until_all_is_back(way: str) -> None:
    """Replays for tensors that are brought back last leave nothing behind, although the run is still held."""
    size = 4 * 128 * 512

    def kept_of(x: Tensor) -> list[Tensor]:
        kept = []
        for number in range(60):
            x = x.sin() + 0.5
            if number % 6 == 5:
                kept.append(x)
        return kept

    x = torch.randn(128, 512)
    expected = bits(kept_of(x))
    budget = room(14 * size)  # ten results are kept, of sixty
    with true_peak() as peak, remat.budget(budget, policy="lru", plan="off") as run:
        kept = kept_of(x)
        pressure = [x + number for number in range(11)]
        del pressure
    assert run.stats().evictions >= 8
    assert bits(kept) == expected
    assert peak.highest <= budget
    assert peak.left <= peak.base + 10 * size
