"""Errors that handlers of signals raise while Remat guards a call: they end the program's work, and are no answers."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from process import PYTHON, program, ran
from remat._interrupts import raise_interrupt
from remat._torch_internals import eager
from remat._torch_internals.eager import predict
from true_peak import room


def ends(_number: int, _frame: object) -> None:
    raise TimeoutError("the time is up")


class Ends:
    def __call__(self, number: int, frame: object) -> None:
        ends(number, frame)

    def method(self, number: int, frame: object) -> None:
        ends(number, frame)


HANDLERS: dict[str, Callable[..., None]] = {
    "a function": ends,
    "an object": Ends(),
    "a method": Ends().method,
    "a partial function": functools.partial(lambda more, number, frame: ends(number, frame), 1),
}


@pytest.fixture(params=HANDLERS)
def _handled(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, HANDLERS[request.param])
    yield
    signal.signal(signal.SIGUSR1, before)


library = torch.library.Library("remat_interrupts", "DEF")
library.define("signalled(Tensor x) -> Tensor")
library.define("failing(Tensor x) -> Tensor")


def signalled(x: torch.Tensor) -> torch.Tensor:
    signal.raise_signal(signal.SIGUSR1)
    return torch.empty_like(x)


def failing(x: torch.Tensor) -> torch.Tensor:
    raise TimeoutError("of the op's own")


library.impl("signalled", signalled, "Meta")
library.impl("failing", failing, "Meta")


@pytest.mark.usefixtures("_handled")
def test_a_handler_ends_a_prediction() -> None:
    with pytest.raises(TimeoutError, match="the time is up"):
        predict(torch.ops.remat_interrupts.signalled.default, (torch.ones(4),), {})


@pytest.mark.usefixtures("_handled")
def test_an_error_of_an_op_is_an_answer() -> None:
    (told,), *_ = predict(torch.ops.remat_interrupts.failing.default, (torch.ones(4),), {})
    assert told is not None and told[0] >= 16


@pytest.mark.usefixtures("_handled")
def test_an_error_that_was_never_raised_is_no_interrupt() -> None:
    raise_interrupt(TimeoutError())


library.impl("signalled", lambda x: x.clone(), "CPU")


@pytest.mark.usefixtures("_handled")
def test_a_handler_ends_a_run_within_a_budget_and_the_run_goes_on() -> None:
    with remat.budget("64MiB"):
        x = torch.ones(1000)
        with pytest.raises(TimeoutError, match="the time is up"):
            torch.ops.remat_interrupts.signalled(x)
        assert (x * 2).sum() == 2000


COMPILED = """
import signal, torch, remat
from remat._torch_internals import compiled

def ends(number, frame):
    raise TimeoutError("the time is up")

signal.signal(signal.SIGUSR1, ends)
real = compiled.dry_run

def interrupted(*args, **kwargs):
    signal.raise_signal(signal.SIGUSR1)
    return real(*args, **kwargs)

x = torch.ones(8, requires_grad=True)
run = remat.compile(lambda x: x.sin().exp().cos(), budget="1GiB", options={"force_disable_caches": True})
compiled.dry_run = interrupted
try:
    run(x)
    print("compiled without a forecast")
except Exception as error:
    print("the time is up" in str(error))
compiled.dry_run = real
run(x).sum().backward()
print(len(run.report().cuts))
"""


def test_a_handler_ends_a_forecast(tmp_path: Path) -> None:
    ended = ran([*PYTHON, program(tmp_path, COMPILED)])
    assert ended.out.splitlines() == ["True", "1"], ended.err


@pytest.mark.usefixtures("way")
class TestErrorsAroundAnOp:
    """Python code of Remat's own may be interrupted before an op runs or after it. Nothing stays of the op then."""

    @staticmethod
    def _struck(monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[], object]) -> None:
        """Calls something often, each time with an error in a function that the session has Python call."""
        original, strikes = getattr(eager, name), False

        def striking(*args: Any) -> Any:
            if strikes:
                raise KeyboardInterrupt
            return original(*args)

        monkeypatch.setattr(eager, name, striking)
        with remat.budget(room(8 << 20)):
            call()
            for _ in range(20):
                strikes = True
                with pytest.raises(KeyboardInterrupt):
                    call()
                strikes = False
            x = torch.ones(1 << 19)
            assert (x + 1).sum().item() == 1 << 20

    def test_as_the_state_of_random_numbers_is_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        generator = torch.Generator()
        self._struck(monkeypatch, "rng_state", lambda: torch.rand(1 << 18, generator=generator))

    def test_as_the_results_are_looked_at(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x = torch.randn(1 << 17)
        self._struck(monkeypatch, "flatten", lambda: torch.unique(x, return_inverse=True))
