"""Ops that reach the session without Python: same bits, same decisions, errors, and probes that refuse."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from native import LEFT, REPLAYS, WATCHING, needed, needs
from process import PYTHON, ran_warm
from remat._torch_internals import eager
from sample import some
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode


def train(steps: int = 8) -> list[float]:
    """Losses of a small model whose forms repeat; Adam's numbers differ from step to step."""
    torch.manual_seed(0)
    body = [torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64)) for _ in range(6)]
    model = torch.nn.Sequential(*body)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        hidden = model(torch.randn(128, 64)) * 0.5
        loss = (hidden[:, ::2] + hidden[:, 1::2]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_bits_and_ops(way: str) -> None:
    plain, measured = train(), remat.measure(train)
    for budget in (1 << 30, measured.fraction(0.8)):
        with remat.budget(budget) as run:
            losses = train()
        assert losses == plain
        assert run.stats().dispatch == way


def test_numbers_that_torch_wraps_are_other_forms_than_tensors_without_dimensions(way: str) -> None:
    x, scalar = torch.arange(4096), torch.tensor(1.5, dtype=torch.float64)
    factors = [2, scalar, 1.5, True, torch.tensor(2), scalar * 2, 2.5, 3]

    def products() -> list[tuple[torch.dtype, float]]:
        kept = [x * factor for _ in range(8) for factor in factors]
        return [(product.dtype, product.double().sum().item()) for product in kept]

    plain, measured = products(), remat.measure(products)
    with remat.budget(measured.fraction(0.5), policy="lru") as run:
        assert products() == plain
    assert run.stats().recomputed > 0


class Seeing(TorchDispatchMode):
    """Notes the ops that a dispatch mode sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@needed
def test_both_ways_count_the_same_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    x, steps, counted = torch.randn(32, 64), 6, {}
    for way in ("native", "python"):
        monkeypatch.setenv("REMAT_DISPATCH", way)
        with remat.budget(1 << 30) as run:
            for _ in range(steps):
                optimizer.zero_grad()
                (model(x)[:, 1:].t() * 2).square().mean().backward()
                optimizer.step()
        counted[way] = run.stats().ops
    with Seeing() as mode:
        x.detach()
    # Up to torch 2.9 a mode sees each `detach` twice, and autograd detaches each gradient that it leaves in a leaf.
    twice = len(mode.seen) - 1
    gradients = len(list(model.parameters())) * steps
    assert counted["python"] == counted["native"] + twice * gradients


def test_parameters_are_pinned_where_autograd_records_their_use(way: str, tmp_path: Path) -> None:
    """Each is computed inside of the budget, and read by calls of one form, which is known after a few."""
    x = torch.randn(64, 64)
    with remat.budget(1 << 30, trace=tmp_path / "trace"):
        for step in range(12):
            torch.mm(x, torch.nn.Parameter(torch.full((64, 64), step / 8)))
    pins = [line for line in (tmp_path / "trace").read_text().splitlines() if line.startswith('{"pin"')]
    assert len(pins) == 12


@needed
def test_a_release_that_did_not_run_has_to_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.16.0")
    for asked, way in ((None, "python"), ("native", "native")):
        if asked is None:
            monkeypatch.delenv("REMAT_DISPATCH", raising=False)
            context: Any = pytest.warns(
                RuntimeWarning, match=r"did not run natively with torch 2\.16; .*=native tries it"
            )
        else:
            monkeypatch.setenv("REMAT_DISPATCH", asked)
            context = contextlib.nullcontext()
        with context, remat.budget("1GiB") as run:
            torch.ones(1)
        assert run.stats().dispatch == way


@needed
def test_no_more_is_left_to_python_than_is_known_of_the_release() -> None:
    assert {part.split(": ")[0] for part in eager.parts_through_python()} == LEFT


@needed
def test_known_forms_enter_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", "native")
    x = torch.randn(64, 64)
    pushed = 0
    push = eager.push_mode

    def counting(mode: object) -> None:
        nonlocal pushed
        pushed += 1
        push(mode)  # type: ignore[arg-type]

    monkeypatch.setattr(eager, "push_mode", counting)
    with remat.budget("1GiB") as run:
        for step in range(20):
            y = torch.addcmul(x, x, x, value=step + 0.5)
            del y
        entered, ops = pushed, run.stats().ops
        for step in range(20):
            y = torch.addcmul(x, x, x, value=step + 0.25)
            del y
        assert run.stats().ops == ops + 20
        assert 0 < entered < 10 and pushed == entered


def test_results_are_known_by_their_storages_and_by_their_objects(way: str) -> None:
    x = torch.randn(4096)
    expected = [(x * step).sum().item() for step in range(16)]
    with remat.budget(16384 * 12, policy="lru") as run:
        results = [x * step for step in range(16)]
        assert run.stats().evictions > 0
        kept = results[9].untyped_storage()
        assert kept.nbytes() == 16384 and kept._cdata == results[9].untyped_storage()._cdata
        assert [result.sum().item() for result in results] == expected
        # Nothing is left of the results themselves, so the view owns what it views.
        view = torch.empty(0).set_(results[3].untyped_storage())  # type: ignore[call-overload]
        del results
        assert view.sum().item() == expected[3]
    assert run.stats().recomputed > 0


OTHER: list[torch.Tensor] = []


@torch.library.custom_op("rematcheck::empties_another", mutates_args=())
def empties_another(x: torch.Tensor) -> torch.Tensor:
    OTHER[-1].untyped_storage().resize_(0)
    return x.clone()


def test_an_op_resizes_no_storage_that_it_does_not_declare_to_write(way: str) -> None:
    x = torch.arange(4096.0)
    with remat.budget("1GiB"):
        OTHER[:] = [x * 2.0 for _ in range(12)]  # the last ones are of a known form
        with pytest.raises(remat.RematError, match="mutates_args"):
            empties_another(x)
        assert torch.equal(OTHER[-1], x * 2.0)
    OTHER.clear()


def test_storages_die_in_any_thread(way: str) -> None:
    x = torch.randn(4096)
    with remat.budget("1GiB") as run:
        for _ in range(8):
            x * 2.0
        held = run.stats().storages
        results = [[x * 2.0 for _ in range(8)] for _ in range(4)]
        assert run.stats().storages > held + 30  # deaths are seen to before the next op
        threads = [threading.Thread(target=some.clear) for some in results]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        x * 2.0
        assert run.stats().storages <= held + 1


OF_NUMBERS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "numbers": lambda x, step: torch.addcmul(x, x, x, value=step + 0.5),
    # Python is given a number where the dispatcher has a tensor without dimensions.
    "wrapped numbers": lambda x, step: x * (step + 1),
}


@pytest.mark.parametrize("op", OF_NUMBERS)
def test_numbers_that_differ_are_replayed_as_they_were(way: str, op: str) -> None:
    x = torch.randn(64, 64)

    def sums() -> list[float]:
        kept = [OF_NUMBERS[op](x, step) for step in range(24)]
        return [one.double().sum().item() for one in kept]

    plain, measured = sums(), remat.measure(sums)
    with remat.budget(measured.fraction(0.5), policy="lru") as run:
        assert sums() == plain
    assert run.stats().recomputed > 0


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Views that replays ask Python for; one for each tensor among the arguments of a replayed op."""
    made: list[object] = []
    view = eager.view

    def counting(*arguments: Any) -> torch.Tensor:
        made.append(arguments)
        return view(*arguments)

    monkeypatch.setattr(eager, "view", counting)
    yield made


@torch.inference_mode()
def _inferred(x: torch.Tensor) -> torch.Tensor:
    return (x * 2.0).cos()


# Calls of known forms with arguments of all kinds, of a tensor of 64 by 64 numbers and a number that differs.
@torch.no_grad()
def _recurrent(x: torch.Tensor) -> torch.Tensor:
    """Without autograd the op makes no workspace, which is one of its results."""
    weights = [x[:32], x[:32, :8].contiguous(), x[0, :32], x[1, :32]]
    state = (torch.zeros(1, 64, 8), torch.zeros(1, 64, 8))
    result, _, _ = torch.lstm(x.view(1, 64, 64), state, weights, True, 1, 0.0, False, False, False)
    return result.repeat(1, 1, 8).view(64, 64)


REPLAYED: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "numbers": lambda x, n: torch.addcmul(x, x, x, value=n + 0.5),
    "wrapped numbers": lambda x, n: x * (n + 1) / 1.5,
    "wrapped truths": lambda x, n: x * (n > 3),
    "offsets": lambda x, n: x[n % 8 : n % 8 + 48] + 1.0,
    "strides": lambda x, n: x.t()[1:, ::2] @ x[:32, n % 8 : n % 8 + 40],
    "a list of numbers": lambda x, n: torch.sum(x.view(4, 16, 64).expand(3, 4, 16, 64), (0, 2)) + n,
    "a text": lambda x, n: torch.nn.functional.gelu(x, approximate="tanh"),
    "a list of tensors": lambda x, n: torch.cat([x[n % 8 :][:16], x, x[:8]]),
    "many dimensions": lambda x, n: x.view(2, 2, 2, 8, 2, 32)[:, :, 1:].sin(),
    "no tensors": lambda x, n: torch.arange(n % 2, 4096 + n % 2, dtype=torch.float32).view(64, 64),
    "a conjugate": lambda x, n: (torch.complex(x, x).t().conj() @ torch.complex(x, -x)).real,
    "an imaginary part": lambda x, n: torch.complex(x, x).conj().imag * 2.0,
    "two results": lambda x, n: torch.sort(x, 1)[0],
    "a write": lambda x, n: x.sin().add_(x[0], alpha=n + 0.25),
    "a write into a view": lambda x, n: (x * 1.25)[n % 8 :][:8].mul_(2.0),
    "another dtype": lambda x, n: x.to(torch.float64).to(torch.bfloat16),
    "an inference": lambda x, n: _inferred(x),
    "a result left out": lambda x, n: _recurrent(x),
}


