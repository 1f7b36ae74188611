"""Calls that differ in sizes alone: what one told of the others, and that it is enough for them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import remat
import torch
from bits import bits
from remat._torch_internals import eager
from remat._torch_internals.eager import families, shapes, sizes
from torch import Tensor, nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from true_peak import room, true_peak

aten = torch.ops.aten


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> families.Families:
    """Families of this test alone."""
    known = families.Families()
    monkeypatch.setattr(sizes, "_FAMILIES", known)
    return known


class Compared(TorchDispatchMode):
    """Compares the short rule with torch's own for each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.apart: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if shapes.rule_of(func) is not None:
            with _disable_current_modes():
                self.compare(func, args, kwargs)
        return func(*args, **kwargs)

    def compare(self, func: Any, args: Any, kwargs: Any) -> None:
        sizes._FAMILIES = families.Families()
        eager.predict(func, args, kwargs)
        for family in sizes._FAMILIES._known.values():
            self.calls[str(func)] += 1
            if family is None:
                self.apart.add(str(func))


def run_samples(op: Any, dtype: torch.dtype, most: int) -> None:
    differentiable = dtype == torch.float32 and op.supports_autograd
    # `op.sample_inputs` looks through the whole stack for a test of unittest's: 15 times as long as all the rest here.
    samples = op.sample_inputs_func(op, "cpu", dtype, differentiable)
    for sample, _ in zip(samples, range(most), strict=False):
        result = op(sample.input, *sample.args, **sample.kwargs)
        if isinstance(result, Tensor) and result.requires_grad:
            result.sum().backward()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("most", [1, pytest.param(30, marks=pytest.mark.full)], ids="{} samples an op".format)
def test_short_rules_say_what_torchs_own_say(most: int) -> None:
    """On samples of torch's own of every op, forward and backward."""
    dtypes = [torch.float32, torch.int64] + [torch.complex64] * (most > 2)
    with Compared() as compared:
        for op in op_db:
            if op.name.startswith("jiterator"):
                continue  # on GPUs alone
            for dtype in dtypes:
                if dtype in op.supported_dtypes("cpu"):
                    try:
                        run_samples(op, dtype, most)
                    except (RuntimeError, NotImplementedError):
                        continue  # torch has no such kernel
    assert compared.apart == set()
    assert len(compared.calls) > 200


def matrices(rows: int, columns: int = 24) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, columns), torch.randn(columns, 16)


def settled(op: Any, calls: Iterable[tuple[Any, ...]]) -> list[tuple[int, bool]]:
    """The workspace of each call, and whether it need not be measured. Those that need be are."""
    found = []
    for args in calls:
        predicted = eager.predict(op, args, {})
        if predicted.told is not None and not predicted.exact:
            _, taken = eager.measured_call(op, args, {})
            assert taken is not None
            predicted.told(taken)
        found.append((predicted.workspace, predicted.exact))
    return found


