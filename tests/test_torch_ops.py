"""Ops whose replays need more than shapes and strides: the results are evicted, read again, and have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy
import pytest
import remat
import torch
from bits import Bits, bits, differences
from native import needed
from process import PYTHON, ran
from torch import Tensor
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_over
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.masked import masked_tensor
from torch.nn.attention.flex_attention import flex_attention
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import TorchDispatchMode
from true_peak import Peak, room, true_peak

pytestmark = pytest.mark.filterwarnings("ignore:.*(nested|quantize).*:UserWarning")


def set_smallest_budget(run: remat.Run) -> None:
    """Evicts whatever can be evicted."""
    try:
        run.set_budget(1 << 10)
    except remat.BudgetError as refused:
        run.set_budget(refused.smallest)


def evict(run: remat.Run) -> None:
    """Evicts whatever can be evicted, and then has room for it again."""
    before = run.stats().evictions
    set_smallest_budget(run)
    run.set_budget("64MiB")
    assert run.stats().evictions > before, "nothing was evicted"


def results(program: Callable[[], Any]) -> Any:
    torch.manual_seed(1)
    return program()


def holds_evicted(program: Callable[[], Any], expected: Bits | None = None) -> None:
    """The results of a program are evicted, and read again they have the bits expected: those of a plain run."""
    expected = expected or bits(results(program))
    with remat.budget("64MiB", policy="lru") as run:
        found = results(program)
        evict(run)
        assert differences(expected, bits(found)) == []
        assert run.stats().recomputed > 0


@contextmanager
def changed(setter: Callable[[Any], object], value: Any, before: Any) -> Iterator[None]:
    """Sets a setting, and sets it back."""
    setter(value)
    try:
        yield
    finally:
        setter(before)


def precise(backend: str, op: str, precision: str) -> AbstractContextManager[None]:
    setter: Any = torch._C._set_fp32_precision_setter
    return changed(lambda value: setter(backend, op, value), precision, "none")


@contextmanager
def fast_products() -> Iterator[None]:
    """As `torch.set_float32_matmul_precision`, which does not set back what it set."""
    try:
        with changed(torch.set_float32_matmul_precision, "medium", "highest"):
            yield
    finally:
        for backend in ("mkldnn", "cuda"):
            torch._C._set_fp32_precision_setter(backend, "matmul", "none")


def product() -> list[Tensor]:
    return [torch.randn(256, 256) @ torch.randn(256, 256)]


def convolution() -> list[Tensor]:
    return [torch.conv2d(torch.randn(2, 16, 24, 24), torch.randn(16, 16, 3, 3))]


#: A setting and a program that has other bits under it.
SETTINGS: dict[str, tuple[Callable[[], AbstractContextManager[None]], Callable[[], list[Tensor]]]] = {
    "default dtype": (
        lambda: changed(torch.set_default_dtype, torch.float64, torch.float32),
        lambda: [torch.arange(1, 1000) / 3, torch.full((1000,), 0.1) * 3],
    ),
    "oneDNN": (lambda: torch.backends.mkldnn.flags(enabled=False), convolution),
    "matmul precision": (fast_products, product),
    "precision of oneDNN": (lambda: precise("mkldnn", "all", "bf16"), product),
    "denormals": (
        lambda: changed(torch.set_flush_denormal, True, False),
        lambda: [torch.full((1000,), 1e-38) * 1e-3],
    ),
    "threads": (
        lambda: changed(torch.set_num_threads, 1, 2),
        lambda: [torch.randn(300_000).sum() + torch.zeros(1000)],
    ),
}


def assert_differ(setting: str, one: Bits, other: Bits) -> None:
    """Two results differ, unless the processor cannot do what the setting allows."""
    if not differences(one, other) and "precision" in setting:
        pytest.skip("this processor computes with one precision")
    assert differences(one, other)


@pytest.mark.parametrize("guard", ["no_grad", "inference_mode"])
def test_the_first_use_may_be_without_autograd(guard: str) -> None:
    source = f"""if True:
        import remat, torch
        with torch.{guard}(), remat.budget("1MiB"):
            print(torch.ones(10).sum().item())
    """
    ended = ran([*PYTHON, "-c", source])
    assert (ended.code, ended.out) == (0, "10.0\n"), ended.err


def test_an_lstm_without_autograd_returns_no_workspace() -> None:
    def program() -> Tensor:
        lstm = torch.nn.LSTM(64, 64)
        with torch.no_grad():
            output: Tensor = lstm(torch.randn(50, 8, 64))[0]
            return output

    holds_evicted(program)


class TestLoadingAModel:
    """`load_state_dict` puts the text of every error into one of its own."""

    def test_says_that_the_budget_is_too_small(self) -> None:
        model = torch.nn.Linear(256, 256)
        state = {name: value.clone() for name, value in model.state_dict().items()}
        with remat.budget("64MiB") as run:
            set_smallest_budget(run)
            with pytest.raises(remat.BudgetError, match="copy_") as refused:
                model.load_state_dict(state)
        assert refused.value.smallest > refused.value.budget
        assert isinstance(refused.value.__cause__, RuntimeError)

    def test_still_says_that_a_shape_is_wrong(self) -> None:
        model = torch.nn.Linear(8, 8)
        wrong = torch.nn.Linear(8, 9).state_dict()
        with remat.budget(room(1 << 20)), pytest.raises(RuntimeError, match="size mismatch") as failed:
            model.load_state_dict(wrong)
        assert not isinstance(failed.value, remat.RematError)


class TestNestedTensors:
    """Strided nested tensors have no shape and no strides."""

    def test_an_encoder_skips_padding(self) -> None:
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        model = torch.nn.TransformerEncoder(layer, 2).eval()
        x, mask = torch.randn(4, 10, 32), torch.zeros(4, 10, dtype=torch.bool)
        mask[0, 5:] = True
        with torch.no_grad():
            expected = bits(model(x, src_key_padding_mask=mask))
            with remat.budget("64MiB", policy="lru") as run:
                found = model(x, src_key_padding_mask=mask)
                evict(run)
        assert differences(expected, bits(found)) == []

    def test_ops_on_them_are_replayed(self) -> None:
        def program() -> list[Tensor]:
            nested = torch.nested.nested_tensor([torch.randn(30, 40), torch.randn(50, 40)])
            doubled = nested * 2
            written = (nested * 3).relu_()
            linear = torch.nn.functional.linear(doubled, torch.randn(40, 40))
            return [part for whole in (doubled, written, linear) for part in whole.unbind()]

        holds_evicted(program)


def test_quantized_tensors_keep_their_quantizers() -> None:
    def program() -> list[Tensor]:
        x = torch.randn(64, 64)
        scales, zeros = torch.rand(64).double() + 0.1, torch.zeros(64, dtype=torch.long)
        each = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
        rows = torch.quantize_per_channel(x, scales * 2, zeros, 0, torch.qint8)
        derived = [torch.relu(each), each.view(32, 128).clone(), rows.clone()]
        return [q.dequantize() for q in (each, rows, *derived)] + [q.int_repr() for q in (each, rows, *derived)]

    holds_evicted(program)


@pytest.mark.parametrize("scheme", ["affine", "view", "channels", "channels that are floats", "one dimension"])
def test_ops_read_evicted_quantized_tensors(scheme: str) -> None:
    def quantized() -> Tensor:
        x, scales = torch.randn(64, 1024) * 2, torch.rand(64) + 0.1
        if scheme == "affine":
            return torch.quantize_per_tensor(x, 0.05, 10, torch.quint8)
        if scheme == "view":
            return torch.quantize_per_tensor(x, 0.05, 10, torch.quint8)[3:50].t()
        if scheme == "channels that are floats":
            return torch.quantize_per_channel(x, scales, torch.rand(64), 0, torch.quint8)
        if scheme == "one dimension":
            x, scales = torch.randn(8192), torch.rand(8192) + 0.1
        return torch.quantize_per_channel(x, scales, torch.zeros_like(scales, dtype=torch.long), 0, torch.qint8)

    def read(tensor: Tensor) -> list[Tensor]:
        return [tensor.dequantize(), tensor.int_repr()]

    expected = bits(read(results(quantized)))
    with remat.budget("64MiB", policy="lru") as run:
        tensor = results(quantized)
        evict(run)
        assert differences(expected, bits(read(tensor))) == []
        assert run.stats().recomputed > 0


class TestTensorsOfZeros:
    """Torch makes zeros that have no bytes (`_efficientzerotensor`) where a gradient is known to be zero."""

    def test_are_copied(self) -> None:
        def program() -> Tensor:
            return (torch.randn(64, 64) * 1).copy_(torch._efficientzerotensor(64, 64))

        holds_evicted(program)

    def test_arise_in_a_backward_pass(self) -> None:
        def program() -> list[Tensor | None]:
            x = torch.randn(64, 64, requires_grad=True)
            y = x * 1
            y.view(-1).sgn_()
            y.sum().backward()
            return [x.grad, y.detach()]

        holds_evicted(program)

    def test_arise_in_forward_mode(self) -> None:
        def program() -> list[Tensor]:
            with forward_ad.dual_level():
                dual = forward_ad.make_dual(torch.randn(32, 32), torch.randn(32, 32))
                zero = forward_ad.make_dual(torch.randn(32, 32), torch._efficientzerotensor(32, 32))
                wholes = [*torch.linalg.slogdet(dual), (zero * 2 + zero).relu(), zero * dual]
                return [part.clone() for whole in wholes for part in forward_ad.unpack_dual(whole)]

        with remat.budget("64MiB"):  # any dispatch mode has torch derive `slogdet` by another formula
            expected = bits(results(program))
        holds_evicted(program, expected)


class TestSettings:
    """A replay runs under the settings of torch under which the op ran first."""

    @pytest.mark.parametrize("name", SETTINGS)
    def test_of_the_first_run_hold(self, name: str) -> None:
        setting, program = SETTINGS[name]

        def under_setting() -> list[Tensor]:
            with setting():
                return program()

        plain, expected = bits(results(program)), bits(results(under_setting))
        assert_differ(name, plain, expected)
        holds_evicted(under_setting, expected)

    @pytest.mark.parametrize("name", SETTINGS)
    def test_of_the_program_hold_after_a_replay(self, name: str) -> None:
        setting, program = SETTINGS[name]
        expected = bits(results(program))
        with remat.budget("64MiB", policy="lru") as run:
            found = results(program)
            with setting():
                evict(run)
                assert differences(expected, bits(found)) == []
                assert_differ(name, bits(results(program)), expected)
        assert run.stats().recomputed > 0
        assert differences(expected, bits(results(program))) == []

    def test_of_precision_that_were_inherited_are_inherited_again(self) -> None:
        precision: Any = torch._C._get_fp32_precision_getter
        with remat.budget("64MiB", policy="lru") as run:
            found = torch.randn(64, 64) @ torch.randn(64, 64)
            with precise("mkldnn", "all", "bf16"):
                evict(run)
                found.sum().item()
                assert precision("mkldnn", "matmul") == "bf16"
            assert precision("mkldnn", "matmul") == "none"

    def test_of_autocast_do_not_reach_replays(self) -> None:
        def program() -> list[Tensor]:
            return [torch.randn(64, 64) @ torch.randn(64, 64)]

        expected = bits(results(program))
        with remat.budget("64MiB", policy="lru") as run:
            found = results(program)
            evict(run)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found[0].numpy()
            assert differences(expected, bits(found)) == []


OUTSIDE: dict[str, Callable[[numpy.ndarray], Tensor]] = {
    "float": lambda array: torch.from_numpy(array).float(),
    "divided": lambda array: torch.from_numpy(array) / 255,
    "tensor": lambda array: torch.tensor(array, dtype=torch.float32),
    "as_tensor": lambda array: torch.as_tensor(array, dtype=torch.float32),
    "clone": lambda array: torch.from_numpy(array).clone(),
    "stack": lambda array: torch.stack([torch.from_numpy(row) for row in array]),
    "rows": lambda array: torch.from_numpy(array)[torch.arange(64)],
    "filled": lambda array: torch.empty(64, 64).copy_(torch.from_numpy(array)),
    "written over": lambda array: torch.zeros(64, 64).copy_(torch.from_numpy(array)),
    "added": lambda array: torch.ones(64, 64).exp() + torch.from_numpy(array),
}


@pytest.mark.parametrize("taken", OUTSIDE.values(), ids=OUTSIDE)
def test_an_array_may_be_overwritten_once_it_was_read(taken: Callable[[numpy.ndarray], Tensor]) -> None:
    """As an environment overwrites its buffer of observations: no replay reads it again."""

    def program() -> list[Tensor]:
        array, kept = numpy.zeros((64, 64)), []
        for step in range(4):
            array[:] = step
            kept.append(taken(array).cos())
        return kept

    holds_evicted(program)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seen", [0, 4], ids=["a form first seen", "a form that is known"])
@pytest.mark.parametrize("made", [True, False], ids=["made by an op", "constant"])
def test_what_an_op_wrote_before_it_raised_stays(made: bool, seen: int) -> None:
    """Kernels look at indices as they come to them. No replay is of the values before, nor of what was made of them."""

    def program() -> list[Tensor]:
        counts = torch.arange(64.0) * 2 if made else torch.tensor([2.0] * 64)
        before = counts * 3
        places, ones = torch.arange(32), torch.ones(32)
        wrong = torch.arange(33, 65)
        for _ in range(seen):
            counts.index_add_(0, places, ones)
        after = counts * 5
        with pytest.raises(IndexError):
            counts.index_add_(0, wrong, ones)
        return [before, after, counts, counts + 1]

    holds_evicted(program)


@pytest.mark.usefixtures("way")
def test_what_was_made_before_an_op_raised_is_not_made_of_what_it_wrote() -> None:
    """The same under pressure from ops that come after, in a loop whose forms are known."""

    def program() -> list[Tensor]:
        size = 2**20
        a = torch.arange(size).float()
        alive = [torch.full((size,), float(i)) for i in range(3)]
        counts, ones = torch.zeros(size) + a * 0, torch.ones(1024)
        for wrong in (False, False, False, False, True):
            before = counts * 2
            places = torch.arange(1024)
            if wrong:
                places[-1] = size
            with pytest.raises(IndexError) if wrong else nullcontext():
                counts.index_add_(0, places, ones)
        more = [a + i for i in range(9)]
        more = [x + 1 for x in more]
        return [counts.sum(), before.sum(), alive[0].sum()]

    expected = bits(program())
    with remat.budget("34MiB") as run:
        found = program()
        assert run.stats().recomputed > 0
    assert differences(expected, bits(found)) == []


@pytest.mark.usefixtures("way")
def test_statistics_may_lie_in_one_storage_with_weights() -> None:
    def program() -> list[Tensor]:
        flat = torch.cat([torch.ones(8), torch.zeros(16), torch.ones(8)])
        weight, bias, mean, variance = flat.split(8)
        x, kept = torch.randn(16, 8, 4), []
        for _ in range(4):
            x = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, training=True).relu() + 0.1
            kept.append(x)
        return [*kept, flat]

    holds_evicted(program)


class TestLazyConjugates:
    """Kernels multiply by conjugates that are not carried out yet; torch hides these from them under a mode."""

    @staticmethod
    def program() -> list[Tensor]:
        x = torch.randn(20, 20, dtype=torch.complex64)
        inverse = torch.linalg.pinv(x, out=torch.empty(20, 20, dtype=torch.complex64))
        # New in torch 2.14.
        return [inverse, torch.linalg.matrix_sqrth(x @ x.mH)] if hasattr(torch.linalg, "matrix_sqrth") else [inverse]

    def test_are_carried_out_as_without_a_budget(self) -> None:
        with torch.no_grad():
            expected = bits(results(self.program))
            with remat.budget("64MiB"):
                found = results(self.program)
        assert differences(expected, bits(found)) == []

    # What is written by `out=` is not evicted.
    @pytest.mark.skipif(not hasattr(torch.linalg, "matrix_sqrth"), reason="torch.linalg.matrix_sqrth is new in 2.14")
    def test_are_carried_out_in_replays(self) -> None:
        with torch.no_grad():
            holds_evicted(self.program)


class TestModesOfTheProgram:
    """A mode that the program enters inside of a budget sees the program's ops, and no replays outside of them."""

    def test_do_not_see_replays(self) -> None:
        seen: list[str] = []

        class Seeing(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        expected = bits(torch.ones(64, 64) * 3)
        with remat.budget("64MiB", policy="lru") as run:
            x = torch.ones(64, 64) * 3
            evict(run)
            with Seeing():
                x.untyped_storage()
            assert run.stats().recomputed > 0
            assert differences(expected, bits(x)) == []
        assert seen == []

    def test_do_not_reach_replays(self) -> None:
        expected = bits(torch.ones(64, 64) * 3)
        with remat.budget("64MiB", policy="lru") as run:
            x = torch.ones(64, 64) * 3
            evict(run)
            with FakeTensorMode(allow_non_fake_inputs=True):
                x.untyped_storage()
            assert differences(expected, bits(x)) == []


def scores(score: Tensor, *place: Tensor) -> Tensor:
    return score + place[2]


BODIES: dict[str, Callable[[Tensor], Any]] = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() * 2, (x,)),
    "while_loop": lambda x: torch.while_loop(
        lambda count, x: count < 5, lambda count, x: (count + 1, x.sin() * 0.9), (torch.tensor(0), x)
    ),
    "scan": lambda x: scan(lambda sum, row: (sum * 0.9 + row, row.relu()), torch.zeros(64), x, dim=0),
    "map": lambda x: map_over(lambda row: row.sin() * 2, x),
    "flex_attention": lambda x: flex_attention(*[x.view(1, 2, 32, 64)] * 3, score_mod=scores),
}