@pytest.mark.parametrize("op", REPLAYED)
def test_replays_have_the_bits_of_plain_eager(way: str, op: str) -> None:
    x = torch.randn(64, 64)

    def results() -> list[list[float]]:
        kept = [REPLAYED[op](x, step) for step in range(40)]
        return [one.flatten()[::7].clone().tolist() for one in kept for _ in range(2)]

    plain, measured = results(), remat.measure(results)
    with remat.budget(measured.fraction(0.5), policy="lru") as run:
        assert results() == plain
    assert run.stats().recomputed > 0
    assert run.stats().peak <= measured.fraction(0.5)


@needed
@needs(REPLAYS)
def test_replays_of_known_forms_enter_no_python(monkeypatch: pytest.MonkeyPatch, views: list[object]) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", "native")
    x = torch.randn(64, 64)

    def results(steps: range) -> list[float]:
        kept = [torch.cat([REPLAYED[op](x, step) for op in ("wrapped numbers", "a write")]) for step in steps]
        return [one.sum().item() for one in kept for _ in range(2)]

    plain, measured = results(range(8, 64)), remat.measure(lambda: results(range(8, 64)))
    with remat.budget(1 << 30, policy="lru") as run:
        for _ in range(3):
            results(range(8))
        run.set_budget(measured.fraction(0.4))
        before, made = run.stats().recomputed, len(views)
        assert results(range(8, 64)) == plain
        assert run.stats().recomputed > before + 50
        assert len(views) == made


