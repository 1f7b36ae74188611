"""Workspace of ops before they first run: estimated, against taken.

    python benchmarks/estimates.py [--from ops,large,convolutions,programs] [--convolutions 5000] [--threads 1]
        [--seed 1] [--quick]

`ops` are the samples of all ops that torch itself tests, forward and backward, in four types of numbers; `large` are
some of them made large, beside which the few KiB that every op is given are nothing, contiguous, transposed and
expanded; `convolutions` are drawn at random; `programs` are those of `benchmarks/programs.py`, whose packages must be
there (`scripts/programs`). ONEDNN_MAX_CPU_ISA=AVX2 in the environment has oneDNN do without AVX-512. The exit code is 1
if more than one estimate in a thousand is too low.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from remat._torch_internals import eager
from timing import heading, line
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

#: Types of numbers that ops are sampled in.
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)

#: Types of numbers that ops are sampled in where they are large.
LARGE_DTYPES = (torch.float32, torch.float64, torch.complex64, torch.bfloat16)

#: Numbers of the largest tensor of a large sample, at most, and of its longest side where it has several.
LARGE, LONGEST = 1 << 16, 256

#: Bytes of the results of an op, at most, that is run on large samples: others make all pairs, for example.
LARGEST = 1 << 25

#: Ops without large samples, by parts of their names: convolutions have a source of their own, and the others would
#: take minutes.
NEVER_LARGE = {
    "conv", "unbind", "multilabel_margin_loss", "combinations", "cartesian_prod", "diagflat", "meshgrid", "__rmul__",
}  # fmt: skip

#: How the tensors of large samples lie.
LAYOUTS = ("contiguous", "transposed", "expanded")

#: Bytes of the numbers that torch makes tensors of while an op runs: a part of each budget is kept back for them.
NUMBERS = 64

Short = tuple[str, int, int, list[Any]]
"""An op that took more than was estimated: its name, bytes taken, bytes estimated, its tensors."""


class TooLarge(Exception):
    """An op's results have more bytes than is allowed."""


class Estimated(TorchDispatchMode):
    """Compares what ops take with what was estimated before they ran, once for each form of call.

    Of ops whose names are chosen, if some are. Raises `TooLarge` before an op whose results have more bytes than the
    largest may have.
    """

    def __init__(self, chosen: set[str] | None = None, largest: int = sys.maxsize) -> None:
        super().__init__()
        self._chosen, self._largest = chosen, largest
        self._forms: set[tuple[Any, str]] = set()
        self.seen: set[str] = set()
        self.calls = self.estimated = self.taken = 0
        self.short: list[Short] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Estimates, runs and measures an op."""
        base, kwargs = func._schema.name.split("::")[-1], kwargs or {}
        if self._chosen is not None and base not in self._chosen:
            return func(*args, **kwargs)
        form = (func, repr([_described(part) for part in tree_leaves((args, kwargs))]))
        if form in self._forms:
            return func(*args, **kwargs)
        self._forms.add(form)
        outputs, estimated, *_ = eager.predict(func, args, kwargs)
        if sum(output[0] for output in outputs if output) > self._largest:
            raise TooLarge(func)
        result, taken = eager.measured_call(func, args, kwargs)
        if taken is None:
            return result
        self.seen.add(base)
        self.calls, self.estimated, self.taken = self.calls + 1, self.estimated + estimated, self.taken + taken
        if taken > estimated + NUMBERS:
            tensors = [(tuple(x.shape), x.dtype, x.layout) for x in tree_leaves(args) if isinstance(x, torch.Tensor)]
            self.short.append((str(func), taken, estimated, tensors))
        return result


def _described(part: Any) -> Any:
    if not isinstance(part, torch.Tensor):
        return part
    strided = part.layout == torch.strided
    return part.dtype, part.shape, part.stride() if strided else part.layout, part.device.type


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="sources", default="ops,convolutions", help="of ops,large,convolutions,programs")
    parser.add_argument("--convolutions", type=int, default=5000, help="random convolutions (default 5000)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="seed of what is drawn (default 1)")
    parser.add_argument("--quick", action="store_true", help="few calls of each source")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    count = 50 if options.quick else options.convolutions
    sources: dict[str, Callable[[Estimated], None]] = {
        "ops": lambda found: ops(found, options.quick),
        "large": lambda found: large(found, options.quick, options.seed),
        "convolutions": lambda found: convolutions(found, count, options.seed),
        "programs": programs,
    }
    chosen = options.sources.split(",")
    unknown = [name for name in chosen if name not in sources]
    if unknown:
        parser.error(f"--from {unknown[0]}: expected some of {','.join(sources)}")
    print(heading(("calls of", "calls", "estimated GB", "taken GB", "too low", "at most")))
    worst, calls = [], 0
    for name in chosen:
        found = Estimated(largest=LARGEST if name == "large" else sys.maxsize)
        sources[name](found)
        most = max((taken / max(1, estimated) for _, taken, estimated, _ in found.short), default=1.0)
        sums = f"{found.estimated / 1e9:.2f}", f"{found.taken / 1e9:.2f}"
        print(line((name, str(found.calls), *sums, str(len(found.short)), f"{most:.2f}")), flush=True)
        worst += found.short
        calls += found.calls
    for name, taken, estimated, tensors in sorted(worst, key=lambda short: short[2] - short[1])[:10]:
        print(f"{name} took {taken}, estimated {estimated}: {tensors}", file=sys.stderr)
    return 1 if len(worst) > calls / 1000 else 0


def ops(found: Estimated, quick: bool) -> None:
    """Samples of torch's own tests."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op, dtype in itertools.product(op_db[::40] if quick else op_db, DTYPES):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        back = dtype.is_floating_point and op.supports_autograd
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=back), 12):
            # Samples that torch refuses here (some are of GPUs), and those that no dispatch mode may see.
            with contextlib.suppress(Exception), found:
                both_ways(op, sample.input, sample.args, sample.kwargs)


