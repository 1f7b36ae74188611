"""Training steps compiled in several ways: how long they take, and what they hold at most."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import remat
import torch
import torch.nn.functional as F
from joint_models import VOCABULARY, first
from remat._torch_internals import compiler
from timing import in_turn, timed
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from true_peak import resident_bytes, true_peak

MIB = 1 << 20
SHARES = (0.8, 0.6, 0.4, 0.3)
#: Losses of float32 are the same within this share.
#: Bytes by which the peaks of one and the same plan differ: losses, counters and other small things come and go.
SCALARS = 8192
TOLERANCE = 1e-4

PLAIN, NOT_AT_ALL, PER_BLOCK = "eager", "compiled, nothing recomputed", "compiled, checkpoint per block"
TORCHS, OURS = "torch.compile", "remat.compile"


@dataclass
class Program:
    """A model that is trained; a checkpoint is put around each of its blocks."""

    name: str
    model: nn.Module
    inputs: tuple[Any, ...]
    blocks: Callable[[nn.Module], list[nn.Module]]

    def twin(self) -> nn.Module:
        """The same parameters and buffers in a module of its own."""
        kept = [*self.model.parameters(), *self.model.buffers()]
        return copy.deepcopy(self.model, {id(tensor): tensor for tensor in kept})


@dataclass
class StepRow:
    """One way to run a program, as it was seen."""

    program: str
    label: str
    base: int
    budget: int | None = None
    peak: int | None = None
    ms: float | None = None
    #: Time over that of ``torch.compile``, round by round.
    over_torch: float | None = None
    loss: float | None = None
    failure: str | None = None
    compiled_s: float | None = None
    same_loss: bool = True
    #: No peak of a larger budget is lower.
    monotone: bool = True

    def broken(self) -> str | None:
        """The fault of the row, if it has one. A budget that is too small for any plan is an answer, and no fault."""
        if not self.same_loss:
            return "the loss differs from plain eager's"
        if self.budget is not None and self.peak is not None and self.peak > self.budget:
            return f"the peak is {self.peak / self.budget:.4f} of the budget"
        return None if self.monotone else "a larger budget has a lower peak"


@dataclass
class _Peer:
    row: StepRow
    step: Callable[[], float]
    seconds: list[float] = field(default_factory=list)


def step_rows(program: Program, rounds: int, steps: int) -> list[StepRow]:
    """Peaks one by one, then times in turns."""
    torch._dynamo.reset()
    # Each way is compiled by itself, and the modules share their code.
    torch._dynamo.config.recompile_limit = 128
    gc.collect()
    peers: list[_Peer] = []
    for label, model in unbudgeted(program):
        peers.append(_seen(program, label, model, None))
    plain = next(peer.row for peer in peers if peer.row.label == NOT_AT_ALL)
    if plain.peak is not None and budgets_known():
        for share in SHARES:
            budget = int(share * plain.peak)
            model = remat.compile(program.twin(), budget=budget)
            peers.append(_seen(program, f"{OURS}, {share:.0%}", model, budget))
    running = [peer for peer in peers if peer.row.peak is not None]
    for turn in range(rounds):
        for peer in in_turn(running, turn):
            peer.seconds.append(median(timed(peer.step, "cpu", 1, steps)))
    reference = next(peer for peer in peers if peer.row.label == TORCHS)
    for peer in running:
        peer.row.ms = 1e3 * median(peer.seconds)
        if reference.seconds:
            ratios = [mine / other for mine, other in zip(peer.seconds, reference.seconds, strict=True)]
            peer.row.over_torch = median(ratios)
    rows = [peer.row for peer in peers]
    _compare(rows)
    return rows


def budgets_known() -> bool:
    """Whether ``remat.compile`` takes a budget."""
    return "budget" in inspect.signature(remat.compile).parameters


def unbudgeted(program: Program) -> Iterator[tuple[str, Any]]:
    """Ways to run a program without a budget."""

    def without(gm: Any, inputs: Any) -> Any:
        return compiler.compile_graph(gm, inputs, compiler.without_recomputing(), {})

    yield PLAIN, program.model
    yield NOT_AT_ALL, torch.compile(program.twin(), backend=without)
    per_block = program.twin()
    for block in program.blocks(per_block):
        block.forward = _checkpointed(block.forward)  # type: ignore[method-assign]
    yield PER_BLOCK, torch.compile(per_block)
    yield TORCHS, torch.compile(program.twin())
    yield OURS, remat.compile(program.twin())


def _checkpointed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def again(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return again


def _seen(program: Program, label: str, model: Any, budget: int | None) -> _Peer:
    """Runs it until nothing is compiled any more, and looks at its loss and its peak."""

    def step() -> float:
        for parameter in program.model.parameters():
            parameter.grad = None
        loss = first(model(*program.inputs)).square().mean()
        loss.backward()
        value = loss.item()
        del loss
        return value

    print(f"{program.name}: {label}", file=sys.stderr, flush=True)
    for parameter in program.model.parameters():
        parameter.grad = None
    row = StepRow(program.name, label, resident_bytes(), budget)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (row.compiled_s,) = timed(step, "cpu", 0, 1)
            for _ in range(3):
                row.loss = step()
        for parameter in program.model.parameters():
            parameter.grad = None
        row.peak = true_peak(step)
    except remat.BudgetError as error:
        row.failure = f"needs {error.smallest / MIB:.1f} MiB"
    except Exception as error:
        if budget is None:
            raise
        cause = _budget_error(error)
        row.failure = f"needs {cause.smallest / MIB:.1f} MiB" if cause else f"{type(error).__name__}: {error}"[:200]
    return _Peer(row, step)


def _budget_error(error: BaseException | None) -> remat.BudgetError | None:
    while error is not None:
        if isinstance(error, remat.BudgetError):
            return error
        error = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
    return None


def _compare(rows: list[StepRow]) -> None:
    wanted = rows[0].loss
    assert wanted is not None
    for row in rows:
        row.same_loss = row.loss is None or math.isclose(row.loss, wanted, rel_tol=TOLERANCE)
    budgeted = [row for row in rows if row.budget is not None and row.peak is not None]
    for larger, smaller in itertools.pairwise(budgeted):
        assert larger.peak is not None and smaller.peak is not None
        smaller.monotone = smaller.peak <= larger.peak + SCALARS


class PointwiseBlock(nn.Module):
    """One product of matrices and many cheap ops."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.linear(self.norm(x)))
        return x + self.scale * torch.tanh(y) * torch.sigmoid(2 * y)