@needed
def test_replays_keep_no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", "native")
    x = torch.randn(64, 64)
    with remat.budget("1GiB") as run:
        others = run.stats().storages
    with remat.budget(run.base + 16384 * 12, policy="lru") as run:
        for _ in range(3):
            kept = [torch.cat([x[:32], x[step : step + 32] * step]) for step in range(16)]
            assert [one[0, 0].item() for one in kept] == [x[0, 0].item()] * 16
            del kept
        x * 2.0
        assert run.stats().recomputed > 0
        assert run.stats().storages <= others + 2


def test_a_kernel_may_keep_its_argument(way: str, views: list[object]) -> None:
    """The tensor that it was called with is its own from then on: later replays take another."""
    x, kept = torch.rand(64, 64) + 1.0, []
    library = torch.library.Library("aten", "IMPL")

    def kernel(argument: torch.Tensor) -> torch.Tensor:
        kept.append(argument)
        return argument.cos()

    try:
        library.impl("digamma", kernel, "CPU", allow_override=True)
        with remat.budget(1 << 30, policy="lru") as run:
            for _ in range(8):
                torch.digamma(x)
            run.set_budget(16384 * 10)
            calls = len(kept)
            results = [torch.digamma(x) for _ in range(16)]
            assert all(torch.equal(result, x.cos()) for _ in range(2) for result in results)
            assert run.stats().recomputed > 2 and len(kept) == calls + 16 + run.stats().recomputed
            # Natively the first replay takes the template, and gives it up.
            assert len(views) == run.stats().recomputed - (way == "native" and REPLAYS not in LEFT)
            assert all(torch.equal(argument, x) for argument in kept)
            assert len({argument._cdata for argument in kept[calls + 16 :]}) == run.stats().recomputed
    finally:
        library._destroy()
        kept.clear()  # torch keeps the kernel


