"""Calls of new sizes that enter no Python, because others of their family told all about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import remat
import torch
from bits import bits
from native import REPLAYS, needed, needs
from process import PYTHON, ran_warm
from torch import Tensor, nn
from true_peak import room, true_peak

#: Bytes of memory that stays, so that ops are recorded.
STAYS = 4 << 20
#: Room beside it: less than the results of all calls take.
ROOM = 950_000

#: Indices of rows, and of rows that come twice.
PLACES, PAIRS = torch.arange(300), torch.arange(300) // 2
#: Indices that do not lie in one piece.
COLUMNS = torch.stack([PLACES, PLACES], 1)

CALLS: dict[str, Callable[[int], Tensor]] = {
    "pointwise": lambda n: torch.rand(n, 32) + 2.5,
    "broadcast": lambda n: torch.rand(n, 32) * torch.rand(32),
    "of two layouts": lambda n: torch.rand(32, n).t() + torch.ones(n, 32),
    "matrices": lambda n: torch.rand(n, 64) @ torch.rand(64, 32),
    "batches of matrices": lambda n: torch.bmm(torch.rand(2, n, 8), torch.rand(2, 8, 32)),
    "transposed": lambda n: torch.rand(32, n).t().clone(memory_format=torch.contiguous_format),
    "joined": lambda n: torch.cat([torch.ones(n, 20), torch.zeros(n, 12)], 1),
    "summed": lambda n: torch.rand(3, n, 32).sum([0]),
    "normalized": lambda n: nn.functional.layer_norm(torch.rand(n, 32), [32]),
    "softmax": lambda n: torch.rand(n, 32).softmax(-1),
    "written in place": lambda n: torch.rand(n, 32).mul_(3).add_(torch.ones(n, 32), alpha=2),
    "sizes in a list": lambda n: torch.full((n, 32), 7.5) * 2,
    "random": lambda n: torch.randn(n, 32) * 2,
    "filled": lambda n: torch.empty(n, 32).bernoulli_(0.5) * 2,
    "sizes of a gradient": lambda n: gradient(n, lambda x: (x[1:] * 2).sum()),
    "rows": lambda n: nn.functional.embedding(torch.zeros(n, dtype=torch.int64), torch.rand(n, 32)) * 2,
    "sums of rows": lambda n: gradient(
        n, lambda x: nn.functional.embedding(torch.zeros(n, dtype=torch.int64), x).square().sum()
    ),
    "picked by indices": lambda n: torch.rand(300, 32)[PLACES[:n]] * 2,
    "picked from columns": lambda n: torch.rand(32, 300)[:, PLACES[:n]] * 2,
    "picked by indices of rows and columns": lambda n: torch.rand(300, 8, 32)[PLACES[:n], PLACES[:1]] * 2,
    "put by indices": lambda n: torch.zeros(300, 32).index_put_((PLACES[:n],), torch.rand(n, 32)) * 2,
    "sums by indices": lambda n: gradient(300, lambda x: x[PAIRS[:n]].square().sum()),
    "added to rows": lambda n: torch.zeros(300, 32).index_add(0, PLACES[:n], torch.rand(n, 32)) * 2,
    "added to rows in place, by a column": lambda n: (
        torch.zeros(300, 32).index_add_(0, COLUMNS[:n, 0], torch.rand(n, 32)) * 2
    ),
    "rows by a column": lambda n: torch.rand(300, 32).index_select(0, COLUMNS[:n, 0]) * 2,
    "normalized in another order": lambda n: nn.functional.layer_norm(torch.rand(32, n).t(), [32]),
    "joined in another order": lambda n: torch.cat([torch.rand(20, n).t(), torch.rand(12, n).t()], 1) * 2,
    "widened": lambda n: nn.functional.pad(torch.rand(n, 30), (1, 1)) * 2,
    "in another type": lambda n: torch.rand(n, 32).double() * 2,
    "in another type, in another order": lambda n: torch.rand(32, n).t().double() * 2,
    "copied": lambda n: torch.empty(n, 32).copy_(torch.rand(32, n).t()) * 2,
    "dropout": lambda n: gradient(n, lambda x: nn.functional.dropout(x, 0.5, training=True).sum()),
}


def gradient(n: int, loss: Callable[[Tensor], Tensor]) -> Tensor:
    x = torch.rand(n, 32).requires_grad_()
    (found,) = torch.autograd.grad(loss(x), x)
    return found * 2


def called(call: Callable[[int], Tensor], numbers: Iterable[int]) -> list[Tensor]:
    torch.manual_seed(2)
    return [call(n) for n in numbers]


@contextmanager
def pressed() -> Iterator[remat.Run]:
    """A run with little room beside memory that stays."""
    stays = torch.zeros(STAYS // 4)
    with remat.budget(room(ROOM)) as run:
        yield run
    del stays


@needed
@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_new_sizes_enters_no_python(native: None, name: str) -> None:
    """And is replayed with its own sizes."""
    enters_no_python_once_known(CALLS[name], range(100, 120), range(200, 240))


def enters_no_python_once_known(call: Callable[[int], Tensor], known: Iterable[int], new: Iterable[int]) -> None:
    """Checks that calls with numbers that are new are told by others, and have plain eager's bits and replays."""
    plain = [bits(result) for result in called(call, new)]
    with pressed() as run:
        called(call, known)
        before = run.stats()
        results = called(call, new)
        after = run.stats()
        assert after.through_python == before.through_python
        assert after.ops > before.ops
        while results:
            assert bits(results.pop().clone()) == plain.pop()
        assert run.stats().recomputed > 0


