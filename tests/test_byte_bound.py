"""Budget means budget: the allocator never sees more, and one that is too small is refused, not overrun."""

from __future__ import annotations

import contextlib
import gc
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import native
import pytest
import remat
import torch
import torch.nn.functional as F
from bits import bits, differences
from budgeted import Run, reference, under, under_feasible
from process import PYTHON, program, ran_warm
from remat._torch_internals import eager
from remat._torch_internals.eager import copies
from remat._torch_internals.eager.tensors import allocated
from scenarios import DEPTH, ROWS, WIDTH, Scenario, deep
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from true_peak import resident_bytes, room, true_peak

sys.path.append(str(Path(__file__).resolve().parent.parent / "benchmarks"))

from estimates import Estimated

MIB = 2**20


def kept_features(count: int, layers: int = 16, rows: int = 512, width: int = 64) -> list[Tensor]:
    """A chain of activations, of which the last `count` stay in the caller's hands."""
    weights = torch.randn(layers, width, width) / width**0.5
    hidden = torch.randn(rows, width)
    kept = []
    for weight in weights:
        hidden = (hidden @ weight).tanh()
        kept.append(hidden)
    return kept[-count:]


def convolutions() -> Any:
    model = nn.Sequential(*(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()) for _ in range(8)))
    x = torch.randn(4, 8, 40, 40)
    losses = []
    for size in (40, 33, 24):  # each size is a signature never seen before
        loss = model(x[..., :size, :size]).square().mean()
        loss.backward()
        losses.append(loss.detach())
    return [losses, [p.grad for p in model.parameters()]]


def recurrent_network() -> Any:
    model = nn.LSTM(24, 48, num_layers=2)
    features = kept_features(12)
    losses = []
    for length in (24, 17):
        out, _ = model(torch.randn(length, 16, 24))
        loss = out.square().mean()
        loss.backward()
        losses.append(loss.detach())
    return [losses, [p.grad for p in model.parameters()], features]


def attention() -> Any:
    features = kept_features(12)
    losses = []
    for length in (96, 80):
        q, k, v = torch.randn(3, 2, 4, length, 32, requires_grad=True).unbind(0)
        out = q
        for _ in range(4):
            out = F.scaled_dot_product_attention(out, k, v, is_causal=True).relu() + q
        loss = out.square().mean()
        loss.backward()
        losses.append(loss.detach())
    return [losses, features]


def products_and_reductions() -> Any:
    features = kept_features(12)
    found = []
    for size in (128, 200, 256):
        left = torch.randn(size, size)
        product = left @ left.t() @ left.t().contiguous()
        found += [
            product.sort(dim=0).values.sum(),
            product.to(torch.bfloat16) @ left.bfloat16(),
            torch.fft.fft(product).abs().mean(),
            product.cumsum(0).logsumexp(1),
            torch.linalg.qr(product[:32, :32]).R.abs(),
            product[product > 0].sum(),
            torch.einsum("ij,kj,lj->", left[:16], left[:16], left[:16]),
            F.pad(product, (3, 3)).unfold(0, 8, 8).contiguous().mean(),
        ]
    return [found, features]


WORKSPACES: dict[str, Callable[[], Any]] = {
    run.__name__: run for run in (convolutions, recurrent_network, attention, products_and_reductions)
}


@pytest.mark.parametrize("fraction", [1.0, 0.8, 0.6])
@pytest.mark.parametrize("name", WORKSPACES)
def test_workspace_stays_inside(name: str, fraction: float) -> None:
    scenario = Scenario(name, WORKSPACES[name])
    plain = reference(scenario)
    run = under_feasible(scenario, plain.at(fraction))
    assert run.true_peak <= run.budget, f"{run.true_peak - run.budget} bytes above {run.budget}"
    assert differences(plain.bits, run.bits) == []


FIRST_SIGHT = """
import sys
import remat
import torch
from test_byte_bound import WORKSPACES
from true_peak import true_peak

torch.set_num_threads(2)
torch.manual_seed(0)
budget = int(sys.argv[2])
with true_peak():  # loads the profiler
    pass
with remat.budget(budget):
    with true_peak() as peak:
        try:
            WORKSPACES[sys.argv[1]]()
        except remat.BudgetError:
            pass
assert peak.highest <= budget, f"{peak.highest} of {budget} bytes"
"""