def test_an_error_of_a_replay_keeps_its_type(way: str) -> None:
    """The indices change behind the session's back, so that a replay fails where the first run did not."""
    table, rows = torch.randn(64, 1024), torch.arange(4)
    behind = rows.numpy()
    expected = table.index_select(0, rows).sum().item()
    with remat.budget(1 << 20, policy="lru") as run:
        for _ in range(8):
            table.index_select(0, rows)
        chosen = table.index_select(0, rows)
        fillers = [table * step for step in range(5)]
        behind[:] = 100
        for _ in range(3):
            with pytest.raises(IndexError, match="out of range"):
                chosen.sum()
        behind[:] = range(4)
        assert chosen.sum().item() == expected
        assert len(fillers) == 5 and run.stats().recomputed > 0


def test_a_refusal_keeps_its_type(way: str) -> None:
    with remat.budget("1MiB") as run:
        for _ in range(6):
            torch.ones(16, 16) + 1
        kept = [torch.ones(256, 256)]
        with pytest.raises(remat.BudgetError, match="smallest budget"):
            for _ in range(8):
                kept.append(kept[-1] * 2)
                kept[-1].data_ptr()
        del kept[1:]
        assert (torch.ones(16, 16) + 1).sum().item() == 512.0
        assert run.stats().peak <= 1 << 20


def test_an_error_of_torch_passes_and_the_op_is_taken_back(way: str) -> None:
    a, b = torch.ones(8, 8), torch.ones(8, 8)
    with remat.budget("64MiB") as run:
        for _ in range(8):
            torch.linalg.cholesky(torch.eye(8))
        records = run.stats().records
        for _ in range(4):
            with pytest.raises(torch.linalg.LinAlgError):
                torch.linalg.cholesky(a - 2 * b)
        assert torch.linalg.cholesky(torch.eye(8)).sum().item() == 8.0
        assert run.stats().records <= records + 2


