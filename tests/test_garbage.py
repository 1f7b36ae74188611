"""Memory that only cyclic garbage refers to is collected before an op is refused."""

from __future__ import annotations

import copy
import gc
from collections.abc import Iterator

import pytest
import remat
import torch
from bits import bits
from torch import nn
from true_peak import room, true_peak

MIB = 1 << 20


class Cycle:
    """Something that only garbage collection lets go of, with what it holds."""

    def __init__(self, held: object) -> None:
        self.held = held
        self.me = self


@pytest.fixture(autouse=True)
def collected_on_demand() -> Iterator[None]:
    """Python collects nothing by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def sweep(models: int) -> list[bytes]:
    """Trains models of 1 MiB one after the other; each stays in a cycle. Returns their losses."""
    losses = []
    for seed in range(models):
        torch.manual_seed(seed)
        model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)])
        Cycle(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(16, 256)).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(bits(loss))
        del model, optimizer, loss
    return losses


@pytest.mark.usefixtures("way")
def test_models_that_were_replaced_do_not_fill_the_budget() -> None:
    plain = sweep(8)
    budget = room(5 * MIB)  # two models and their gradients take 4 MiB
    with true_peak() as peak, remat.budget(budget, costs="bytes"):
        trained = sweep(8)
    assert trained == plain
    assert peak.highest <= budget


def test_constants_in_garbage_make_room_for_others() -> None:
    values = [1.0] * (MIB // 4)
    with remat.budget(room(3 * MIB + MIB // 2), costs="bytes") as run:
        for _ in range(6):
            constant = torch.tensor(values)
            assert constant.sum().item() == MIB // 4
            Cycle(constant)
            del constant
        assert run.stats().evictions == 0


def test_garbage_makes_room_for_a_copy_of_a_storage() -> None:
    budget = room(3 * MIB + MIB // 2)
    values = [1.0] * (MIB // 4)
    source, constant = torch.tensor(values), torch.tensor(values + values)
    with remat.budget(budget, costs="bytes"):
        assert source.sum().item() + constant.sum().item() == 3 * MIB // 4
        Cycle(constant)
        del constant
        copied = copy.deepcopy(source)
        assert torch.equal(copied, source)


@pytest.mark.parametrize(("kept_mib", "times"), [(2, 1), (0, 0)], ids=["beside constants", "by itself too large"])
def test_without_garbage_an_op_is_refused_as_always(kept_mib: int, times: int) -> None:
    """Garbage is sought where constants are in an op's way, and not where it is too large alone."""
    collections = []

    def note(phase: str, _info: dict[str, int]) -> None:
        collections.append(phase)

    budget = room(3 * MIB)
    kept = torch.tensor([1.0] * (kept_mib * MIB // 4))
    with remat.budget(budget):
        total = kept.sum()
        size = MIB // 2 if kept_mib else MIB
        gc.callbacks.append(note)
        try:
            with pytest.raises(remat.BudgetError, match="smallest budget known to work"):
                torch.ones(size)
        finally:
            gc.callbacks.remove(note)
        assert total.item() == kept_mib * MIB // 4
    assert collections == ["start", "stop"] * times