def both_ways(op: Any, x: Any, args: Any, kwargs: Any) -> None:
    """Runs an op, and goes back through it where it can be."""
    made = [y for y in tree_leaves(op(x, *args, **kwargs)) if isinstance(y, torch.Tensor) and y.requires_grad]
    if made:
        torch.autograd.backward(made, [torch.ones_like(y) for y in made])


def large(found: Estimated, quick: bool, seed: int) -> None:
    """Samples of torch's own tests, one drawn for each type and layout, with all sides made as many times as long.

    Samples that do not fit together any more are left out.
    """
    from torch.testing._internal.common_methods_invocations import op_db

    draw = random.Random(seed)
    known = [op for op in op_db if not any(part in op.name for part in NEVER_LARGE)]
    for op, dtype in itertools.product(known[::40] if quick else known, LARGE_DTYPES):
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(seed)
        back = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=back), 40))
        for layout in LAYOUTS:
            sample = draw.choice(samples)
            parts = (sample.input, sample.args, sample.kwargs)
            times = _times([x for x in tree_leaves(parts) if isinstance(x, torch.Tensor)])
            with contextlib.suppress(Exception), found:
                both_ways(op, *tree_map_only(torch.Tensor, lambda x, n=times, how=layout: _enlarged(x, n, how), parts))


def _times(tensors: list[torch.Tensor]) -> int:
    """How many times as long all sides of these may be; sides of 1 stay as they are, and all where one is empty."""
    times = [LARGE if all(x.numel() > 0 for x in tensors) else 1]
    for x in tensors:
        sides = [side for side in x.shape if side > 1]
        if sides and x.numel() > 0:
            times.append(int((LARGE / x.numel()) ** (1 / len(sides)) + 1e-9))
        if len(sides) > 1:
            times.append(LONGEST // max(sides))
    return max(1, min(times))


def _enlarged(x: torch.Tensor, times: int, layout: str) -> torch.Tensor:
    """The numbers of a tensor over and over, laid out in one way."""
    if x.layout != torch.strided or x.dim() == 0:
        return x
    y = x.detach().repeat([times if side > 1 else 1 for side in x.shape])
    if layout == "transposed":
        y = y.mT.contiguous().mT if y.dim() > 1 else torch.stack([y, y], -1)[..., 0]
    elif layout == "expanded":
        y = y[:1].expand_as(y)
    return y.requires_grad_(x.requires_grad)


def convolutions(found: Estimated, count: int, seed: int) -> None:
    """Random convolutions of one to three dimensions, and what goes back through them."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    for _ in range(count):
        x, weight, every = _drawn(draw)
        if not x.is_contiguous() and weight[0, 0].numel() == 1 and every[0][0] > 1:
            continue  # without AVX-512 oneDNN of torch 2.15 writes beyond its memory as it goes back through these
        with contextlib.suppress(RuntimeError), found:  # the kernel may be larger than what it moves over
            y = torch.ops.aten.convolution(x, weight, None, *every)
            gradient = torch.ones_like(y)
            if y.dim() == 4 and draw.random() < 0.2:
                gradient = gradient.to(memory_format=torch.channels_last)
            wanted = [draw.random() < 0.7, True, True]
            torch.ops.aten.convolution_backward(gradient, x, weight, [y.shape[1]], *every, wanted)


def _drawn(draw: random.Random) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
    """Input, weight, and the arguments that follow the bias."""
    dims, kind = draw.choice([1, 2, 2, 2, 2, 3]), draw.choice(["full", "full", "one", "each", "groups"])
    width = [1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 20, 24, 32, 40, 48, 64, 96, 128]
    read, written, groups = draw.choice(width), draw.choice(width), 1
    if kind == "each":
        groups, written = read, read * draw.choice([1, 1, 1, 2])
    if kind == "groups":
        groups = draw.choice([2, 3, 4, 8])
        read, written = (groups * draw.choice([1, 2, 3, 4, 6, 8, 16, 20, 32]) for _ in range(2))
    extents = [1 if kind == "one" else draw.choice([1, 2, 3, 3, 4, 5, 7]) for _ in range(dims)]
    extents = [min(extent, 3) for extent in extents] if dims == 3 else extents
    side = [3, 4, 6, 8, 12, 16] if dims == 3 else [3, 4, 5, 7, 8, 10, 14, 16, 28, 32, 48]
    transposed = draw.random() < 0.15
    (dtype,) = draw.choices([torch.float32, torch.float64, torch.bfloat16], [8, 1, 1])
    x = torch.randn(draw.choice([1, 1, 2, 3, 4, 8, 16]), read, *(draw.choice(side) for _ in range(dims)), dtype=dtype)
    if dims == 2 and draw.random() < 0.25:
        x = x.to(memory_format=torch.channels_last)
    shape = (read, written // groups) if transposed else (written, read // groups)
    step, spread = draw.choice([1, 1, 1, 2, 3]), draw.choice([1] * 8 + [2])
    padding = [draw.choice([0, 1, extent // 2]) for extent in extents]
    every = [[step] * dims, padding, [spread] * dims, transposed, [0] * dims, groups]
    return x, torch.randn(*shape, *extents, dtype=dtype), every


def programs(found: Estimated) -> None:
    """The ops of other people's programs, those of backward passes among them."""
    from third_party.catalogue import load
    from third_party.observe import once

    for name, program in load().items():
        try:
            with contextlib.redirect_stdout(io.StringIO()), found:
                once(program)
        except Exception as error:  # packages that are missing, programs that no dispatch mode may see
            print(f"{name} was left out: {type(error).__name__}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