class Counting(TorchDispatchMode):
    """Calls every op twice, and refuses a cosine."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        if func is torch.ops.aten.cos.default:
            raise ArithmeticError("no cosines here")
        func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_program_sees_ops_and_what_it_calls_is_under_the_budget(way: str) -> None:
    x, counting = torch.randn(64, 64), Counting()
    expected = (x.sin() * 2)[1:].sum()
    with remat.budget(1 << 30) as run:
        for step in range(8):
            modes, ops = torch._C._len_torch_dispatch_stack(), run.stats().ops
            with counting:
                total = (x.sin() * 2)[1:].sum()
                with pytest.raises(ArithmeticError, match="no cosines here"):
                    x.cos()
            assert torch._C._len_torch_dispatch_stack() == modes
            assert len(counting.seen) == 5 * (step + 1)
            assert run.stats().ops == ops + 8
            assert torch.equal(total, expected)


def test_ops_that_a_tensor_subclass_calls_are_under_the_budget(way: str) -> None:
    x = TwoTensor(torch.randn(64, 64), torch.randn(64, 64))
    expected = ((x * 2 + x) @ x).relu()
    with remat.budget(1 << 30) as run:
        for _ in range(6):
            ops = run.stats().ops
            found = ((x * 2 + x) @ x).relu()
            # Two for each; a dispatch mode sees the subclass's own call too.
            assert run.stats().ops >= ops + 8
            assert torch.equal(found.a, expected.a) and torch.equal(found.b, expected.b)


def test_threads_and_their_backward_passes(way: str) -> None:
    found: dict[int, float] = {}

    def work(seed: int) -> None:
        x = torch.full((64, 64), seed / 7, requires_grad=True)
        for _ in range(6):
            x.grad = None
            (x @ x).tanh().sum().backward()
        assert x.grad is not None
        found[seed] = x.grad.sum().item()

    for seed in range(3):
        work(seed)
    plain = dict(found)
    found.clear()
    with remat.budget("1MiB"):
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == plain


@pytest.mark.parametrize(
    "mode", ["torch.inference_mode()", "FakeTensorMode()", 'torch.device("meta")', "torch.no_grad()"]
)
def test_a_program_may_enter_its_first_budget_inside_of_a_mode(mode: str) -> None:
    program = f"""
import remat, torch
from torch._subclasses.fake_tensor import FakeTensorMode

def seen():
    with remat.budget("64MiB") as run:
        total = torch.ones(100_000, device="cpu").mul(2).sum()
    return total, run.stats()

with {mode}:
    first, run = seen()
