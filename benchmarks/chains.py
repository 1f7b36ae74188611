"""Time against true peak for chains: plain, `checkpoint_sequential`, plans by strategy, and `remat.budget`.

    python benchmarks/chains.py [--quick] [--rounds N] [--models resnet50,resnet101,densenet,transformer]
        [--ways revolve,persistent,floating,online,planned] [--json FILE]

`remat.budget` runs online, and planned: by a plan of the whole step that it made in a run before.

All runs of a model take turns in one process, in an order that is reversed every round; times are medians of the
processor time of a step (forward, backward), peaks are the allocator's (`true_peak.py`), taken in runs of their own.
Plans get the peaks of `checkpoint_sequential` and shares of plain's as budgets. At the end stands the throughput gained
over each `checkpoint_sequential` point at its peak, and what would be gained if a step took no longer than the least
that any schedule of its ops recomputes. The exit code is 1 if a loss differs from plain's or a peak exceeds its budget.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from math import isqrt
from pathlib import Path
from statistics import geometric_mean, median
from time import process_time

import remat
import torch
import torch.nn.functional as F
from speed import MIB, machine, table
from timing import cell, in_turn, keep_freed_blocks, timed
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential
from true_peak import resident_bytes, true_peak
from workloads import GPT

STRATEGIES = ("revolve", "persistent", "floating")
WAYS = (*STRATEGIES, "online", "planned")
#: Steps within a budget before those that are timed: workspaces and costs are known by then, and a plan is followed.
WARMUP = 4
#: Steps after which nobody waits for a plan any more, and steps as planned after which its trial is over.
PATIENCE, SETTLED = 200, 30
SHARES = (0.7, 0.35)


@dataclass
class Contender:
    """One way to run a chain, and what was seen of it."""

    label: str
    step: Callable[[], float] | None
    budget: int | None = None
    #: What `remat.budget` is given as its plan; ``None`` for runs outside of it.
    plan: str | None = None
    #: The least time that any schedule takes, over that of the step's ops.
    least: float | None = None
    peak: int | None = None
    seconds: list[float] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    failure: str | None = None


@dataclass
class Row:
    """A contender's row; bytes and milliseconds."""

    model: str
    label: str
    budget: int | None
    peak: int | None
    ms_per_step: float | None
    time_over_plain: float | None
    least_over_plain: float | None
    failure: str | None


def main() -> int:
    """Measures, prints, and answers with the exit code."""
    args = arguments()
    keep_freed_blocks()
    # Plans of earlier runs would be followed.
    os.environ["REMAT_CACHE"] = "off"
    torch.set_num_threads(args.threads)
    print("machine: " + ", ".join(f"{name} {value}" for name, value in machine("cpu").items()), flush=True)
    rows: list[Row] = []
    gains: dict[str, list[float]] = {}
    broken = 0
    for name, chain, x in models(args.models.split(","), args.quick):
        with tempfile.TemporaryDirectory() as folder:
            contenders = measured(chain, x, args.rounds, args.steps, args.ways, Path(folder))
        shown = [row(name, contender, contenders[0]) for contender in contenders]
        print(f"\n### {name}: {len(chain)} stages\n\n{rows_table(shown)}", flush=True)
        for way in ("persistent", "planned"):
            found = gains_over_periodic(contenders, way)
            if not found:
                continue
            mean, possible = (geometric_mean(values) - 1 for values in zip(*found, strict=True))
            gains.setdefault(way, []).extend(gain for gain, _ in found)
            print(f"\nThroughput over checkpoint_sequential, {way}:")
            print(f"at the peak of its fastest point {found[0][0] - 1:+.1%}", flush=True)
            print(f"on average over the peaks of all its points {mean:+.1%}", flush=True)
            if way == "planned":
                print(f"if steps took no longer than the bound {possible:+.1%}", flush=True)
        print(f"\n{smallest_peaks(contenders)}", flush=True)
        rows += shown
        for contender in contenders:
            wrong = contender.losses and set(contender.losses) != set(contenders[0].losses)
            over = contender.peak and contender.budget and contender.peak > contender.budget
            if wrong or over:
                broken += 1
                print(f"{name}, {contender.label}: {'another loss' if wrong else 'above its budget'}", file=sys.stderr)
        del contenders, chain, x
        gc.collect()
    for way, found in gains.items():
        print(f"\nMean over all points of all models, {way}: {geometric_mean(found) - 1:+.1%}")
    if args.json:
        args.json.write_text("".join(json.dumps(asdict(each)) + "\n" for each in rows))
    return 1 if broken else 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small models: no measurement")
    parser.add_argument("--rounds", type=int, default=3, help="turns of every run")
    parser.add_argument("--steps", type=int, default=2, help="steps under the clock in a turn, after one that is not")
    parser.add_argument("--threads", type=int, default=1, help="torch.set_num_threads")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument(
        "--ways", type=ways_of, default=list(WAYS), help=f"beside checkpoint_sequential, of {', '.join(WAYS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every row as a line of JSON")
    return parser.parse_args()


