"""The largest input that trains within a fixed budget: plain eager against Remat.

    python benchmarks/largest.py [--models NAMES] [--share PART] [--steps N] [--json FILE] [--quick]

The budget of a model is the true peak of a step of plain eager at the first of its sizes, which is the largest size
that plain eager can train there. Remat then trains ever larger inputs within these very bytes, as table 1 of the DTR
paper does: batches of a ResNet, a Transformer and a U-Net, complete binary trees of a TreeLSTM. With `--share 0.4` the
budget is 40% of what plain eager takes, for each size anew.

A size fits if its steps end within the budget, with losses that are plain eager's bit for bit, and recompute less than
the step itself takes (the paper gives up at twice the time as well). The exit code is 1 if a loss differs in one bit or
a true peak exceeds its budget.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import thread_time

import remat
import torch
import torch.nn.functional as F
from timing import cell, heading, keep_freed_blocks, line
from torch import Tensor, nn
from true_peak import true_peak

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from data import digits, photographs, random_crops, random_windows, source_text
from gpt import GPT
from resnet import ResNet
from treelstm import Tree, TreeLSTM
from unet import UNet

MIB = 2**20


@dataclass
class Subject:
    """A model, and its loss on an input of a given size."""

    name: str
    unit: str
    model: nn.Module
    loss_of: Callable[[int], Tensor]
    sizes: list[int]
    """The sizes tried, ascending; plain eager's step of the first one sets the budget."""
    samples: Callable[[int], int] = lambda size: size
    """The samples, or nodes, of an input of a size."""


@dataclass
class Row:
    """A size, trained in one way."""

    subject: str
    unit: str
    size: int
    samples: int
    budget: int
    eager_peak: int
    eager_ms: float
    peak: int | None
    ms: float | None
    evictions: float | None
    recomputed: float | None
    refusal: str | None
    same_losses: bool | None

    def broken(self) -> str | None:
        """The promise of Remat that was broken here, if any."""
        if self.same_losses is False:
            return f"{self.subject}, {self.size}: the losses differ from plain eager's"
        if self.peak is not None and self.peak > self.budget:
            return f"{self.subject}, {self.size}: the true peak of {self.peak} exceeds the budget of {self.budget}"
        return None


def resnet(depth: int, sizes: list[int], width: int = 8) -> Subject:
    """The ResNet of the examples on images of 32 x 32; `depth` 200 makes it ResNet-1202."""
    torch.manual_seed(0)
    images, labels = digits(32)
    model = ResNet(depth, width)
    name = f"ResNet-{6 * depth + 2}, width {width}"
    return Subject(name, "batch", model, lambda n: F.cross_entropy(model(images[:n]), labels[:n]), sizes)


def transformer(sizes: list[int], width: int = 128, context: int = 256) -> Subject:
    """The GPT of the examples, with its dropout, on windows of text."""
    torch.manual_seed(0)
    model = GPT(depth=4, width=width, heads=4, context=context)
    text, target = random_windows(source_text(), sizes[-1], context)

    def loss_of(batch: int) -> Tensor:
        return F.cross_entropy(model(text[:batch]).flatten(0, 1), target[:batch].flatten())

    return Subject(f"Transformer, 4 blocks, {context} bytes", "batch", model, loss_of, sizes)


def unet(sizes: list[int], width: int = 16, side: int = 64) -> Subject:
    """The U-Net of the examples on crops of photographs."""
    torch.manual_seed(0)
    model = UNet(3, width)
    clean = random_crops(photographs(), sizes[-1], side)
    noisy = clean + 0.2 * torch.randn_like(clean)
    return Subject(f"U-Net, {side} x {side}", "batch", model, lambda n: F.mse_loss(model(noisy[:n]), clean[:n]), sizes)


class Batched(TreeLSTM):
    """The TreeLSTM of the examples on many trees of one shape at once: states are matrices (rows, width)."""

    def __init__(self, width: int, rows: int) -> None:
        super().__init__(width)
        self.rows = rows

    def encode(self, tree: Tree) -> tuple[Tensor, Tensor]:
        x = self.syntax.weight[tree.syntax].expand(self.rows, -1)
        below = kept = x.new_zeros(self.rows, self.width)
        if tree.children:
            hidden, memory = (torch.stack(states) for states in zip(*map(self.encode, tree.children), strict=True))
            forget = torch.sigmoid(self.forget_input(x) + self.forget_state(hidden))
            below, kept = hidden.sum(0), (forget * memory).sum(0)
        update_gate, output_gate, candidate = self.gates(torch.cat([x, below], -1)).chunk(3, -1)
        c = torch.sigmoid(update_gate) * torch.tanh(candidate) + kept
        return torch.sigmoid(output_gate) * torch.tanh(c), c


def treelstm(sizes: list[int], width: int = 64, rows: int = 128) -> Subject:
    """A TreeLSTM on complete binary trees of a depth, whose nodes are matrices, as those of the paper are."""
    torch.manual_seed(0)
    model = Batched(width, rows)
    labels = torch.arange(rows) % 2
    return Subject(
        f"TreeLSTM, nodes of {rows} x {width}",
        "depth",
        model,
        lambda depth: F.cross_entropy(model(complete_tree(depth)), labels),
        sizes,
        lambda depth: 2**depth - 1,
    )