total, usual = seen()
assert total.item() == 200_000
assert type(first) is not torch.Tensor or first.item() == 200_000
print(run.dispatch, run.left_to_python == usual.left_to_python)
"""
    done = ran_warm(["env", "REMAT_DISPATCH=native", *PYTHON, "-c", program])
    assert done.code == 0, done.err
    assert done.out.split() == ["native", "True"]


@pytest.mark.parametrize("outside", [False, True])
def test_fake_tensors_are_computed_with_under_a_budget(way: str, outside: bool) -> None:
    mode = FakeTensorMode()

    def shapes() -> list[torch.Size]:
        x = torch.ones(8, 4)
        return [(x * 2 + 1).shape, x.t().shape, (x @ x.t()).relu_().shape, nn.Linear(4, 3)(x).shape]

    expected = shapes()
    if outside:
        with mode, remat.budget("64MiB"):
            found = shapes()
    else:
        with remat.budget("64MiB"), mode:
            found = shapes()
    assert found == expected
    with remat.budget("64MiB"):
        assert type((torch.ones(8) * 2)[0]) is torch.Tensor


def test_nothing_is_left_behind(way: str) -> None:
    with remat.budget("64MiB") as run:
        torch.ones(8) + 1
    ops = run.stats().ops
    compiled = torch.compile
    torch.ones(8) + 1
    assert run.stats().ops == ops and torch.compile is compiled
    assert not torch._C._dispatch_tls_is_dispatch_key_included(torch._C._dispatch_key_parse("Fake"))


def test_an_unknown_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_DISPATCH", "rust")
    with pytest.raises(ValueError, match="REMAT_DISPATCH='rust': expected 'native' or 'python'"):
        remat.budget("1GiB").__enter__()


def test_a_refused_way_loses_no_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, profile = [], torch.autograd._enable_profiler_legacy

    def count(config: object) -> None:
        measured.append(config)
        profile(config)

    monkeypatch.setattr(torch.autograd, "_enable_profiler_legacy", count)
    x = torch.randn(57, 61)  # a size of its own: the first call measures the workspace

    def measurements() -> int:
        before = len(measured)
        with remat.budget("1GiB"):
            x.cumsum(0)
        return len(measured) - before

    assert measurements() > 0
    with monkeypatch.context() as patched, pytest.raises(ValueError, match="expected 'native' or 'python'"):
        patched.setenv("REMAT_DISPATCH", "rust")
        remat.budget("1GiB").__enter__()
    assert measurements() == 0


PROBES = {
    "platform": "native.sys.platform = 'win32'",
    "tensor layout": "native._candidates = lambda t: {k: set() for k in ('storage', 'sizes')}",
    "order of keys": "native._set_of = lambda key: 1",
    "disabled modes": "native._check_modes.__globals__['_C'] = type('C', (), {\n"
    "    '__getattr__': lambda self, name: (lambda key: False) if 'tls_is' in name else getattr(torch._C, name)})()",
    "key in use": "native._is_taken = lambda: True",
    "key not taken": "taken = iter([False, False]); native._is_taken = lambda: next(taken)",
    "redispatch": "native._words = lambda address, count: (id(b'0' * 64) + 32,) * count",
    "library": "native.Path = lambda path: __import__('pathlib').Path('/nowhere/x')",
    "tags": "native._seen = lambda *a, **k: {'raw': [(1, 0)] * 4, 'header': None}",
    "tensor without a value": "native._undefined = lambda c10: 1 << 40",
    "wrapped numbers": "native._wrapped = lambda dtype: 1 << 40",
    "raising": """
capture = native._native.capture_native
native._native.capture_native = lambda *a, **k: [] if k.get("raising") else capture(*a, **k)
""",
    "names of settings": "global_state._METHODS['_get_mkldnn_enabled'] = 'userEnabledCuDNN'",
    "settings": "global_state._METHODS.clear()",
    "threads": "global_state._native.read_settings = lambda: ([], 0, 0)",
    "leaves": "native._native.is_leaf = lambda address: True",
    "autocast": "native._AUTOCAST['cpu'] = ('CPU', 1)",
    "reading": "native._shown = lambda tensor: 'another tensor'",
    "function": "native.torch._C._dispatch_key_parse = None",
}


WATCH_PROBES = {
    "storages' functions": "watch._native.register_watch = lambda python: exec('raise RuntimeError')",
    "counts of references": "watch._uses = lambda address: 0",
    "deaths of storages": "watch._native.WatchedProbe = type('Deaf', (), {\n"
    "    '__init__': lambda self, address: None, 'is_alive': lambda self: True, 'died': lambda self: []})",
    "bytes that stay": "watch._native.WatchedProbe.set_keeping = lambda self, keeps: None",
    "storages' objects": """
probe = watch._native.WatchedProbe
watch._native.WatchedProbe = lambda address: type('Other', (), {
    '__getattr__': lambda self, name: getattr(probe(address), name), 'object': lambda self: None})()
""",
}


REPLAY_PROBES = {
    "storages that are not watched": WATCH_PROBES["counts of references"],
    "functions": "rehearsal._native.register_replays = lambda *a: exec('raise RuntimeError')",
    "ops": "rehearsal.torch.ops.aten.alias = lambda x: x",
    "results": "rehearsal._contents = lambda tensors: []",
    "writes": "rehearsal._writes = lambda: False",
    "storages that are kept": "torch._C._storage_Use_Count = lambda address, counts=iter(range(1000)): next(counts)\n"
    "native.watch_results = lambda *a: remat._native.watch_results()",
    "errors": "rehearsal._raises = lambda: False",
}


@pytest.mark.parametrize("probe", some([None, *REPLAY_PROBES]))
@needed
@needs(REPLAYS)
def test_ops_are_replayed_through_python_where_a_probe_fails(probe: str | None) -> None:
    """Each in a process of its own."""
    program = f"""