@needed
@pytest.mark.usefixtures("native")
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
class TestOpsWithBodies:
    """Ops that are given functions, such as `torch.cond`; the ops of these functions are the budget's."""

    @pytest.mark.parametrize("name", BODIES)
    def test_are_evicted(self, name: str) -> None:
        with torch.no_grad():
            holds_evicted(lambda: BODIES[name](torch.randn(64, 64) * 1))

    def test_are_trained(self) -> None:
        def program() -> list[Tensor]:
            x = torch.randn(64, 64, requires_grad=True)
            for _ in range(2):
                y = x
                for _ in range(4):
                    y = BODIES["cond"](y).sin().exp()
                y.sum().backward()
            return [x.grad] if x.grad is not None else []

        expected = bits(results(program))
        measured = remat.measure(lambda: results(program))
        with remat.budget(measured.fraction(0.8)) as run:
            found = results(program)
        assert run.stats().recomputed > 0
        assert differences(expected, bits(found)) == []


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("generator", [None, torch.Generator()], ids=["default", "own"])
def test_random_numbers_are_drawn_again_for_batched_gradients(generator: torch.Generator | None) -> None:
    """Torch forbids random ops while it computes gradients in batches."""

    def program(between: Callable[[], object]) -> list[Tensor]:
        x = torch.randn(32, 32, requires_grad=True)
        torch.manual_seed(3) if generator is None else generator.manual_seed(3)
        y = x * torch.randn(32, 32, generator=generator)
        between()
        found = torch.autograd.grad(y, x, torch.ones(4, 32, 32), is_grads_batched=True)
        return [*found, torch.rand(3, generator=generator)]

    expected = bits(results(lambda: program(lambda: None)))
    with remat.budget("64MiB", policy="lru") as run:
        for _ in range(3):
            results(lambda: program(lambda: None))  # ops that are known take another way
        found = results(lambda: program(lambda: evict(run)))
        assert run.stats().recomputed > 0
        assert differences(expected, bits(found)) == []