class Acquisition(nn.Module):
    """Monte-Carlo expected improvement of batches, smoothed: all draws of all candidates are broadcast."""

    def __init__(self, candidates: int, together: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(candidates, together))
        self.deviation = nn.Parameter(torch.rand(candidates, together))

    def forward(self, draws: Tensor) -> Tensor:
        samples = self.mean[:, None] + self.deviation[:, None] * draws
        gain = (samples - 1.0) / 0.1
        smooth = torch.where(gain > 0, gain + (-gain.abs()).exp().log1p(), gain.exp().log1p()) * 0.1
        best = (smooth * torch.sigmoid(4 * gain) * (1 + 0.1 * torch.tanh(gain))).sum(-1)
        return (best.mean(1) + 1e-6).log()


class Cosines(nn.Module):
    """The cosine of the cosine of a sum of four: the example `f1` of the min-cut paper's section 2.3."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.terms = nn.ParameterList(torch.randn(size) for _ in range(4))

    def forward(self, scale: Tensor) -> Tensor:
        a, b, c, d = self.terms
        return (a + b + c + d).cos().cos() * scale


class Gelu(nn.Module):
    """GELU written out in fifteen ops or so, as in the min-cut paper's section 2.2."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.randn(size))

    def forward(self, scale: Tensor) -> Tensor:
        x = self.x
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x))) * scale


def cosines(quick: bool) -> Program:
    """No blocks: the checkpoint is around all of it."""
    size = 2**12 if quick else 2**22
    return Program(f"cos(cos(a + b + c + d)), {size}", Cosines(size), (torch.ones(1),), lambda model: [model])


def gelu(quick: bool) -> Program:
    """No blocks: the checkpoint is around all of it."""
    size = 2**12 if quick else 2**22
    return Program(f"GELU written out, {size}", Gelu(size), (torch.ones(1),), lambda model: [model])


def pointwise(quick: bool) -> Program:
    """Blocks of mostly cheap ops."""
    rows, width, depth = (256, 64, 2) if quick else (4096, 256, 6)
    model = nn.Sequential(*(PointwiseBlock(width) for _ in range(depth)))
    inputs = (torch.randn(rows, width),)
    return Program(f"pointwise, {depth} blocks, {rows} x {width}", model, inputs, lambda model: list(model))


def acquisition(quick: bool) -> Program:
    """No blocks: the checkpoint is around all of it."""
    candidates, draws, together = (32, 64, 4) if quick else (512, 512, 8)
    name = f"acquisition, {candidates} x {draws} x {together}"
    inputs = (torch.randn(draws, together),)
    return Program(name, Acquisition(candidates, together), inputs, lambda model: [model])


def gpt2(quick: bool) -> Program:
    """GPT-2, narrow, without dropout so that losses can be compared."""
    from transformers import GPT2Config, GPT2Model

    depth, batch, length, width = (1, 2, 16, 48) if quick else (4, 8, 128, 192)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=length, n_embd=width, n_layer=depth, n_head=6)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    config.use_cache = False
    inputs = (torch.randint(VOCABULARY, (batch, length)),)
    name = f"GPT-2, {depth} blocks, width {width}, {batch} x {length}"
    return Program(name, GPT2Model(config), inputs, lambda model: list(model.h))


def resnet18(quick: bool) -> Program:
    """ResNet-18 for small images."""
    from torchvision.models import resnet18 as made

    batch, side = (2, 32) if quick else (32, 96)

    def blocks(model: nn.Module) -> list[nn.Module]:
        return [block for k in range(1, 5) for block in getattr(model, f"layer{k}")]

    name = f"ResNet-18, {batch} x 3 x {side} x {side}"
    return Program(name, made(num_classes=10), (torch.randn(batch, 3, side, side),), blocks)


PROGRAMS: dict[str, Callable[[bool], Program]] = {
    "pointwise": pointwise,
    "acquisition": acquisition,
    "cosines": cosines,
    "gelu": gelu,
    "gpt2": gpt2,
    "resnet18": resnet18,
}


def program(name: str, quick: bool) -> Program:
    """A program by its name, in training mode."""
    torch.manual_seed(0)
    made = PROGRAMS[name](quick)
    made.model.train()
    return made