import remat, torch, warnings
from remat._torch_internals import eager
from remat._torch_internals.eager import native, rehearsal, watch
warnings.simplefilter("ignore")
view, made = eager.view, []
eager.view = lambda *arguments: made.append(0) or view(*arguments)
{REPLAY_PROBES.get(probe or "", "")}
x = torch.ones(64, 64)
with remat.budget(1 << 30, policy="lru") as run:
    for _ in range(8):
        x * 2.0
    run.set_budget(16384 * 12)
    kept = [x * (step + 0.5) for step in range(24)]
    assert [one[0, 0].item() for one in kept] == [step + 0.5 for step in range(24)]
    assert run.stats().recomputed > 0
    print(run.stats().dispatch, len(made) > 0)
    print(any(part.startswith("replays: ") for part in run.stats().left_to_python))
"""
    done = ran_warm(["env", "REMAT_DISPATCH=native", *PYTHON, "-c", program])
    assert done.code == 0, done.err
    failed = str(probe is not None)
    assert done.out.split() == ["native", failed, failed]


@pytest.mark.parametrize("probe", some(PROBES))
def test_a_probe_that_fails_refuses(probe: str) -> None:
    """Each in a process of its own: what was probed is known for as long as the process lives."""
    program = f"""
import os, remat, torch, warnings
from remat._torch_internals.eager import global_state, native, watch
{PROBES[probe]}
os.environ["REMAT_DISPATCH"] = "native"
try:
    remat.budget("1GiB").__enter__()
except remat.RematError as error:
    print(error)
del os.environ["REMAT_DISPATCH"]
warnings.simplefilter("default")
for _ in range(2):
    with warnings.catch_warnings(record=True) as caught, remat.budget("1GiB") as run:
        torch.ones(8) + 1
    print(run.stats().dispatch, *(warning.message for warning in caught))
"""
    done = ran_warm([*PYTHON, "-c", program])
    assert done.code == 0, done.err
    refused, warned, again = done.out.splitlines()
    assert refused.startswith("REMAT_DISPATCH=native: ") and "unset the variable" in refused
    reason = refused.removeprefix("REMAT_DISPATCH=native: ").removesuffix(
        "; unset the variable to use a dispatch mode of Python"
    )
    assert warned.startswith("python every op goes through Python") and reason in warned
    assert again == "python"


@pytest.mark.parametrize("probe", some([None, *WATCH_PROBES]))
@needed
@needs(WATCHING)
def test_results_are_watched_where_the_probe_found_all_as_expected(probe: str | None) -> None:
    """Each in a process of its own. Otherwise Python's weak references tell of deaths."""
    program = f"""
import remat, torch, warnings
from remat._torch_internals.eager import watch
warnings.simplefilter("ignore")
x = torch.ones(64)
{WATCH_PROBES.get(probe or "", "")}
with remat.budget("1GiB") as run:
    for _ in range(12):
        y = x + 1
    print(run.stats().dispatch, watch._native.is_watched(y.untyped_storage()._cdata))
    @torch.library.custom_op("rematcheck::empties", mutates_args=())
    def empties(x: torch.Tensor) -> torch.Tensor:
        y.untyped_storage().resize_(0)
        return x.clone()
    try:
        empties(x)
    except remat.RematError as error:
        assert "mutates_args" in str(error)
    else:
        raise AssertionError("a storage was resized that the op does not declare to write")
    del y
    x + 1
    assert run.stats().storages <= 3
"""
    done = ran_warm(["env", "REMAT_DISPATCH=native", *PYTHON, "-c", program])
    assert done.code == 0, done.err
    assert done.out.split() == ["native", str(probe is None)]