@pytest.mark.parametrize("name", WORKSPACES)
def test_estimates_at_first_sight_are_safe(tmp_path: Path, name: str) -> None:
    """In a process that has seen nothing, with a profiler active, nothing can be measured: estimates stand in."""
    plain = reference(Scenario(name, WORKSPACES[name]))
    budget = int((plain.peak - plain.base) * 0.8)
    ended = ran_warm([*PYTHON, program(tmp_path, FIRST_SIGHT), name, str(budget)])
    assert ended.code == 0, ended.err


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize(
    ("length", "batch", "features", "hidden"),
    [(24, 16, 24, 48), (64, 64, 1, 64), (200, 4, 8, 32), (3, 128, 300, 20), (1, 2, 26, 512), (40, 69, 5, 256)],
)
def test_estimates_of_recurrent_layers_are_safe(length: int, batch: int, features: int, hidden: int) -> None:
    """Such a layer keeps states for the backward pass in a result whose size no shape function of torch tells."""
    op = torch.ops.aten.mkldnn_rnn_layer.default
    weights = [torch.randn(4 * hidden, *rest) for rest in ((features,), (hidden,), (), ())]
    states = [torch.zeros(batch, hidden), torch.zeros(batch, hidden)]
    settings = (False, [], 2, hidden, 1, True, False, False, True)
    args = (torch.randn(length, batch, features), *weights, *states, *settings)
    outputs, workspace, *_ = eager.predict(op, args, {})
    with true_peak() as peak:
        op(*args)
    assert peak.highest - peak.base <= sum(output[0] for output in outputs if output) + workspace