def products(sizes: range) -> None:
    for n in sizes:
        torch.ones(n, 64) @ torch.ones(64, 32)


@needed
def test_copies_grow_with_what_is_copied(native: None) -> None:
    """An index in two-column rows takes twice the bytes of the numbers that it picks."""
    x, columns = torch.rand(1000), torch.arange(400_000).view(-1, 2) % 1000

    def train(sizes: Iterable[int]) -> None:
        filled = [torch.rand(50_000) for _ in range(40)]
        for n in sizes:
            x.index_select(0, columns[:n, 0]).mul_(2)
        del filled

    with remat.budget(room(4 << 20)) as run:
        train(range(1000, 1020))
        before = run.stats()
        with true_peak() as peak:  # the profiler lets nothing be measured: nothing is left to be
            train([200_000])
        after = run.stats()
    assert after.through_python == before.through_python
    assert after.evictions > before.evictions
    assert peak.highest <= after.budget


@needed
def test_other_settings_make_another_family(native: None) -> None:
    before = torch.get_float32_matmul_precision()
    with pressed() as run:
        products(range(100, 120))
        known = run.stats().through_python
        torch.set_float32_matmul_precision("medium")
        try:
            products(range(200, 204))
        finally:
            torch.set_float32_matmul_precision(before)
        assert run.stats().through_python >= known + 4


@needed
def test_nothing_follows_for_empty_tensors(native: None) -> None:
    with pressed() as run:
        products(range(100, 120))
        known = run.stats().through_python
        products(range(1))
        assert run.stats().through_python > known


@needed
def test_steps_on_batches_of_ever_new_lengths_enter_little_python(native: None) -> None:
    torch.manual_seed(3)
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(3)]
    model = nn.Sequential(nn.Linear(16, 32), *layers)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with pressed() as run:
        for length in range(10, 40):
            before = run.stats()
            optimizer.zero_grad()
            model(torch.randn(2, length, 16)).square().mean().backward()
            optimizer.step()
        after = run.stats()
    assert after.ops - before.ops > 300
    assert after.through_python - before.through_python < 12


@needed
def test_a_call_of_new_sizes_costs_what_it_takes(native: None, tmp_path: Path) -> None:
    with remat.budget(room(64 << 20), trace=tmp_path / "step.trace"):
        products(range(100, 140))
    events = map(json.loads, (tmp_path / "step.trace").read_text().splitlines())
    costs = [event["op"]["c"] for event in events if event.get("op", {}).get("n") == "aten.mm.default"]
    assert len(costs) == 40
    # A product of two thousand numbers takes no second.
    assert all(0 < cost < 1e9 for cost in costs)


REPLAYED = """
import remat, torch, warnings
from remat._torch_internals.eager import rehearsal
warnings.simplefilter("ignore")
rehearsal._raises = lambda: False

def called(sizes):
    torch.manual_seed(0)
    return [(torch.rand(4, n) * torch.full((4, n), 7.5)).sum([0]) + torch.rand(n, 2)[:, 0] for n in sizes]

plain = [found.tolist() for found in called(range(9000, 9040))]
stays = torch.rand(1 << 18)
with remat.budget(9 << 18, policy="lru") as run:
    called(range(8000, 8020))
    before = run.stats()
    found = called(range(9000, 9040))
    after = run.stats()
    assert after.through_python == before.through_python, (before.through_python, after.through_python)
    assert [one.clone().tolist() for one in found] == plain
    assert run.stats().recomputed > 0
    assert any(part.startswith("replays: ") for part in run.stats().left_to_python)
"""


@needed
@needs(REPLAYS)
def test_its_form_is_replayed_through_python_where_that_is_needed() -> None:
    done = ran_warm(["env", "REMAT_DISPATCH=native", *PYTHON, "-c", REPLAYED])
    assert done.code == 0, done.err