@pytest.mark.usefixtures("fresh")
class TestWorkspaceOfAFamily:
    def test_is_measured_for_some_sizes(self) -> None:
        told = settled(aten.mm.default, (matrices(rows) for rows in range(100, 120)))
        # The first call makes the family known, the second what is enough, and eight are measured.
        assert [exact for _, exact in told] == [False] * 9 + [True] * 11
        for rows in (3, 1000, 5000):
            _, taken = eager.measured_call(aten.mm.default, matrices(rows), {})
            assert taken == told[-1][0] == 0

    @pytest.mark.parametrize("op", [aten.index_select.default, aten.index_add_.default, aten.embedding.default])
    def test_holds_copies_of_what_does_not_lie_in_one_piece(self, op: Any) -> None:
        def call(places: int) -> tuple[Any, ...]:
            x, index = torch.randn(9000, 2), (torch.arange(2 * places) % 9000).view(places, 2)[:, 0]
            return {"index_select": (x, 0, index), "embedding": (x, index)}.get(
                op._schema.name.split("::")[-1], (x, 0, index, torch.randn(places, 2))
            )

        assert settled(op, map(call, range(100, 120)))[-1][1]
        for places in (7, 5000, 200_000):
            ((workspace, exact),) = settled(op, [call(places)])
            assert exact
            _, taken = eager.measured_call(op, call(places), {})
            assert taken == 8 * places, "the index is copied"
            assert workspace == taken

    def test_of_copies_between_orders_is_that_of_a_block(self) -> None:
        def call(rows: int) -> tuple[Any, ...]:
            return torch.empty(rows, 300), torch.randn(300, rows).t()

        assert settled(aten.copy_.default, map(call, range(100, 120)))[-1][1]
        ((workspace, exact),) = settled(aten.copy_.default, [call(5000)])
        assert exact
        _, taken = eager.measured_call(aten.copy_.default, call(5000), {})
        assert taken is not None
        assert 0 < taken <= workspace < 20_000

    def test_is_measured_for_ever_where_the_estimate_was_not_enough(self) -> None:
        for rows in range(100, 120):
            predicted = eager.predict(aten.mm.default, matrices(rows), {})
            assert not predicted.exact
            assert not predicted.settled
            if predicted.told is not None:
                predicted.told(1 << 20)

    def test_is_of_tensors_that_lie_alike(self) -> None:
        settled(aten.mm.default, (matrices(rows) for rows in range(100, 120)))
        a, b = matrices(100)
        copied = a.repeat(1, 2)[:, ::2]
        ((workspace, exact),) = settled(aten.mm.default, [(copied, b)])
        assert not exact
        assert workspace >= copied.nbytes

    def test_follows_from_no_empty_tensor(self) -> None:
        """Which rows have no number is noted beside the result: nothing, of no rows."""
        settled(aten._safe_softmax.default, [(torch.randn(0, 9), 1)] * 20)
        ((workspace, exact),) = settled(aten._safe_softmax.default, [(torch.randn(3000, 9), 1)])
        assert not exact
        assert workspace >= 3000 * 9

    def test_is_told_by_runs(self) -> None:
        with remat.budget("1GiB"):
            for rows in range(100, 120):
                torch.mm(*matrices(rows))
        assert settled(aten.mm.default, [matrices(200)]) == [(0, True)]

    def test_is_of_no_mask_that_picked_nothing(self) -> None:
        x, nothing = torch.zeros(5000), torch.zeros(5000, dtype=torch.bool)
        settled(aten.index_put_.default, [(x, [nothing], torch.tensor(1.0))] * 20)
        ((workspace, exact),) = settled(aten.index_put_.default, [(x, [~nothing], torch.tensor(1.0))])
        assert not exact
        assert workspace >= 8 * 5000

    def test_depends_on_the_precision_of_products(self) -> None:
        settled(aten.mm.default, (matrices(rows) for rows in range(100, 120)))
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("medium")
        try:
            ((_, exact),) = settled(aten.mm.default, [matrices(200)])
        finally:
            torch.set_float32_matmul_precision(before)
        assert not exact

    @pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
    def test_is_not_known_of_other_layouts(self, layout: torch.layout) -> None:
        dense = torch.eye(64)
        sparse = dense.to_sparse(layout=layout)
        predicted = [eager.predict(aten.add_.Tensor, (dense, sparse), {}) for _ in range(20)]
        assert all(one.leaves > 0 or not one.exact for one in predicted)
        assert not any(one.settled for one in predicted)


def test_results_follow_the_default_type(fresh: families.Families) -> None:
    """Integers times a fraction are of that type."""
    for _ in range(2):
        assert eager.predict(aten.mul.Tensor, (torch.ones(8, dtype=torch.int64), 0.5), {})[0][0][0] == 32
    torch.set_default_dtype(torch.float64)
    try:
        assert eager.predict(aten.mul.Tensor, (torch.ones(9, dtype=torch.int64), 0.5), {})[0][0][0] == 72
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_rule_that_torch_contradicts_is_never_followed(
    fresh: families.Families, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "numels_by_rule", lambda _, args: [args[0].numel() // 2])
    for numel in (100, 200, 0, 300):
        ((output, *_),) = (eager.predict(aten.relu.default, (torch.ones(numel),), {})[0],)
        assert output is not None
        assert output[0] == 4 * numel
    assert set(fresh._known.values()) == {None}


def train(lengths: list[int]) -> list[Tensor]:
    """Steps of an encoder on batches of these lengths."""
    torch.manual_seed(3)
    layers = [nn.TransformerEncoderLayer(32, 4, 64, batch_first=True) for _ in range(4)]
    model = nn.Sequential(nn.Linear(16, 32), *layers, nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    losses = []
    for length in lengths:
        optimizer.zero_grad()
        loss = model(torch.randn(16, length, 16)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_batches_of_ever_new_lengths_stay_within_the_budget(share: float) -> None:
    draw = random.Random(5)
    lengths = [draw.randint(20, 80) for _ in range(24)]
    with true_peak() as eager_peak:
        plain = train(lengths)
    budget = room(int(share * (eager_peak.highest - eager_peak.base)))
    with true_peak() as peak, remat.budget(budget) as run:
        losses = train(lengths)
    assert peak.highest <= budget
    assert run.stats().evictions > 0
    assert bits(losses) == bits(plain)
