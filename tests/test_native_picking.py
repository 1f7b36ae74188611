"""Calls that pick numbers by a mask, whose entries decide what they make: natively, whatever their count."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import remat
import torch
from bits import bits
from native import needed
from test_native_families import called, enters_no_python_once_known, pressed
from torch import Tensor
from true_peak import room, true_peak

#: Numbers of which a call picks some.
ROWS, WIDTH = 400, 32

#: By the number of places, ranks of theirs in no order.
RANKS = {
    places: torch.randperm(places, generator=torch.Generator().manual_seed(1))
    for places in (2 * ROWS, ROWS, ROWS * WIDTH)
}


def mask_of(entries: int, *sizes: int) -> Tensor:
    """A mask with so many entries, at places that do not lie side by side."""
    places = torch.Size(sizes).numel()
    return RANKS[places].view(sizes) < entries


def gradient(loss: Callable[[Tensor], Tensor]) -> Tensor:
    x = torch.rand(ROWS, WIDTH).requires_grad_()
    (found,) = torch.autograd.grad(loss(x), x)
    return found * 2


CALLS: dict[str, Callable[[int], Tensor]] = {
    "rows": lambda n: torch.rand(ROWS, WIDTH)[mask_of(n, ROWS)],
    "rows by bytes": lambda n: torch.rand(ROWS, WIDTH)[mask_of(n, ROWS).byte()],
    "columns": lambda n: torch.rand(WIDTH, ROWS)[:, mask_of(n, ROWS)],
    "numbers": lambda n: torch.rand(ROWS, WIDTH)[mask_of(30 * n, ROWS, WIDTH)],
    "numbers by another name": lambda n: torch.rand(ROWS, WIDTH).masked_select(mask_of(30 * n, ROWS, WIDTH)),
    "rows, expanded": lambda n: torch.rand(ROWS, WIDTH).masked_select(mask_of(n, ROWS, 1)),
    "places": lambda n: mask_of(30 * n, ROWS, WIDTH).nonzero(),
    "places of numbers": lambda n: (torch.rand(ROWS, WIDTH) * mask_of(30 * n, ROWS, WIDTH)).nonzero(),
    "places in each dimension": lambda n: torch.where(mask_of(30 * n, ROWS, WIDTH))[1],
    "put": lambda n: torch.rand(ROWS, WIDTH).index_put_((mask_of(n, ROWS),), torch.zeros(1, WIDTH)),
    "put elsewhere": lambda n: torch.rand(ROWS, WIDTH).index_put((mask_of(n, ROWS),), torch.zeros(1, WIDTH)),
}

#: The mask's entries decide about the sizes of other arguments too.
GRADIENTS: dict[str, Callable[[int], Tensor]] = {
    "gradient of rows": lambda n: gradient(lambda x: x[mask_of(n, ROWS)].square().sum()),
    "gradient of numbers": lambda n: gradient(lambda x: x.masked_select(mask_of(30 * n, ROWS, WIDTH)).square().sum()),
}


by_bytes = pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")


@needed
@by_bytes
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_picks_another_count_enters_no_python(native: None, name: str) -> None:
    """And is replayed with its own. From a mask that picks nothing, nothing follows."""
    enters_no_python_once_known(CALLS[name], [0, 100, 101], range(250, 330))


@needed
@by_bytes
@pytest.mark.parametrize("name", [*CALLS, *GRADIENTS])
def test_a_call_that_picks_as_many_enters_no_python(native: None, name: str) -> None:
    enters_no_python_once_known((CALLS | GRADIENTS)[name], [250, 260], [250, 260] * 20)


@needed
def test_masks_that_were_evicted_are_counted_natively(native: None) -> None:
    """They are brought back first."""
    torch.manual_seed(3)
    x = torch.rand(ROWS, WIDTH)

    def picked(mask: Tensor) -> Tensor:
        return x[mask]

    def masks() -> list[Tensor]:
        return [torch.rand(ROWS, WIDTH) < at / 40 for at in range(1, 40)]

    torch.manual_seed(4)
    plain = [bits(picked(mask)) for mask in masks()]
    with remat.budget(room(500_000), policy="lru") as run:
        torch.manual_seed(4)
        given = masks()
        known = [picked(mask) for mask in given[:3]]
        del known
        before = run.stats()
        for mask, expected in zip(given, plain, strict=True):
            assert bits(picked(mask)) == expected
        after = run.stats()
    assert after.through_python == before.through_python
    assert after.recomputed > before.recomputed


@needed
def test_a_call_that_picks_more_is_given_the_bytes_that_it_takes(native: None) -> None:
    """Indices of every entry are made of a mask, in twice the bytes of the numbers that they pick."""
    x, places = torch.rand(200_000), torch.arange(200_000)

    def train() -> None:
        filled = [torch.rand(50_000) for _ in range(40)]
        for entries in (1_000, 2_000, 4_000, 100_000, 190_000):
            x[places < entries].mul_(2)
        del filled

    with remat.budget(room(4 << 20)) as run:
        train()  # a profiler, by which the peak is taken, lets nothing be measured
        before = run.stats()
        with true_peak() as peak:
            train()
        after = run.stats()
    assert after.through_python == before.through_python
    assert after.evictions > before.evictions
    assert peak.highest <= run.stats().budget
    assert after.peak > 0.95 * after.budget, "memory was short"


@needed
def test_results_that_do_not_grow_are_given_no_more(native: None) -> None:
    """Four hundred times the bytes of this one would not fit."""
    call = CALLS["put elsewhere"]
    with pressed() as run:
        called(call, [1, 2])
        before = run.stats().through_python
        called(call, [ROWS])
        assert run.stats().through_python == before


@needed
@pytest.mark.parametrize("lies", ["in wider rows", "expanded"])
def test_masks_that_cannot_be_counted_are_left_to_python(native: None, lies: str) -> None:
    masks = {
        "in wider rows": lambda n: mask_of(n, ROWS, 2)[:, 0],
        "expanded": lambda n: mask_of(n, ROWS, 1).expand(ROWS, WIDTH),
    }

    def picked(n: int) -> Tensor:
        return torch.rand(ROWS, WIDTH)[masks[lies](n)]

    counts = range(200, 240)
    plain = [bits(result) for result in called(picked, counts)]
    with pressed() as run:
        called(picked, counts)
        before = run.stats().through_python
        assert [bits(result.clone()) for result in called(picked, counts)] == plain
        assert run.stats().through_python >= before + len(counts)


@needed
def test_what_else_depends_on_data_is_left_to_python(native: None) -> None:
    """Their words do not tell what they make."""
    with pressed() as run:
        for distinct in range(1, 20):
            before = run.stats().through_python
            found, counts = torch.unique(torch.arange(1000) % distinct, return_counts=True)
            assert len(found) == len(counts) == distinct
            assert run.stats().through_python > before
