"""Ops that autocast passes over: it stays on for the ops that their kernels call, as in plain eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import native
import pytest
import remat
import torch
from bits import bits, differences
from torch import Tensor, nn
from torch.nn.functional import bilinear

pytestmark = [native.needed, pytest.mark.usefixtures("native")]


@torch.library.custom_op("rematcheck::product", mutates_args=())
def product(x: Tensor, weight: Tensor) -> Tensor:
    return (x @ weight).float()


def _backward(ctx: torch.autograd.function.FunctionCtx, gradient: Tensor) -> tuple[Tensor, Tensor]:
    x, weight = ctx.saved_tensors
    return gradient @ weight.T, x.T @ gradient


product.register_autograd(_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


def _encoded(layers: int) -> Callable[[torch.dtype], Iterator[object]]:
    """The fast path of encoders is one op, which calls others."""

    def run(dtype: torch.dtype) -> Iterator[object]:
        torch.manual_seed(0)
        model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), layers).eval()
        x = torch.randn(16, 20, 64)
        for _ in range(3):
            with torch.no_grad(), torch.autocast("cpu", dtype):
                yield model(x)
        with torch.no_grad():
            yield model(x)

    return run


def _trained(dtype: torch.dtype) -> Iterator[object]:
    """Backward passes run outside of autocast, and parameters change between two forward passes."""
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(256, 256) / 16) for _ in range(6)]
    last = nn.Bilinear(16, 16, 16)
    parameters = [*weights, *last.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1)
    batch = torch.randn(512, 256)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            x = batch
            for weight in weights:
                x = product(x, weight).tanh()
            loss = last(x[:32, :16], x[:32, 16:32]).float().square().mean() + x.square().mean()
        loss.backward()
        optimizer.step()
        yield loss.detach().clone()
    yield from parameters


RUNS = {"one layer": _encoded(1), "two layers": _encoded(2), "trained": _trained}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("record", ["0", "always"])
def test_ops_within_ops_are_cast_as_in_plain_eager(
    run: Callable[[torch.dtype], Iterator[object]],
    record: str,
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REMAT_RECORD", record)
    plain = bits(list(run(dtype)))
    with remat.budget("64MiB"):
        found = bits(list(run(dtype)))
    assert not differences(plain, found)


def test_a_replay_has_autocast_as_the_first_run_had_it(dtype: torch.dtype) -> None:
    def run(dropped: Callable[[], None]) -> Iterator[Tensor]:
        torch.manual_seed(0)
        x, weight = torch.randn(512, 16), torch.randn(64, 16, 16, requires_grad=True)
        plain = bilinear(x, x, weight)
        with torch.autocast("cpu", dtype):
            cast = bilinear(x, x, weight)
        dropped()
        with torch.autocast("cpu", torch.bfloat16):
            yield plain.detach().clone()
        yield cast.detach().clone()

    plain = bits(list(run(lambda: None)))
    with remat.budget("64MiB", policy="lru") as session:

        def dropped() -> None:
            session.set_budget("1KiB")  # all can be made again
            session.set_budget("64MiB")

        found = bits(list(run(dropped)))
    assert session.stats().recomputed >= 2
    assert not differences(plain, found)


def test_a_replay_leaves_nothing_in_autocasts_cache_of_parameters(dtype: torch.dtype) -> None:
    """The program's own autocast would find it there after the parameters have changed."""

    def run(dropped: Callable[[], None]) -> Iterator[Tensor]:
        torch.manual_seed(0)
        model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
        x = torch.randn(16, 20, 64)
        with torch.no_grad():
            with torch.autocast("cpu", dtype):
                before = model(x)
            dropped()
            yield before.clone()
            for parameter in model.parameters():
                parameter.mul_(1.5)
            with torch.autocast("cpu", dtype):
                yield model(x).clone()

    plain = bits(list(run(lambda: None)))
    with remat.budget("64MiB", policy="lru") as session:

        def dropped() -> None:
            with suppress(remat.BudgetError):
                session.set_budget("1KiB")
            session.set_budget("64MiB")

        found = bits(list(run(dropped)))
    assert session.stats().recomputed >= 1
    assert not differences(plain, found)