class TestWorkspaces:
    """Ops that make more on their way than their kind suggests, at the smallest budget that is not refused."""

    @pytest.mark.parametrize(
        "op",
        [
            lambda x: torch.ops.aten.native_dropout_backward(x, x > 0, 2.0),
            torch.isinf,
            lambda x: torch.mvlgamma(x.abs() + 3, 3),
        ],
        ids=["native_dropout_backward", "isinf", "mvlgamma"],
    )
    def test_stay_inside(self, op: Callable[[Tensor], Tensor]) -> None:
        x = torch.randn(1 << 16)
        asked = room(0)
        while True:
            try:
                for measured in (False, True):  # a profiler of the program's own keeps Remat from measuring
                    with remat.budget(asked, policy="lru"), true_peak() if measured else nullcontext(Peak()) as peak:
                        op(x)
                break
            except remat.BudgetError as refused:
                assert refused.smallest > asked
                asked = refused.smallest
        assert peak.highest <= asked


class TestRefusals:
    def test_within_torchscript_are_told(self) -> None:
        """Forward mode takes this op apart in TorchScript's interpreter, whose errors lose the text of Python's."""

        def program() -> None:
            for _ in range(8):  # until the forms of its ops are known
                with forward_ad.dual_level():
                    x = torch.rand(64, 64)
                    dual = forward_ad.make_dual(x, x * 0.5)
                    torch.ops.aten._softmax_backward_data(dual, x, 1, torch.float32)

        with remat.budget("64MiB") as run:
            program()
        lost = 0
        for budget in range(room(32 << 10), room(run.stats().peak), 4 << 10):
            try:
                with remat.budget(budget, policy="lru"):
                    program()
            except remat.BudgetError as refused:
                assert refused.smallest > budget
                lost += isinstance(refused.__cause__, RuntimeError)
        assert lost > 0

    def test_of_tensors_that_exist_name_a_budget_that_holds_them(self) -> None:
        x = torch.ones(1 << 16)
        with pytest.raises(remat.BudgetError, match="exists already") as refused, remat.budget(room(0)):
            pass
        with remat.budget(refused.value.smallest):
            pass
        assert x.sum() == 1 << 16