def complete_tree(depth: int) -> Tree:
    """A complete binary tree of that many levels."""
    children = (complete_tree(depth - 1), complete_tree(depth - 1)) if depth > 1 else ()
    return Tree(depth, children, 2**depth - 1)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "resnet1202": lambda: resnet(200, [2, 3, 4, 6, 8]),
    "transformer": lambda: transformer([4, 8, 12, 16, 20, 24]),
    "unet": lambda: unet([4, 5, 6, 8, 10, 12, 14, 16]),
    "treelstm": lambda: treelstm([6, 7, 8, 9, 10]),
}
QUICK: dict[str, Callable[[], Subject]] = {
    "resnet1202": lambda: resnet(1, [16, 24]),
    "transformer": lambda: transformer([1, 2], width=16, context=32),
    "unet": lambda: unet([4, 5], width=4, side=32),
    "treelstm": lambda: treelstm([3, 4], width=8, rows=16),
}


def rows_of(subject: Subject, share: float | None, steps: int) -> Iterator[Row]:
    """The sizes one after another, to the first that does not fit; with a share all of them."""
    budget = 0
    for size in subject.sizes:
        start = {name: tensor.clone() for name, tensor in subject.model.state_dict().items()}
        peak, ms, losses = plainly(subject, size, steps)
        subject.model.load_state_dict(start)
        budget = int(share * peak) if share is not None else budget or peak
        row = within(subject, size, budget, steps, losses)
        subject.model.load_state_dict(start)
        row.eager_peak, row.eager_ms = peak, ms
        yield row
        if row.refusal and share is None:
            return


def plainly(subject: Subject, size: int, steps: int) -> tuple[int, float, list[str]]:
    """The true peak of plain eager, the milliseconds of a step, and the losses."""
    losses: list[str] = []
    seconds = trained(subject, size, steps, losses)
    return true_peak(lambda: trained(subject, size, 1, [])), 1e3 * median(seconds), losses


def within(subject: Subject, size: int, budget: int, steps: int, plain: list[str]) -> Row:
    """The same steps within a budget; those of a second run with the allocator's events."""
    row = Row(subject.name, subject.unit, size, subject.samples(size), budget, 0, 0.0, *[None] * 6)
    losses: list[str] = []

    def budgeted(steps: int, losses: list[str]) -> tuple[list[float], remat.Stats]:
        with remat.budget(budget, thrash_limit=1.0) as run:
            seconds = trained(subject, size, steps, losses)
        return seconds, run.stats()

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds, stats = budgeted(steps, losses)
            row.same_losses = losses == plain
            row.ms = 1e3 * median(seconds[1:] or seconds)
            row.evictions, row.recomputed = stats.evictions / steps, stats.recomputed / steps
            row.peak = true_peak(lambda: budgeted(1, []))
    except remat.RematError as error:
        row.refusal = str(error)
        row.ms = row.evictions = row.recomputed = None
    forget(subject)
    return row


def trained(subject: Subject, size: int, steps: int, losses: list[str]) -> list[float]:
    """Seconds of processor time of each step: forward, backward and gradient descent. Other programs do not count."""
    forget(subject)
    torch.manual_seed(0)
    seconds = []
    for _ in range(steps):
        began = thread_time()
        loss = subject.loss_of(size)
        loss.backward()
        with torch.no_grad():
            for parameter in subject.model.parameters():
                if parameter.grad is not None:
                    parameter -= 1e-3 * parameter.grad
        losses.append(loss.item().hex())
        del loss
        subject.model.zero_grad()
        seconds.append(thread_time() - began)
    return seconds


def forget(subject: Subject) -> None:
    """Drops what an earlier run left."""
    subject.model.zero_grad()
    gc.collect()


def shown(row: Row) -> str:
    """A line of the table."""
    slower = row.ms / row.eager_ms if row.ms else None
    why = "" if row.refusal is None else "thrashes" if "thrash" in row.refusal else "refused"
    return line(
        [
            row.subject,
            f"{row.unit} {row.size}",
            f"{row.eager_peak / MIB:.1f}",
            "yes" if row.eager_peak <= row.budget else "no",
            f"{row.budget / MIB:.1f}",
            cell(row.peak and row.peak / MIB, ".1f") or why,
            cell(row.eager_ms, ".0f"),
            cell(row.ms, ".0f"),
            cell(slower, ".2f"),
            cell(row.recomputed, ".0f"),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", default=",".join(SUBJECTS), help="names, with commas between them")
    parser.add_argument("--share", type=float, help="budgets as a part of plain eager's peak at each size")
    parser.add_argument("--steps", type=int, default=4, help="steps of a run; the first is not timed within budgets")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument(
        "--quick", action="store_true", help="tiny models: shows that the command works, measures nothing"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    subjects = QUICK if args.quick else SUBJECTS
    if unknown := set(args.models.split(",")) - set(subjects):
        parser.error(f"no model {min(unknown)}; there are {', '.join(subjects)}")
    titles = ["model", "input", "eager peak MiB", "eager fits", "budget MiB", "Remat's true peak MiB", "eager ms"]
    print(heading([*titles, "Remat ms", "Remat / eager", "ops again a step"], texts=2), flush=True)
    rows: list[Row] = []
    for name in args.models.split(","):
        for row in rows_of(subjects[name](), args.share, args.steps):
            print(shown(row), flush=True)
            rows.append(row)
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    broken = [said for row in rows if (said := row.broken())]
    print("\n".join(broken), file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    keep_freed_blocks()
    main()
