"""Room for ops at first sight on the CPU: enough in all types of numbers and layouts, and not much more."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import remat
import torch
from remat._torch_internals import eager
from torch import Tensor
from torch.utils._pytree import tree_leaves
from true_peak import room, true_peak

aten = torch.ops.aten
MIB = 2**20
#: Room for a few numbers, random states and blocks of copies.
FEW = 56 << 10
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool]

Call = tuple[Any, tuple[Any, ...]]


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"], autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both have torch choose other kernels."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def numbers(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) < 0.3
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape).to(dtype)
    return torch.randint(0, 5, shape, dtype=dtype)


def given_and_taken(op: Any, args: tuple[Any, ...]) -> tuple[int, int]:
    """Bytes for results and workspace, estimated and true."""
    outputs, workspace, *_ = eager.predict(op, args, {})
    there = {tensor.untyped_storage()._cdata for tensor in tree_leaves(args) if isinstance(tensor, Tensor)}
    result, taken = eager.measured_call(op, args, {})
    assert taken is not None
    storages = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in tree_leaves(result)}
    made = sum(size for key, size in storages.items() if key not in there)
    return sum(output[0] for output in outputs if output) + workspace, made + taken


def selections() -> dict[str, Call]:
    """Calls whose results, or the indices on the way to them, are as large as the data says."""
    n = 60_000
    mask, flat, rows = numbers((n,), torch.bool), torch.rand(n), torch.rand(n, 16)
    wide, of_wide = torch.rand(211, 331), numbers((211, 331), torch.bool)
    few, zero = torch.randint(0, n, (5000,)), torch.zeros(1, dtype=torch.int64)
    calls = {
        "entries": (aten.nonzero.default, (mask,)),
        "entries of a transpose": (aten.nonzero.default, (of_wide.t(),)),
        "picked": (aten.masked_select.default, (flat, mask)),
        "picked rows": (aten.masked_select.default, (rows, mask[:, None])),
        "picked by a smaller mask": (aten.masked_select.default, (rows, mask[:16])),
        "picked of a transpose": (aten.masked_select.default, (wide.t(), of_wide.t())),
        "rows by mask": (aten.index.Tensor, (rows, [mask])),
        "columns by mask": (aten.index.Tensor, (rows.t(), [None, mask])),
        "places by mask": (aten.index.Tensor, (wide, [of_wide])),
        "by mask and index": (aten.index.Tensor, (rows, [mask, zero])),
        "integers by mask": (aten.index.Tensor, (few.repeat(12), [mask])),
        "rows by index": (aten.index.Tensor, (rows, [few])),
        "rows by index of 32 bits": (aten.index.Tensor, (rows, [few.int()])),
        "rows put": (aten.index_put.default, (rows, [few], torch.rand(5000, 16), False)),
        "rows added": (aten._index_put_impl_.default, (rows, [few], torch.rand(5000, 16), True, True)),
        "rows put by mask": (aten.index_put_.default, (rows, [mask], torch.rand(16), False)),
        "one number put by mask": (aten.index_put_.default, (flat, [mask], torch.tensor(1.0), False)),
        "repeats": (aten.repeat_interleave.Tensor, (torch.randint(0, 4, (n,)),)),
        "no repeats": (aten.repeat_interleave.Tensor, (torch.zeros(0, dtype=torch.int64),)),
        "counts": (aten.bincount.default, (torch.tensor([3, 100_000]),)),
        "counts by weight": (aten.bincount.default, (few, torch.rand(5000))),
        "counts of nothing": (aten.bincount.default, (zero[:0],)),
    }
    return calls


def test_selections_are_given_what_the_data_says() -> None:
    """At most what they read beside: an index of a mask that names one place is not made, and counts take nothing."""
    for name, (op, args) in selections().items():
        given, taken = given_and_taken(op, args)
        spared = sum(8 * t.numel() for t in tree_leaves(args) if isinstance(t, Tensor) and t.dim() == 1)
        assert taken <= given <= taken + spared + FEW, (name, given, taken)


def laid_out(shape: tuple[int, int], dtype: torch.dtype, layout: str) -> Tensor:
    rows, columns = shape
    if layout == "transposed":
        return numbers((columns, rows), dtype).t()
    if layout == "every second":
        return numbers((rows, 2 * columns), dtype)[:, ::2]
    if layout == "repeated":
        return numbers((rows, 1), dtype).expand(rows, columns)
    return numbers(shape, dtype)


LAYOUTS = ["contiguous", "transposed", "every second", "repeated"]


def moves(x: Tensor, y: Tensor, mask: Tensor) -> dict[str, Call]:
    """Calls that move or reduce numbers of any one type."""
    places, rows = torch.randint(0, len(x), x.shape), torch.randint(0, len(x), (50,))
    return {
        "cat": (aten.cat.default, ([x, y], 1)),
        "stack": (aten.stack.default, ([x, y], 0)),
        "repeat": (aten.repeat.default, (x, [2, 3])),
        "flip": (aten.flip.default, (x, [0])),
        "roll": (aten.roll.default, (x, [3], [0])),
        "roll both ways": (aten.roll.default, (x, [3, 3], [0, 1])),
        "gather": (aten.gather.default, (x, 0, places)),
        "index_select": (aten.index_select.default, (x, 0, rows)),
        "where": (aten.where.self, (mask, x, y)),
        "masked_fill": (aten.masked_fill.Scalar, (x, mask, 1)),
        "pad": (aten.constant_pad_nd.default, (x, [1, 1], 1)),
        "tril": (aten.tril.default, (x,)),
        "scatter": (aten.scatter.src, (x, 0, places, y)),
        "scatter_add": (aten.scatter_add.default, (x, 0, places, y)),
        "sum": (aten.sum.default, (x,)),
        "sum of columns": (aten.sum.dim_IntList, (x, [0])),
        "cumsum": (aten.cumsum.default, (x, 0)),
        "max": (aten.max.default, (x,)),
        "max of columns": (aten.max.dim, (x, 0)),
        "count_nonzero": (aten.count_nonzero.default, (x,)),
        "any": (aten.any.default, (x,)),
        "distances": (aten._cdist_forward.default, (x, y, 2.0, None)),
        "not a number": (aten.isfinite.default, (x,)),
    }


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_numbers_of_any_type_are_moved_in_little_room(dtype: torch.dtype) -> None:
    """Halves are moved by indices of 32 bits, and are reduced as other numbers: their room is not looked at."""
    for of_x, of_y in itertools.product(LAYOUTS, LAYOUTS):
        x, y = laid_out((150, 90), dtype, of_x), laid_out((150, 90), dtype, of_y)
        for name, (op, args) in moves(x, y, laid_out((150, 90), torch.bool, of_y)).items():
            try:
                op(*args)
            except (RuntimeError, TypeError):
                continue  # torch has no such kernel
            given, taken = given_and_taken(op, args)
            assert taken <= given, (name, of_x, of_y)
            copies = 4 * x.numel() * max(8, x.element_size()) if name in ("max", "distances", "any") else 0
            half = dtype == torch.bfloat16
            if not half and name not in ("max of columns", "sum", "cumsum", "not a number"):
                assert given <= taken + copies + FEW, (name, of_x, of_y)


#: Ops that compute number by number, and what follows their first tensor.
POINTWISE: list[tuple[Any, str]] = [
    *((op, "t") for op in (aten.add.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.eq.Tensor, aten.lt.Tensor)),
    *((op, "t") for op in (aten.add_.Tensor, aten.mul_.Tensor, aten.logical_and.default, aten.maximum.default)),
    *((op, "n") for op in (aten.add.Scalar, aten.gt.Scalar, aten.ne.Scalar, aten.pow.Tensor_Scalar, aten.mul.Scalar)),
    *((op, "") for op in (aten.sin.default, aten.abs.default, aten.sigmoid.default, aten.isnan.default)),
    *((op, "tt") for op in (aten.addcmul.default, aten.addcdiv_.default)),
]


def mixed_calls(draw: random.Random) -> Iterator[Call]:
    shape = (180, 200)
    types = [*TYPES, torch.complex64, torch.uint8, torch.float16]
    for op, rest in POINTWISE * 12:
        args: list[Any] = [laid_out(shape, draw.choice(types), draw.choice(LAYOUTS[:2]))]
        for kind in rest:
            if kind == "n":
                args.append(draw.choice([2, 0.5]))
            else:
                args.append(numbers(draw.choice([shape, shape, (1, 200), ()]), draw.choice(types)))
        yield op, tuple(args)


def test_operands_of_other_types_are_converted_in_their_room() -> None:
    """In all, half as much again as they take; each gets as much at least."""
    torch.manual_seed(1)
    all_given = all_taken = calls = 0
    for op, args in mixed_calls(random.Random(1)):
        try:
            op(*[arg.clone() if isinstance(arg, Tensor) else arg for arg in args])
        except (RuntimeError, TypeError):
            continue  # torch does not compute that
        given, taken = given_and_taken(op, args)
        assert taken <= given + 64, (op, args)
        all_given, all_taken, calls = all_given + given, all_taken + taken, calls + 1
    assert calls > 150
    assert all_given <= 1.5 * all_taken


@pytest.mark.parametrize("layout", ["by head", "by token", "of all three", "transposed"])
def test_attention_copies_what_its_kernel_cannot_read(layout: str) -> None:
    def drawn(tokens: int) -> Tensor:
        if layout == "by token":
            return torch.randn(4, tokens, 3, 32).transpose(1, 2)
        if layout == "of all three":
            return torch.randn(4, tokens, 3, 3, 32)[:, :, 1].transpose(1, 2)
        if layout == "transposed":
            return torch.randn(4, 3, 32, tokens).transpose(2, 3)
        return torch.randn(4, 3, tokens, 32)

    q, k, v = drawn(200), drawn(150), drawn(150)
    there = aten._scaled_dot_product_flash_attention_for_cpu.default
    back = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    read = (q, k, v, 0.0, False)
    out, sums = there(*read)
    for op, args in ((there, read), (back, (torch.randn_like(out), q, k, v, out, sums, 0.0, False))):
        given, taken = given_and_taken(op, args)
        assert taken <= given <= taken + 2 * q.nbytes + 4 * FEW, op


@pytest.mark.parametrize("dtype", TYPES[:2], ids=str)
@pytest.mark.parametrize(
    "name", ["qr", "inverse", "cholesky", "factors", "solution", "triangular solution", "determinant"]
)
def test_matrices_are_factored_in_copies(name: str, dtype: torch.dtype) -> None:
    for batch, n in ((1, 120), (5, 40), (300, 3)):
        square = torch.randn(batch, n, n, dtype=dtype)
        square = square @ square.mT + n * torch.eye(n, dtype=dtype)
        for x in (square, square.mT, square[:, :, : n // 2 + 1] if name == "qr" else square.flip(0)):
            calls: dict[str, Call] = {
                "qr": (aten.linalg_qr.default, (x,)),
                "inverse": (aten.linalg_inv_ex.default, (x,)),
                "cholesky": (aten.linalg_cholesky_ex.default, (x,)),
                "factors": (aten.linalg_lu_factor_ex.default, (x,)),
                "solution": (aten._linalg_solve_ex.default, (x, square)),
                "triangular solution": (aten.cholesky_solve.default, (square, x)),
                "determinant": (aten._linalg_det.default, (x,)),
            }
            given, taken = given_and_taken(*calls[name])
            assert taken <= given, (batch, n)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("shape", [(24, 1, 66, 2), (16, 3, 32, 16)])
def test_gradients_of_images_may_have_blocks_of_channels(shape: tuple[int, int, int, int]) -> None:
    samples, read, side, written = shape
    x, weight = torch.randn(samples, read, side, side), torch.randn(written, read, 3, 3)
    every = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    y = aten.convolution.default(x, weight, None, *every)
    for layout in (torch.contiguous_format, torch.channels_last):
        gradient = torch.ones_like(y).contiguous(memory_format=layout)
        args = (gradient, x, weight, [written], *every, [True] * 3)
        given, taken = given_and_taken(aten.convolution_backward.default, args)
        assert taken <= given <= 3 * taken


def test_an_evicted_mask_is_made_again_and_not_counted() -> None:
    x = torch.randn(1 << 20)

    def picked() -> tuple[Tensor, Tensor]:
        mask = (x * 2).sin() > 0.9
        pressure = [torch.full((1 << 18,), float(i)).exp() for i in range(12)]
        return x[mask], sum(pressure, torch.zeros(1 << 18))

    expected = picked()
    with true_peak() as peak:
        budget = room(14 * MIB)
        with remat.budget(budget) as run:
            found = picked()
            assert run.stats().recomputed > 0
    assert all(map(torch.equal, found, expected))
    assert peak.highest <= budget


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize(("side", "kernel", "dilation"), [(4, 3, 2), (4, 3, 4), (6, 3, 3), (8, 3, 4), (5, 3, 2)])
def test_dilated_convolutions_of_small_inputs_get_their_columns(side: int, kernel: int, dilation: int) -> None:
    """Those of DeepLab: oneDNN sums the gradient of the weight in columns where the kernel reaches beyond the input."""
    x, weight, pad = torch.randn(4, 64, side, side), torch.randn(64, 64, kernel, kernel), dilation * (kernel // 2)
    every = ([1, 1], [pad, pad], [dilation, dilation], False, [0, 0], 1)
    y = aten.convolution.default(x, weight, None, *every)
    args = (torch.ones_like(y), x, weight, [64], *every, [True] * 3)
    given, taken = given_and_taken(aten.convolution_backward.default, args)
    assert taken <= given <= 2 * taken + (1 << 18)


def masked_loss(logits: Tensor, mask: Tensor) -> Tensor:
    """A loss of the tokens that are masked, as masked language models have it."""
    return logits[mask].logsumexp(1).mean()


@pytest.mark.parametrize("way", ["native", "python"])
def test_rows_by_mask_need_no_room_for_all_rows(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of them are picked; there is room for a third."""
    monkeypatch.setenv("REMAT_DISPATCH", way)
    logits, mask = torch.randn(1024, 2048), torch.arange(1024) % 10 == 0
    expected = masked_loss(logits, mask)
    with true_peak() as peak:
        budget = room(logits.nbytes // 3)
        with remat.budget(budget):
            found = masked_loss(logits, mask)
    assert torch.equal(found, expected)
    assert peak.highest <= budget


@pytest.mark.parametrize("way", ["native", "python"])
def test_masks_may_pick_more_from_step_to_step(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch makes indices of a mask by which several numbers are put: of few entries first, in the end of all."""
    monkeypatch.setenv("REMAT_DISPATCH", way)
    rows = 1 << 17
    indices, x_and_mask = 8 * rows, 9 * rows

    def steps() -> list[Tensor]:
        results = []
        for picked in (10, 10, 10, rows):
            x, mask = torch.zeros(rows, 2), torch.zeros(rows, dtype=torch.bool)
            mask[:picked] = True
            x[mask] = torch.tensor([1.0, 2.0])
            results.append(x.sum())
        return results

    expected = steps()
    with true_peak() as peak:
        budget = room(x_and_mask + indices + MIB // 4)
        with remat.budget(budget):
            found = steps()
    assert all(map(torch.equal, found, expected))
    assert peak.highest <= budget
    with true_peak() as peak:
        budget = room(x_and_mask + indices // 2)
        with pytest.raises(remat.BudgetError, match="index_put_"), remat.budget(budget):
            steps()
    assert peak.highest <= budget


@pytest.mark.parametrize("way", ["native", "python"])
def test_a_mask_of_rows_is_made_one_of_numbers_within_the_budget(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch notes for each number of the rows where it goes, in 16 bytes: four times what the rows take."""
    monkeypatch.setenv("REMAT_DISPATCH", way)
    x, mask = torch.randn(1 << 17, 2), torch.arange(1 << 17) < 10
    expected = x.masked_select(mask[:, None])
    for extra, fits in ((4_000_000, False), (4 * MIB + MIB // 2, True)):
        with true_peak() as peak:
            budget = room(extra)
            try:
                with remat.budget(budget):
                    found = x.masked_select(mask[:, None])
            except remat.BudgetError:
                assert not fits
            else:
                assert fits and torch.equal(found, expected)
        assert peak.highest <= budget


@pytest.mark.parametrize("way", ["native", "python"])
@pytest.mark.parametrize("name", ["randn", "rand", "randint", "randperm", "normal", "bernoulli", "normal_"])
def test_what_generators_of_the_program_draw_gets_its_room(
    name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data loaders and diffusion models draw from a generator that they make for each batch."""
    monkeypatch.setenv("REMAT_DISPATCH", way)
    n = MIB
    chances = torch.full((n,), 0.3)

    def drawn(seed: int) -> Tensor:
        own = torch.Generator().manual_seed(seed)
        calls = {
            "randn": lambda: torch.randn(n, generator=own),
            "rand": lambda: torch.rand(2, n // 2, generator=own),
            "randint": lambda: torch.randint(0, 9, (n // 2,), generator=own),
            "randperm": lambda: torch.randperm(n // 2, generator=own),
            "normal": lambda: torch.normal(0.0, 1.0, (n,), generator=own),
            "bernoulli": lambda: torch.bernoulli(chances, generator=own),
            "normal_": lambda: torch.empty(n).normal_(generator=own),
        }
        return calls[name]()

    expected = [drawn(seed) for seed in range(3)][-1]
    made, refused = expected.nbytes, 0
    for parts in (2, 3, 5, 16):
        with true_peak() as peak:
            budget = room(made * parts // 4)
            try:
                with remat.budget(budget):
                    for seed in range(3):
                        found = drawn(seed)
            except remat.BudgetError:
                refused += 1
            else:
                assert torch.equal(found, expected)
        assert peak.highest <= budget
    assert 2 <= refused <= 3