TRANSFORMS = {
    "vmap": torch.func.vmap,
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum()),
    "functionalize": torch.func.functionalize,
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum())),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_budget_begins_where_wrappers_outlived_their_transform(transform: Callable[..., Any]) -> None:
    kept = []

    def f(x: Tensor) -> Tensor:
        kept.append(x)
        return x * 2

    transform(f)(torch.ones(16, 1 << 12))
    with remat.budget(room(1 << 20)):
        y = torch.ones(1 << 12, requires_grad=True)
        (y * 3).sum().backward()
    assert y.grad is not None and bool((y.grad == 3).all())
    assert len(kept) == 1


class TestIndicesReadByRawPointer:
    def test_places_to_split_at(self) -> None:
        def program() -> tuple[Tensor, Tensor]:
            return torch.randn(1000), torch.arange(1, 999) * 1

        x, places = results(program)
        expected = bits([*torch.tensor_split(x, places), *x.tensor_split(tensor_indices_or_sections=places)])
        with remat.budget("64MiB", policy="lru") as run:
            x, places = results(program)
            evict(run)
            by_function = torch.tensor_split(x, places)
        with remat.budget("64MiB", policy="lru") as run:
            _, places = results(program)
            evict(run)
            by_method = x.tensor_split(tensor_indices_or_sections=places)
        assert differences(expected, bits([*by_function, *by_method])) == []

    def test_sizes_of_packed_batches(self) -> None:
        gru, x, state = torch.nn.GRU(4, 4), torch.randn(500, 4), torch.zeros(1, 1, 4)
        sizes = torch.ones(500, dtype=torch.int64)

        def output(sizes: Tensor) -> Tensor:
            weights = [*gru.parameters()]
            found: Tensor = torch.gru(x, sizes, state, weights, True, 1, 0.0, False, False)[0]
            return found

        with torch.no_grad():
            expected = bits(output(sizes))
            with remat.budget("64MiB", policy="lru") as run:
                evictable = sizes * 1
                evict(run)
                found = bits(output(evictable))
        assert differences(expected, found) == []