def seldom_measured(rows: int, width: int, picked: int) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Calls whose first sight was refused at more than the peak of whole programs, by name."""
    aten = torch.ops.aten
    real, halves = torch.randn(rows, width), torch.randn(rows, width // 2 + 1, dtype=torch.complex64)
    whole = torch.randn(rows, width, dtype=torch.complex64)
    indices, gradient = torch.randint(0, rows, (picked,)), torch.randn(picked, width)
    sparse = torch.sparse_coo_tensor(indices[None], gradient, (rows, width))
    return {
        "rfft": (aten._fft_r2c.default, (real, [1], 0, True)),
        "rfft2": (aten._fft_r2c.default, (real, [0, 1], 0, True)),
        "fft": (aten._fft_c2c.default, (whole, [1], 0, True)),
        "fft2": (aten._fft_c2c.default, (whole, [0, 1], 0, True)),
        "fft of a transpose": (aten._fft_c2c.default, (whole.t(), [1], 0, True)),
        "irfft": (aten._fft_c2r.default, (halves, [1], 0, width)),
        "irfft2": (aten._fft_c2r.default, (halves, [0, 1], 0, width)),
        "embedding": (aten.embedding.default, (real, indices)),
        "embedding of a transpose": (aten.embedding.default, (torch.randn(width, rows).t(), indices)),
        "its gradient": (aten.embedding_dense_backward.default, (gradient, indices, rows, -1, False)),
        "its gradient, by frequency": (aten.embedding_dense_backward.default, (gradient, indices, rows, -1, True)),
        "a sum of equal indices": (aten._coalesce.default, (sparse,)),
        "rows of a dense tensor": (aten.sparse_mask.default, (real, sparse.coalesce())),
        "rows, indices not sorted": (aten.sparse_mask.default, (real, sparse)),
        "a sparse update": (aten.add_.Tensor, (real, sparse)),
        "a sparse update of columns": (aten.add_.Tensor, (torch.randn(width, rows).t(), sparse)),
        "a sparse update of another dtype": (aten.add_.Tensor, (real.double(), sparse)),
    }


@pytest.mark.parametrize(("rows", "width", "picked"), [(2000, 64, 400), (300, 17, 900), (9000, 1, 5000), (64, 1024, 9)])
def test_estimates_are_safe_and_not_far_off(rows: int, width: int, picked: int) -> None:
    for name, (op, args) in seldom_measured(rows, width, picked).items():
        outputs, workspace, leaves, *_ = eager.predict(op, args, {})
        reserved = sum(output[0] for output in outputs if output) + workspace + leaves
        with true_peak() as peak:
            result = op(*args)
        taken = peak.highest - peak.base
        read = sum(allocated(tensor) for tensor in args if isinstance(tensor, Tensor))
        assert taken <= reserved, name
        assert reserved <= 3 * read + sum(output[0] for output in outputs if output) + 32768, name
        del result


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize(("channels", "kernel", "side"), [(128, [3, 3], 4), (96, [5, 7], 7), (64, [3, 3], 28)])
def test_gradients_of_channels_by_themselves_get_one_copy_of_the_weights(
    channels: int, kernel: list[int], side: int
) -> None:
    """Layouts of a transformer's tokens: inputs, gradients, or both are strided."""
    op = torch.ops.aten.convolution_backward.default
    x, weight = torch.randn(4, channels, side, side), torch.randn(channels, 1, *kernel)
    settings = ([1, 1], [k // 2 for k in kernel], [1, 1], False, [0, 0], channels)
    gradient = torch.randn(4, channels, side, side)
    by_groups = 256 * channels * kernel[0] * kernel[1] * 4  # each channel as a group of 16
    last = torch.channels_last
    for strided in [(x.to(memory_format=last), gradient), (x, gradient.to(memory_format=last))]:
        args = (strided[1], strided[0], weight, [channels], *settings, [True, True, True])
        outputs, workspace, *_ = eager.predict(op, args, {})
        with true_peak() as peak:
            result = op(*args)
        taken = peak.highest - peak.base
        assert taken <= sum(output[0] for output in outputs if output) + workspace
        assert workspace <= 2 * by_groups + 4 * x.nbytes + (1 << 17)
        del result


#: Shapes of input and weight, step and padding of convolutions that most models of images have.
USUAL_CONVOLUTIONS = {
    "of three by three": ((8, 64, 28, 28), (96, 64, 3, 3), 1, 1),
    "of three by three, in steps": ((8, 96, 28, 28), (96, 96, 3, 3), 2, 1),
    "of an image": ((16, 3, 64, 64), (32, 3, 3, 3), 2, 1),
    "of patches": ((8, 3, 64, 64), (192, 3, 16, 16), 16, 0),
    "of each channel": ((8, 96, 28, 28), (96, 1, 3, 3), 1, 1),
    "of each channel, in steps": ((8, 96, 28, 28), (96, 1, 5, 5), 2, 2),
    "of each channel of one sample": ((1, 256, 56, 56), (256, 1, 3, 3), 1, 1),
    "of an input smaller than the kernel": ((16, 256, 2, 2), (256, 256, 3, 3), 1, 1),
    "of single places": ((16, 128, 14, 14), (256, 128, 1, 1), 1, 0),
    "of single places, few samples": ((4, 512, 7, 7), (1024, 512, 1, 1), 1, 0),
}


def usual_convolution(name: str) -> tuple[Tensor, Tensor, list[Any]]:
    """Input, weight, and the arguments that follow the bias."""
    x, weight, step, pad = USUAL_CONVOLUTIONS[name]
    return torch.randn(x), torch.randn(weight), [[step] * 2, [pad] * 2, [1, 1], False, [0, 0], x[1] // weight[1]]


def both_ways(forward: tuple[object, ...], backward: tuple[object, ...]) -> Iterator[tuple[object, int, int]]:
    """A convolution and its gradients: the op, its workspace as estimated, and what it takes."""
    for op, args in (
        (torch.ops.aten.convolution.default, forward),
        (torch.ops.aten.convolution_backward.default, backward),
    ):
        _, workspace, *_ = eager.predict(op, args, {})
        _, taken = eager.measured_call(op, args, {})
        assert taken is not None
        yield op, workspace, taken


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_usual_convolutions_are_given_little_more_than_they_take() -> None:
    """Two and a half times what they take, or half of what they read and write, whichever is more."""
    for name in USUAL_CONVOLUTIONS:
        x, weight, every = usual_convolution(name)
        forward = (x, weight, None, *every)
        y = torch.ops.aten.convolution.default(*forward)
        backward = (torch.ones_like(y), x, weight, [len(weight)], *every, [True] * 3)
        touched = x.nbytes + y.nbytes + weight.nbytes
        for op, given, taken in both_ways(forward, backward):
            assert taken <= given <= max(5 * taken // 2, touched // 2) + (1 << 17), (name, op)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("name", USUAL_CONVOLUTIONS)
def test_estimates_of_usual_convolutions_are_safe_in_any_layout(name: str) -> None:
    """As the numbers of images and of tokens lie; few samples, too."""
    last = torch.channels_last
    x, weight, every = usual_convolution(name)
    layouts = itertools.product((1, len(x)), (torch.contiguous_format, last), (torch.contiguous_format, last), (0, 1))
    for samples, of_x, of_gradient, of_input in layouts:
        forward = (x[:samples].contiguous(memory_format=of_x), weight, None, *every)
        gradient = torch.ones_like(torch.ops.aten.convolution.default(*forward)).contiguous(memory_format=of_gradient)
        backward = (gradient, *forward[:2], [len(weight)], *every, [bool(of_input), True, True])
        for op, given, taken in both_ways(forward, backward):
            assert taken <= given, (op, samples, of_x, of_gradient, of_input)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_are_estimated_without_copies_of_what_they_read(dims: int) -> None:
    """Images of 8 MiB that no test has seen before: the prediction asks torch which kernel it chooses."""
    sides = {1: (65_521,), 2: (331, 198), 3: (43, 39, 39)}[dims]
    every = ([1] * dims, [1] * dims, [1] * dims, False, [0] * dims, 1)
    x, weight = torch.randn(2, 16, *sides), torch.randn(16, 16, *[3] * dims)
    before = resident_bytes()
    with true_peak() as peak:
        eager.predict(torch.ops.aten.convolution.default, (x, weight, None, *every), {})
        eager.predict(torch.ops.aten.convolution_backward.default, (x, x, weight, [16], *every, [True] * 3), {})
    assert peak.highest <= before + MIB


def test_ops_that_take_nothing_beside_their_result_fit_at_first_sight() -> None:
    """Each with 1 MiB to spare, which is less than half of its result or input."""
    mask, x = torch.zeros(1031, 4096, dtype=torch.bool), torch.randn(1031, 1024)
    calls: list[Callable[[], Tensor]] = [
        lambda: torch.randn(1033, 1024),
        lambda: torch.rand(1033, 1024),
        lambda: torch.randn_like(x),
        lambda: torch.randint(9, (1033, 512)),
        lambda: F.gelu(x),
        lambda: torch.ops.aten.gelu_backward(x, x),
        lambda: mask.any(),
    ]
    for call in calls:
        torch.manual_seed(0)
        result = call()
        torch.manual_seed(0)
        with remat.budget(room(result.nbytes + MIB)):
            assert torch.equal(call(), result)
        del result


def in_several_steps() -> dict[str, Callable[[], Any]]:
    """Calls with inputs of some MiB that copy, convert, sort or multiply them on the way to their results."""
    x, halves = torch.randn(1024, 512), torch.zeros(2048, 1024, dtype=torch.bfloat16)
    images, squares, samples = torch.randn(16, 32, 37, 41), torch.randn(16, 128, 128), torch.randn(2048, 64)
    theta, weight, few = torch.randn(64, 2, 3), torch.randn(40, 64, 64), torch.randint(0, 1024, (1, 512))
    gradient, chances = torch.randn(2048, 40), x.sigmoid()
    return {
        "count_nonzero": lambda: torch.count_nonzero(x, 0),
        "isin": lambda: torch.isin(x, x[:4]),
        "scatter": lambda: halves.scatter(0, few, torch.ones(1, 512, dtype=torch.bfloat16)),
        "scatter_add": lambda: halves.scatter_add(0, few, torch.ones(1, 512, dtype=torch.bfloat16)),
        "allclose": lambda: torch.allclose(x, x),
        "tril": lambda: x.expand(3, 1024, 512).tril(),
        "kthvalue": lambda: x.kthvalue(3, 0),
        "matrix_exp": lambda: torch.linalg.matrix_exp(squares),
        "index_select": lambda: x.t().index_select(1, few[0]),
        "im2col": lambda: F.unfold(images, 3, padding=1, stride=2),
        "roll": lambda: squares.roll((3, 3, 3), (0, 1, 2)),
        "histc": lambda: x.t().histc(),
        "mvlgamma": lambda: torch.special.multigammaln(chances + 4, 3),
        "affine_grid": lambda: F.affine_grid(theta, [64, 1, 61, 67], align_corners=False),
        "binary_cross_entropy": lambda: F.binary_cross_entropy_with_logits(x.t(), chances.t()),
        "trilinear": lambda: torch._trilinear(gradient, weight, samples, [2, 3], [0], [1, 2], [1, 3]),
        "dist": lambda: torch.dist(x[:256, None], x[:16], 3),
        "to_sparse": lambda: chances.to_sparse(),
        "convolution": lambda: F.conv2d(images.mT, weight[:24, :32, :3, None].expand(24, 32, 3, 3), stride=2),
    }


@pytest.mark.parametrize("name", tuple(in_several_steps()))
def test_ops_of_several_steps_stay_inside_at_first_sight(name: str) -> None:
    """The budget is full of what can be dropped: an op that is given too little room exceeds it."""
    call, x, budget = in_several_steps()[name], torch.randn(64, 1024), room(40 * MIB)
    with true_peak() as peak, remat.budget(budget):
        kept = [x.exp() for _ in range(320)]
        call()
        assert len(kept) == 320
        del kept
    assert peak.highest <= budget


def test_gradients_of_quantization_are_given_what_they_read() -> None:
    """Torch has no rule for the shapes of these results: those of the tensors that they are the gradients of."""
    x, scale, zero = torch.randn(1021, 512), torch.tensor([0.1]), torch.zeros(1)
    op = torch.ops.aten._fake_quantize_learnable_per_tensor_affine_backward.default
    args = (x, x, scale, zero, -128, 127, 1.0)
    outputs, workspace, *_ = eager.predict(op, args, {})
    results, taken = eager.measured_call(op, args, {})
    assert taken is not None
    assert [output[0] for output in outputs if output] == [result.nbytes for result in results]
    assert taken <= workspace <= 2 * taken


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_what_is_kept_back_goes_to_an_op_that_does_not_fit_otherwise(share: float) -> None:
    """All but 64 KiB of it, and not to the ops before."""
    budget = room(128 * MIB)
    kept, rest = budget // 256, 64 << 10
    x = torch.zeros(64 * MIB // 4)
    missing = int(share * (kept - rest))
    with true_peak() as peak, remat.budget(budget) as run:
        large = x[: (budget - resident_bytes() - kept + missing) // 4] + 1
        assert budget - kept < run.stats().peak <= budget - rest
    assert peak.highest <= budget
    del large
    gc.collect()
    with remat.budget(budget), pytest.raises(remat.BudgetError, match="does not fit"):
        x.new_empty((budget - resident_bytes() - rest // 2) // 4)


def any_convolution(draw: random.Random) -> tuple[Any, ...] | None:
    """Arguments of a convolution, transposed or not, with groups or without; ``None`` where they do not fit."""
    dtype = draw.choice([torch.float32, torch.float32, torch.bfloat16, torch.float64])
    groups, dims = draw.choice([1, 1, 1, 2, 4]), draw.choice([1, 2, 2])
    read, made = (groups * draw.choice([1, 3, 8, 16, 20, 64]) for _ in range(2))
    transposed, stride = draw.random() < 0.6, draw.choice([1, 2])
    beyond = draw.choice([0, stride - 1]) if transposed else 0
    x = torch.randn(draw.choice([1, 2, 4, 16]), read, *[draw.choice([4, 7, 14, 28])] * dims, dtype=dtype)
    channels = (read, made // groups) if transposed else (made, read // groups)
    weight = torch.randn(*channels, *[draw.choice([2, 3, 4, 5])] * dims, dtype=dtype)
    padding = draw.choice([0, 1])
    every = [[stride] * dims, [padding] * dims, [1] * dims, transposed, [beyond] * dims, groups]
    args = (x, weight, torch.randn(made, dtype=dtype), *every)
    try:
        torch.ops.aten.convolution.default(*args)
    except RuntimeError:
        return None  # the kernel is larger than what it moves over
    return args


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 24))])
def test_estimates_of_convolutions_are_safe(seed: int) -> None:
    draw, forward, backward = random.Random(seed), torch.ops.aten.convolution, torch.ops.aten.convolution_backward
    for _ in range(25):
        args = any_convolution(draw)
        if args is None:
            continue
        x, weight, bias, *every = args
        gradient = torch.randn_like(forward.default(*args))
        gone_back = (gradient, x, weight, [len(bias)], *every, [True] * 3)
        for op, given in ((forward.default, args), (backward.default, gone_back)):
            outputs, workspace, *_ = eager.predict(op, given, {})
            with true_peak() as peak:
                result = op(*given)
            reserved = sum(output[0] for output in outputs if output) + workspace
            assert peak.highest - peak.base <= reserved, (seed, op, [tuple(part.shape) for part in (x, weight)], every)
            del result


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_convolutions_of_doubles_are_estimated_closely(dims: int) -> None:
    """Torch's own kernels lay their input out in columns; only the gradient of a kernel needs those again."""
    forward, backward = torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default
    x, weight = (torch.randn(8, 3, *[20] * dims).double(), torch.randn(16, 3, *[3] * dims).double())
    every = [[1] * dims, [1] * dims, [1] * dims, False, [0] * dims, 1]
    made = forward(x, weight, None, *every)
    for op, args in ((forward, (x, weight, None, *every)), (backward, (made, x, weight, [16], *every, [True] * 3))):
        outputs, workspace, *_ = eager.predict(op, args, {})
        with true_peak() as peak:
            result = op(*args)
        taken = peak.highest - peak.base
        reserved = sum(output[0] for output in outputs if output) + workspace
        assert taken <= reserved <= 1.25 * taken + 32768, (op, taken, reserved)
        del result


ESTIMATED = (
    copies._READ_STRIDED | copies._COPY_STRIDED | copies._PRODUCTS | copies._MOVE | copies._REDUCE | copies._FACTOR
)
ESTIMATED |= {"any", "all", "index", "index_add", "index_put", "isfinite", "where", "_cdist_forward", "_safe_softmax"}
ESTIMATED |= {"native_batch_norm", "native_batch_norm_backward", "native_layer_norm_backward"}
ESTIMATED |= {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"}

#: Ops of torch's own tests whose samples run here; all others do with --all.
SAMPLED = {"softmax", "matmul", "nn.functional.layer_norm", "nn.functional.cross_entropy", "gather", "sum", "cat"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("part", [None, *(pytest.param(part, marks=pytest.mark.full) for part in range(8))])
def test_estimates_of_ops_are_safe(part: int | None, dtype: torch.dtype) -> None:
    """Samples of torch's own tests, forward and backward, as they are and four times as large."""
    from torch.testing._internal.common_methods_invocations import op_db

    known = [op for op in op_db if dtype in op.supported_dtypes("cpu") and op.supports_autograd]
    chosen = [op for op in known if op.name in SAMPLED] if part is None else known[part::8]
    found = Estimated(ESTIMATED)
    for op in chosen:
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), 12):
            with warnings.catch_warnings(), contextlib.suppress(RuntimeError, TypeError, ValueError), found:
                warnings.simplefilter("ignore")
                result = op(sample.input, *sample.args, **sample.kwargs)
                made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
                torch.autograd.backward(made, [torch.ones_like(x) for x in made])
    if part is None:
        assert {"_softmax", "mm", "sum", "native_layer_norm_backward"} <= found.seen
    assert not found.short, found.short[:5]


def any_call(draw: random.Random) -> tuple[str, Callable[[], Any]]:
    """A call on tensors of 10 KB to 1 MB that lie one way or another."""

    def some(*shape: int) -> Tensor:
        x = torch.randn(*shape, requires_grad=True)
        kind = draw.choice(["as it is", "as it is", "transposed", "expanded", "strided"])
        if kind == "transposed":
            return torch.randn(*shape[:-2], shape[-1], shape[-2], requires_grad=True).transpose(-1, -2)
        if kind == "expanded":
            return x[:1].expand(shape)
        return torch.randn(*shape, 2, requires_grad=True)[..., 0] if kind == "strided" else x

    rows, columns, batch = (draw.choice([3, 16, 40, 129]) for _ in range(3))
    labels = torch.randint(0, columns, (rows,))
    calls: dict[str, Callable[[], Any]] = {
        "mm": lambda: some(rows, columns) @ some(columns, batch),
        "bmm": lambda: some(batch, rows, columns) @ some(batch, columns, rows),
        "softmax": lambda: some(batch, rows, columns).softmax(draw.choice([0, -1])),
        "cross entropy": lambda: F.cross_entropy(some(rows, columns), labels),
        "norms": lambda: F.group_norm(F.layer_norm(some(batch, 4 * rows, columns), (columns,)), 4),
        "batch norm": lambda: F.batch_norm(some(batch, rows, 16, 16), None, None, training=True),
        "pools": lambda: F.avg_pool2d(F.max_pool2d(some(batch, rows, 16, 16), 2), 2),
        "attention": lambda: F.scaled_dot_product_attention(*(some(batch, 2, rows, 16) for _ in range(3))),
        "gathered": lambda: some(rows, columns).index_select(0, labels % rows).gather(1, labels[:, None]),
        "reduced": lambda: some(batch, rows, columns).mean(1).amax(0).sum() + some(rows, columns).norm(),
        "put together": lambda: F.pad(torch.cat([some(rows, columns), some(batch, columns)]), (1, 1)).flip(0),
        "gated": lambda: F.glu(F.hardswish(some(rows, 2 * columns))),
    }
    name = draw.choice(list(calls))
    return name, calls[name]


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 16))])
def test_estimates_of_calls_on_any_layout_are_safe(seed: int) -> None:
    draw, found = random.Random(seed), Estimated(ESTIMATED)
    for _ in range(60):
        name, call = any_call(draw)
        with found:
            result = call()
            result.backward(torch.ones_like(result))
        assert not found.short, (seed, name, found.short[:2])


def learn(fn: Callable[[], Any]) -> None:
    """Lets Remat see every signature once."""
    with remat.budget(room(64 * MIB)):
        fn()


def test_deep_replay_stays_inside() -> None:
    def chain() -> Any:
        x = torch.randn(64, 256)
        values = [x]
        for number in range(150):
            values.append(values[-1].sin() if number % 2 else values[-1] * 1.01)
        # Backwards: each touch needs the whole chain before it, of which little can be resident.
        return [value.sum() for value in reversed(values)], values[-1]

    scenario = Scenario("deep chain", chain)
    plain = reference(scenario)
    run = under_feasible(scenario, plain.base + 12 * 64 * 256 * 4)
    assert run.budget < plain.peak // 3
    assert run.true_peak <= run.budget, f"{run.true_peak - run.budget} bytes above {run.budget}"
    assert run.stats.recomputed > 150
    assert differences(plain.bits, run.bits) == []


def filled() -> Any:
    """Values that are evicted, each copied into memory that was allocated before."""
    values = [torch.randn(64, 256)]
    for _ in range(12):
        values.append(values[-1].sin())
    sums = []
    for number in range(len(values)):
        value = values[5 * number % len(values)]
        copy = torch.empty(64, 256)
        copy.copy_(value)
        sums.append(copy.sum())
    return sums, values[-1]


def test_what_fills_allocated_memory_is_brought_back_beside_it() -> None:
    """The memory is there while the op's inputs are computed again, though the op has not written to it yet."""

    scenario = Scenario("filled", filled)
    plain = reference(scenario)
    run = under_feasible(scenario, plain.base + 6 * 64 * 256 * 4)
    assert run.stats.recomputed > 12
    assert run.true_peak <= run.budget, f"{run.true_peak - run.budget} bytes above {run.budget}"
    assert differences(plain.bits, run.bits) == []


def test_a_trace_tells_what_was_brought_back_to_fill_memory(tmp_path: Path) -> None:
    trace = tmp_path / "filled.jsonl"
    with remat.budget(room(6 * 64 * 256 * 4), trace=str(trace)) as run:
        filled()
    assert run.stats().recomputed > 12
    assert '{"ens":' in trace.read_text()


@native.needed
@pytest.mark.usefixtures("native")
def test_a_trace_tells_what_was_brought_back_to_be_counted(tmp_path: Path) -> None:
    trace = tmp_path / "masked.jsonl"
    x = torch.randn(64, 256)
    with remat.budget(room(232 << 10), trace=str(trace)) as run:
        mask = x > 0
        x.repeat(3, 1).sum()
        x.repeat(3, 1).sum()
        x[mask].sum()
    assert run.stats().recomputed == 1
    assert '{"ens":' in trace.read_text()


def test_smallest_budget_gets_past_the_refused_op() -> None:
    def wide(h: Tensor, w: Tensor) -> Tensor:
        return (torch.cat([h @ w] * 8, 1).tanh() * 0.5).view(ROWS, 8, WIDTH).sum(1)

    scenario = Scenario("wide", lambda: deep(wide, depth=DEPTH // 2))
    plain = reference(scenario)
    asked, refused = plain.at(0.02), []
    for _ in range(40):
        found = under(scenario, asked)
        if isinstance(found, Run):
            break
        assert found.smallest > asked
        assert found.smallest <= 2 * plain.true_peak
        refused.append(found)
        asked = found.smallest
    assert refused, "a fiftieth of the span should have been refused"
    assert isinstance(found, Run)
    assert found.true_peak <= found.budget
    assert differences(plain.bits, found.bits) == []


def test_refusal_names_op_and_bytes() -> None:
    x = torch.randn(256, 256)
    asked = room(2 * MIB)
    with remat.budget(asked) as run:
        with pytest.raises(remat.BudgetError) as refused:
            torch.mm(x, torch.zeros(256, 4096))
        assert run.stats().budget == asked
    error = refused.value
    assert isinstance(error, remat.RematError)
    assert isinstance(error.op, str) and error.op
    assert error.budget == asked
    assert error.needed >= 256 * 4096 * 4
    assert error.smallest > error.budget
    assert "\n" not in str(error)
    assert error.op in str(error)


def test_refused_run_goes_on_under_a_larger_budget() -> None:
    learn(lambda: torch.cat(kept_features(12)).sum())
    torch.manual_seed(5)
    plain = kept_features(12)
    expected = bits([plain, torch.cat(plain), torch.rand(3)])
    del plain
    torch.manual_seed(5)
    asked = room(MIB)
    with remat.budget(asked) as run:
        with true_peak() as peak:
            kept = kept_features(12)
            with pytest.raises(remat.BudgetError) as refused:
                torch.cat(kept)
            smallest = refused.value.smallest
            assert smallest >= 12 * 512 * 64 * 4
            for tensor in kept:  # every tensor is intact and usable after the refusal
                assert torch.isfinite(tensor.sum())
        assert peak.highest <= asked
        run.set_budget(smallest)
        assert run.stats().budget == smallest
        with true_peak() as peak:
            joined = torch.cat(kept)
        assert peak.highest <= smallest
        after = torch.rand(3)
    assert differences(expected, bits([kept, joined, after])) == []


def test_budget_lowered_while_active() -> None:
    learn(lambda: kept_features(12)[0].sum())
    torch.manual_seed(6)
    expected = bits(kept_features(12))
    torch.manual_seed(6)
    lower = room(MIB)
    with remat.budget(lower + 2 * MIB) as run:
        with true_peak() as peak:
            kept = kept_features(12)
            before = run.stats().evictions
            run.set_budget(lower)
            peak.restart()
            total = sum(float(tensor.sum()) for tensor in kept)
        assert peak.highest <= lower
        assert run.stats().evictions > before
        with pytest.raises((remat.RematError, ValueError)):
            run.set_budget(0)
        with pytest.raises(ValueError):
            run.set_budget("12 potatoes")
        assert sum(float(tensor.sum()) for tensor in kept) == total
    assert differences(expected, bits(kept)) == []


def test_a_budget_that_is_refused_leaves_the_one_before() -> None:
    budget = room(2 * MIB)
    with remat.budget(budget) as run:
        kept = torch.tensor([1.0] * (MIB // 4))
        assert kept.sum().item() == MIB // 4
        with pytest.raises(remat.BudgetError) as refused:
            run.set_budget(MIB // 2)
        assert refused.value.budget == MIB // 2
        assert run.stats().budget == budget
        with pytest.raises(remat.BudgetError) as refused:
            torch.ones(MIB)
        assert refused.value.budget == budget


def test_resident_bytes_count_from_the_start() -> None:
    before = kept_features(12)  # 1.5 MiB that came before Remat and cannot be recomputed
    expected = bits(before)
    with pytest.raises(remat.RematError), remat.budget(resident_bytes() - MIB // 2):
        torch.zeros(1024) + before[0].sum()
    assert differences(expected, bits(before)) == []


def test_measure_gives_the_unconstrained_peak() -> None:
    resident = torch.zeros(MIB // 4)
    gc.collect()

    def work() -> Tensor:
        first = torch.ones(MIB // 4)
        second = first + 1
        del first
        return second * 2

    measured = remat.measure(work)
    assert measured.base >= resident.numel() * 4
    assert measured.base + 2 * MIB <= measured.peak <= measured.base + 2 * MIB + 4096
    assert measured.result[0] == 4


def test_stats_tell_what_it_cost() -> None:
    def work() -> float:
        kept = kept_features(14)
        return sum(float(t.sum()) for t in kept + kept[::-1])

    learn(work)
    asked = room(700 * 1024)
    with remat.budget(asked) as run:
        work()
        seen = run.stats()
        assert seen.budget == asked
        assert 0 < seen.peak <= seen.budget
        assert seen.evictions > 0
        assert seen.recomputed > 0
        assert seen.ops >= 32
        assert 0 < seen.recompute_seconds < seen.seconds
        assert 0 < seen.decide_seconds < seen.seconds
    assert run.stats().ops >= seen.ops


def test_same_decisions_again() -> None:
    def decisions(policy: str) -> tuple[int, int, int]:
        torch.manual_seed(0)
        with remat.budget(room(700 * 1024), policy=policy, seed=3) as run:
            kept = kept_features(14)
            for tensor in reversed(kept):
                tensor.sum()
            found = run.stats()
        return found.evictions, found.recomputed, found.peak

    learn(lambda: kept_features(14))
    for policy in ("lru", "size", "random"):
        decisions(policy)
        assert decisions(policy) == decisions(policy)