def ways_of(text: str) -> list[str]:
    """The ways of a comma-separated list."""
    ways = text.split(",")
    for way in ways:
        if way not in WAYS:
            raise argparse.ArgumentTypeError(f"{way!r}: expected one of {', '.join(WAYS)}")
    return ways


class DenseLayer(nn.Module):
    """Batch norm, ReLU and two convolutions; what went in comes out with the new channels beside it."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)


def densenet(layers: int, growth: int) -> nn.Sequential:
    """DenseNet-BC (Huang et al. 2017) with three blocks, for images of one channel."""
    parts: list[nn.Module] = [nn.Conv2d(1, 2 * growth, 3, 1, 1, bias=False)]
    width = 2 * growth
    for block in range(3):
        for _ in range(layers):
            parts.append(DenseLayer(width, growth))
            width += growth
        if block < 2:
            squeeze = nn.Conv2d(width, width // 2, 1, bias=False)
            parts.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), squeeze, nn.AvgPool2d(2)))
            width //= 2
    return nn.Sequential(*parts, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)))


class Bottleneck(nn.Module):
    """The block of ResNet-50 and deeper (He et al. 2016): 1x1, 3x3 and 1x1 convolutions around a skip connection."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != 4 * width:
            conv = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class BottleneckResNet(nn.Module):
    """ResNet-50 is ``(3, 4, 6, 3)``, ResNet-101 ``(3, 4, 23, 3)``; width 64 there."""

    def __init__(self, layers: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList()
        inputs = width
        for group, count in enumerate(layers):
            for block in range(count):
                self.blocks.append(Bottleneck(inputs, width << group, 2 if group and not block else 1))
                inputs = 4 * (width << group)
        self.head = nn.Linear(inputs, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        for block in self.blocks:
            y = block(y)
        return self.head(y.mean((2, 3)))


def models(names: list[str], quick: bool) -> Iterator[tuple[str, nn.Sequential, Tensor]]:
    """Chains and batches, one after the other so that only one is resident."""
    for name in names:
        torch.manual_seed(0)
        yield MODELS[name](quick)


def resnet(depth: int, quick: bool) -> tuple[str, nn.Sequential, Tensor]:
    """ResNet-50 or -101 at a quarter of its width, for small images."""
    layers = (1, 1, 1, 1) if quick else (3, 4, 23 if depth == 101 else 6, 3)
    side = 16 if quick else 48
    x = torch.randn(8, 3, side, side)
    model = BottleneckResNet(layers, 16)
    return f"ResNet-{depth}, width 16, 8 x 3 x {side} x {side}", remat.chain_of(model, x), x


def dense(quick: bool) -> tuple[str, nn.Sequential, Tensor]:
    """DenseNet-BC with growth rate 12."""
    layers = 3 if quick else 12
    return f"DenseNet-BC, {3 * layers} layers, 16 x 1 x 32 x 32", densenet(layers, 12), torch.randn(16, 1, 32, 32)


def transformer(quick: bool) -> tuple[str, nn.Sequential, Tensor]:
    """The GPT example."""
    blocks = 2 if quick else 12
    x = torch.randint(256, (8, 128))
    model = GPT(blocks, 96, heads=4, context=128)
    return f"GPT, {blocks} blocks, 96 wide, 8 x 128 bytes", remat.chain_of(model, x), x


MODELS: dict[str, Callable[[bool], tuple[str, nn.Sequential, Tensor]]] = {
    "resnet50": lambda quick: resnet(50, quick),
    "resnet101": lambda quick: resnet(101, quick),
    "densenet": dense,
    "transformer": transformer,
}


def measured(
    chain: nn.Sequential, x: Tensor, rounds: int, steps: int, ways: list[str], folder: Path
) -> list[Contender]:
    """Plain first; then all others, with what was seen of each. Plans are kept in a folder meanwhile."""
    plain = Contender("plain", stepper(chain, chain, x))
    observe_peak(plain)
    base = resident_bytes()
    assert plain.peak is not None
    most = max(2, 2 * isqrt(len(chain)))
    contenders = [plain]
    for segments in sorted({2, 3, most // 2, most} if most > 3 else {2}):
        label = f"checkpoint_sequential, {segments} segments"
        run = lambda x, count=segments: checkpoint_sequential(chain, count, x, use_reentrant=False)  # noqa: E731
        contenders.append(Contender(label, stepper(chain, run, x)))
        observe_peak(contenders[-1])
    points = [(f"at {it.label.split(', ')[1]}", it.peak) for it in contenders[1:] if it.peak is not None]
    points += [(f"{share:.0%}", base + int(share * (plain.peak - base))) for share in SHARES]
    strategies = [way for way in ways if way in STRATEGIES]
    for label, budget in points:
        contenders += [chained(f"{strategy} {label}", chain, x, budget, strategy) for strategy in strategies]
    least = {strategy: smallest(chain, x, strategy) for strategy in strategies}
    contenders += [chained(f"{name}, its smallest", chain, x, budget, name) for name, budget in least.items()]
    if least:
        points.append(("at the smallest of these", min(least.values())))
    for label, budget in points:
        if "online" in ways:
            contenders.append(online(f"online {label}", chain, x, budget))
        if "planned" in ways:
            contenders.append(planned(f"planned {label}", chain, x, budget, folder / f"{len(contenders)}.json"))
    for turn in range(rounds):
        for contender in in_turn(contenders, turn):
            observe_time(contender, steps)
    return contenders


def chained(label: str, chain: nn.Sequential, x: Tensor, budget: int, strategy: str) -> Contender:
    """A plan of a chain's stages by a strategy, its peak seen; where the budget is too small for it, why."""
    try:
        model = remat.Checkpointable(chain, x, budget, strategy=strategy, loss=loss_of)
    except remat.BudgetError as error:
        return Contender(label, None, budget, failure=f"needs {error.smallest / MIB:.1f} MiB")
    contender = Contender(label, stepper(chain, model, x), budget)
    observe_peak(contender)
    return contender


def online(label: str, chain: nn.Sequential, x: Tensor, budget: int) -> Contender:
    """The online engine, its peak seen."""
    contender = Contender(label, stepper(chain, chain, x), budget, plan="off")
    observe_peak(contender)
    return contender


def planned(label: str, chain: nn.Sequential, x: Tensor, budget: int, file: Path) -> Contender:
    """The engine by a plan of the whole step, its peak seen; online where it has no use for a plan, as for users."""
    contender = Contender(label, stepper(chain, chain, x), budget, plan="off")
    try:
        with remat.budget(budget, plan_out=file) as run:
            for _ in range(PATIENCE):
                contender.losses.append(contender.step().hex())
                plan = run.stats().plan
                if plan and (plan.given_up or plan.hopeless or plan.steps >= SETTLED):
                    break
    except remat.BudgetError as error:
        contender.failure = f"needs {error.smallest / MIB:.1f} MiB"
        return contender
    if plan and plan.steps and not plan.given_up and plan.least_overhead is not None:
        contender.plan, contender.least = str(file), 1 + plan.least_overhead
    else:
        contender.label += ", online as no plan is followed"
    observe_peak(contender)
    return contender


def smallest(chain: nn.Sequential, x: Tensor, strategy: str) -> int:
    """The smallest budget that a strategy has a plan for."""
    try:
        remat.Checkpointable(chain, x, 1, strategy=strategy, loss=loss_of)
    except remat.BudgetError as error:
        return error.smallest
    raise AssertionError("a byte does not hold a model")


def loss_of(output: Tensor) -> Tensor:
    """Any loss will do."""
    return output.square().mean()


def stepper(chain: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], float]:
    """A step from the same random state, its gradients thrown away."""

    def step() -> float:
        torch.manual_seed(0)
        loss = loss_of(run(x))
        loss.backward()
        value = loss.item()
        chain.zero_grad()
        return value

    return step


def observe_peak(contender: Contender) -> None:
    """The allocator's peak over some steps, once the same steps were run without the profiler."""
    count = warmup(contender) + 1

    def steps() -> None:
        run_steps(contender, count)

    run_steps(contender, count)
    if contender.failure is None:
        contender.peak = true_peak(steps)


def observe_time(contender: Contender, steps: int) -> None:
    """The median time of a step after those that are not counted."""
    if contender.failure is None:
        gc.collect()
        seconds = run_steps(contender, warmup(contender) + steps)
        if contender.failure is None:
            contender.seconds.append(median(seconds[warmup(contender) :]))


def warmup(contender: Contender) -> int:
    """Steps that are not counted."""
    return 1 if contender.plan is None else WARMUP


def run_steps(contender: Contender, count: int) -> list[float]:
    """Seconds of the processor for each step; entering and leaving a budget is not timed."""
    assert contender.step is not None
    step = contender.step

    def noted() -> None:
        contender.losses.append(step().hex())

    if contender.plan is None:
        return timed(noted, "cpu", warmup=0, repeats=count, clock=process_time)
    assert contender.budget is not None
    try:
        with remat.budget(contender.budget, plan=contender.plan):
            return timed(noted, "cpu", warmup=0, repeats=count, clock=process_time)
    except remat.BudgetError as error:
        contender.failure = f"needs {error.smallest / MIB:.1f} MiB"
        return []


def ratio(contender: Contender, plain: Contender) -> float | None:
    """Median of the times over plain's within a round."""
    if not contender.seconds:
        return None
    return median(mine / theirs for mine, theirs in zip(contender.seconds, plain.seconds, strict=True))


def row(name: str, contender: Contender, plain: Contender) -> Row:
    """The row of a contender."""
    ms = 1e3 * median(contender.seconds) if contender.seconds else None
    over = ratio(contender, plain)
    return Row(name, contender.label, contender.budget, contender.peak, ms, over, contender.least, contender.failure)


def gains_over_periodic(contenders: list[Contender], way: str) -> list[tuple[float, float]]:
    """Throughput of a way over `checkpoint_sequential` within the peaks of its runs, the fastest run first.

    Beside each what it would be if the step took the least time that any schedule takes; without a bound, the same.
    """
    plain = contenders[0]
    periodic = [it for it in contenders if it.label.startswith("checkpoint_sequential") and it.seconds]
    found = []
    for each in sorted(periodic, key=lambda it: ratio(it, plain) or 0.0):
        periodically = ratio(each, plain) or 0.0
        for it in contenders:
            if it.label.startswith(way) and it.budget == each.peak and (mine := ratio(it, plain)):
                found.append((periodically / mine, periodically / (it.least or mine)))
    return found


def smallest_peaks(contenders: list[Contender]) -> str:
    """The smallest peak that each kind of run reached."""
    least: dict[str, int] = {}
    for contender in contenders:
        kind = contender.label.split(" ")[0].rstrip(",")
        if contender.seconds and contender.peak:
            least[kind] = min(least.get(kind, contender.peak), contender.peak)
    return "Smallest peaks, MiB: " + ", ".join(f"{kind} {peak / MIB:.1f}" for kind, peak in least.items())


def rows_table(rows: list[Row]) -> str:
    """A markdown table."""
    header = ["run", "budget MiB", "true peak MiB", "ms / step", "time / plain", "least", ""]
    return table(
        header,
        [
            [
                it.label,
                cell(it.budget and it.budget / MIB, ".1f"),
                cell(it.peak and it.peak / MIB, ".1f"),
                cell(it.ms_per_step, ".1f"),
                cell(it.time_over_plain, ".3f"),
                cell(it.least_over_plain, ".3f"),
                it.failure or "",
            ]
            for it in rows
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