class TestReadByRawPointer:
    @pytest.mark.parametrize("named", [False, True])
    def test_a_pooling_without_autograd(self, named: bool) -> None:
        pool = torch.nn.MaxPool1d(3)

        def pooled(x: Tensor) -> Tensor:
            return torch.max_pool1d(input=x, kernel_size=3) if named else pool(x)

        with torch.no_grad():
            x = torch.randn(16, 4, 300)
            expected = bits(pooled(x * 2))
            with remat.budget("64MiB", policy="lru") as run:
                evictable = x * 2
                evict(run)
                assert differences(expected, bits(pooled(evictable))) == []


class TestRunningStatistics:
    """Ops update them beside their results, declared or not; replays must neither lose nor repeat an update."""

    @staticmethod
    def arguments() -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return torch.randn(64, 8, 4), torch.zeros(8) * 1, torch.ones(8) * 1, torch.rand(8) + 0.5

    def test_of_outputs_that_are_given(self) -> None:
        def program() -> list[Tensor]:
            x, mean, var, weight = self.arguments()
            outs = [torch.empty(64, 8, 4), torch.empty(8), torch.empty(8)]
            names = dict(zip(("out", "save_mean", "save_invstd"), outs, strict=True))
            torch.ops.aten.native_batch_norm.out(x, weight, None, mean, var, True, 0.1, 1e-5, **names)
            return [*outs, outs[0] * 2, mean, var]

        holds_evicted(program)

    def test_of_an_op_without_a_flag(self) -> None:
        def program() -> list[Tensor]:
            x, mean, var, weight = self.arguments()
            found = torch.ops.aten._batch_norm_with_update(x, weight, None, mean, var, 0.1, 1e-5)
            return [*found, found[0] * 2, mean, var]

        holds_evicted(program)

    def test_of_an_op_that_declares_nothing(self) -> None:
        def program() -> list[Tensor]:
            x, mean, var, _ = self.arguments()
            old = mean * 2 + x.mean()
            found = torch.batch_norm_update_stats(x, mean, var, 0.1)
            return [old, *found, found[0] + torch.zeros(1000, 1), mean, var]

        holds_evicted(program)

    @pytest.mark.parametrize("momentum", [0.1, 0.0])
    def test_of_an_op_that_is_used_both_ways(self, momentum: float) -> None:
        def program() -> list[Tensor]:
            x, mean, var, weight = self.arguments()
            x.requires_grad_()
            found = []
            for training in (False, True, False, True, False):
                found.append(torch.nn.functional.batch_norm(x, mean, var, weight, None, training, momentum) * 2)
            (gradient,) = torch.autograd.grad(sum(y.square().sum() for y in found), x)
            return [*found, gradient, mean, var]

        holds_evicted(program)

    def test_that_an_op_returns_anew(self) -> None:
        def program() -> list[Tensor]:
            x, mean, var, weight = self.arguments()
            op = torch.ops.aten._native_batch_norm_legit_functional
            found = op(x, weight, None, mean, var, True, 0.1, 1e-5)
            return [*found, found[0] * 2, mean, var]

        holds_evicted(program)

    def test_that_an_op_only_reads(self) -> None:
        def program() -> list[Tensor]:
            x, mean, var, weight = self.arguments()
            found = torch.ops.aten._batch_norm_no_update(x, weight, None, mean + 1, var, 0.1, 1e-5)
            return [*found, found[0] * 2]

        holds_evicted(program)

    def test_that_were_there_by_chance_are_updated_later(self) -> None:
        def program() -> list[Tensor]:
            _, mean, var, weight = self.arguments()
            found = []
            for x in (torch.zeros(64, 8, 4), torch.randn(64, 8, 4), torch.randn(64, 8, 4)):
                found.append(torch.nn.functional.batch_norm(x, mean, var, weight, None, True))
            return [*found, mean, var]

        holds_evicted(program)


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """A mesh of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*(MaskedTensor|nested).*:UserWarning")
class TestTensorSubclasses:
    """A subclass that intercepts ops computes with tensors of its own, and these are under the budget."""

    def test_of_two_tensors(self) -> None:
        def program() -> list[Tensor]:
            x = TwoTensor(torch.randn(64, 64), torch.randn(64, 64))
            found = ((x * 2 + x) @ x).view(-1).relu()
            return [found.a, found.b]

        holds_evicted(program)

    def test_in_training(self) -> None:
        def program() -> list[Tensor]:
            model = torch.nn.Linear(64, 64)
            y = model(TwoTensor(torch.randn(32, 64), torch.randn(32, 64)))
            y.square().sum().backward()
            return [part for x in (model.weight.grad, y.detach() * 1) for part in (x.a, x.b)]

        holds_evicted(program)

    def test_of_jagged_tensors(self) -> None:
        def program() -> list[Tensor]:
            parts = [torch.randn(30, 64), torch.randn(50, 64)]
            x = torch.nested.nested_tensor(parts, layout=torch.jagged)
            linear = torch.nn.functional.linear(x.sin(), torch.randn(64, 64))
            return [linear.values(), (x * 2).sum(-1).values()]

        expected = bits(results(program))
        with remat.budget("64MiB") as run:  # each jagged tensor asks for the storage of its values, which pins it
            found = results(program)
            assert run.stats().ops > 10
        assert differences(expected, bits(found)) == []

    def test_of_masked_tensors(self) -> None:
        def program() -> list[Tensor]:
            x = masked_tensor(torch.randn(64, 64), torch.rand(64, 64) > 0.5)
            return [(x * 2).get_data(), x.sum().get_data(), x.sum(0).get_data()]

        holds_evicted(program)

    def test_of_distributed_tensors(self, mesh: DeviceMesh) -> None:
        def program() -> list[Tensor]:
            x = distribute_tensor(torch.randn(64, 64), mesh, [Shard(0)])
            return [((x * 2 + x) @ x).relu().to_local()]

        holds_evicted(program)

    @pytest.mark.parametrize("foreach", [False, True])
    def test_of_sharded_modules(self, mesh: DeviceMesh, foreach: bool) -> None:
        def program() -> list[Tensor]:
            model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
            for module in (*model, model):
                fully_shard(module, mesh=mesh)
            optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
            found = []
            for _ in range(3):
                found.append(model(torch.randn(256, 64)).relu())
                found[-1].square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            return [*(x.detach() * 1 for x in found), *(parameter.to_local() for parameter in model.parameters())]

        holds_evicted(program)
