"""Time of training on batches of ever new shapes: sentences, series, graphs, images and masks as they come.

    python benchmarks/varied.py [--models NAMES] [--rounds 3] [--steps 80] [--seed 0] [--threads 1] [--quick]

Each program draws the sizes of each batch, or what it picks of one, so that most are new to Remat; those of the last
program are of four lengths. It runs plainly, in an ample budget (twice the peak), and in budgets of base + 70% and 45%
of (peak - base): base is what is there between two steps, peak is plain eager's true peak. Each runs in a process of
its own, without plans of earlier runs, in turn for some rounds. Times are the thread's processor time in the second
half of the steps, over that of plain eager on the same batches, and medians of the rounds. The exit code is 1 if losses
differ or a peak exceeds its budget.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from statistics import median
from time import thread_time
from typing import Any

import remat
import torch
from timing import heading, line
from torch import Tensor, nn
from torch.nn import functional as F
from true_peak import resident_bytes, true_peak

MIB = 2**20

#: A model, and the loss of one more batch.
Program = tuple[nn.Module, Callable[[random.Random], Tensor]]


def _sentences(kind: str, whole: int = 1, **config: Any) -> Program:
    """Sentences of 16 to 128 tokens, padded to a whole multiple of some."""
    import transformers

    model = getattr(transformers, kind)(getattr(transformers, config.pop("config"))(**config))

    def loss(draw: random.Random) -> Tensor:
        length = -(-draw.randint(16, 128) // whole) * whole
        tokens = torch.randint(0, 500, (4, length))
        found: Tensor = model(input_ids=tokens, labels=tokens).loss
        return found

    return model, loss


_SMALL = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}


def bert() -> Program:
    """BERT on sentences of 16 to 128 tokens."""
    return _sentences("BertForMaskedLM", config="BertConfig", intermediate_size=256, **_SMALL)


def llama() -> Program:
    """Llama on sentences of 16 to 128 tokens."""
    return _sentences("LlamaForCausalLM", config="LlamaConfig", intermediate_size=128, **_SMALL)


def padded() -> Program:
    """The same Llama on sentences that are padded to 32, 64, 96 or 128 tokens."""
    return _sentences("LlamaForCausalLM", whole=32, config="LlamaConfig", intermediate_size=128, **_SMALL)


def translation() -> Program:
    """T5 on pairs of sentences, each of a length of its own."""
    import transformers

    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 256, "num_layers": 3, "num_heads": 4}
    config = transformers.T5Config(vocab_size=512, decoder_start_token_id=0, **sizes)
    model = transformers.T5ForConditionalGeneration(config)

    def loss(draw: random.Random) -> Tensor:
        source = torch.randint(1, 500, (4, draw.randint(16, 128)))
        target = torch.randint(1, 500, (4, draw.randint(8, 64)))
        found: Tensor = model(input_ids=source, labels=target).loss
        return found

    return model, loss


def series() -> Program:
    """Convolutions and a linear layer over series of 200 to 2,000 numbers."""
    layers = [nn.Sequential(nn.Conv1d(32, 32, 5, padding=2), nn.GroupNorm(4, 32), nn.GELU()) for _ in range(6)]
    model = nn.Sequential(nn.Conv1d(4, 32, 1), *layers, nn.Conv1d(32, 4, 1))

    def loss(draw: random.Random) -> Tensor:
        x = torch.randn(4, 4, draw.randint(200, 2000))
        return F.mse_loss(model(x), x)

    return model, loss


class Convolution(nn.Module):
    """Sums over the neighbours in a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.others = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        sums = torch.zeros_like(x).index_add(0, edges[1], x.index_select(0, edges[0]))
        return F.relu(self.own(x) + self.others(sums))


def graphs() -> Program:
    """Five convolutions over graphs of 400 to 4,000 nodes and three times as many edges."""
    model = nn.ModuleList([Convolution() for _ in range(5)])

    def loss(draw: random.Random) -> Tensor:
        nodes = draw.randint(400, 4000)
        x, edges = torch.randn(nodes, 64), torch.randint(0, nodes, (2, 3 * nodes))
        for layer in model:
            x = layer(x, edges)
        return x.square().mean()

    return model, loss


class UNet(nn.Module):
    """Two levels down and up again."""

    def __init__(self) -> None:
        super().__init__()
        ends = [(3, 16), (16, 32), (32, 64), (96, 32), (48, 16)]
        self.blocks = nn.ModuleList([nn.Sequential(*_conv(i, o), *_conv(o, o)) for i, o in ends])
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.blocks[0](x)
        b = self.blocks[1](F.max_pool2d(a, 2))
        c = self.blocks[2](F.max_pool2d(b, 2))
        b = self.blocks[3](torch.cat([F.interpolate(c, size=b.shape[-2:]), b], 1))
        found: Tensor = self.out(self.blocks[4](torch.cat([F.interpolate(b, size=a.shape[-2:]), a], 1)))
        return found


def _conv(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


def images() -> Program:
    """A U-Net on images of 48 to 160 pixels each way."""
    model = UNet()

    def loss(draw: random.Random) -> Tensor:
        height, width = draw.randint(12, 40) * 4, draw.randint(12, 40) * 4
        labels = torch.randint(0, 2, (2, height, width))
        return F.cross_entropy(model(torch.randn(2, 3, height, width)), labels)

    return model, loss


def masked() -> Program:
    """BERT on sentences of 128 tokens, and its loss at those alone that were masked: each time others."""
    import transformers

    model = transformers.BertModel(transformers.BertConfig(intermediate_size=256, **_SMALL), add_pooling_layer=False)
    head = nn.Linear(64, 512)

    def loss(draw: random.Random) -> Tensor:
        tokens = torch.randint(0, 500, (4, 128))
        hidden = torch.rand(4, 128) < 0.15
        found = model(input_ids=tokens.masked_fill(hidden, 511)).last_hidden_state
        return F.cross_entropy(head(found[hidden]), tokens[hidden])

    return nn.ModuleList([model, head]), loss


class Experts(nn.Module):
    """Eight layers of which each token takes two."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(64, 8)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)) for _ in range(8))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2)
        sums = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            tokens, places = torch.where(chosen == at)
            sums = sums.index_add(0, tokens, expert(x[tokens]) * weights[tokens, places, None])
        return x + sums


def experts() -> Program:
    """Four layers of experts on 2,000 tokens, which a router shares out among them."""
    model = nn.Sequential(*(Experts() for _ in range(4)))

    def loss(draw: random.Random) -> Tensor:
        x = torch.randn(2000, 64)
        return F.mse_loss(model(x), x.roll(1, 0))

    return model, loss


PROGRAMS: dict[str, Callable[[], Program]] = {
    build.__name__: build for build in (bert, llama, translation, series, graphs, images, masked, experts, padded)
}
WAYS = {"plain": None, "ample": 2.0, "70%": 0.7, "45%": 0.45}


@dataclass
class Seen:
    """One way of one program; bytes and seconds."""

    base: int = 0
    peak: int = 0
    seconds: list[float] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    refusal: str | None = None
    through_python: int = 0


def run(name: str, steps: int, seed: int, budget: int | None) -> Seen:
    """Trains in this process."""
    torch.manual_seed(seed)
    model, loss = PROGRAMS[name]()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    seen = Seen()

    def step(draw: random.Random) -> str:
        optimizer.zero_grad()
        value = loss(draw)
        value.backward()
        optimizer.step()
        return value.item().hex()

    def train(told: Seen) -> None:
        torch.manual_seed(seed)
        draw = random.Random(seed)
        for _ in range(steps):
            began = thread_time()
            told.losses.append(step(draw))
            told.seconds.append(thread_time() - began)

    # The state of the optimizer is there from the first step on, as it is in between any others.
    step(random.Random(seed))
    optimizer.zero_grad()
    gc.collect()
    seen.base = resident_bytes("cpu")
    if budget is None:
        train(seen)
        seen.peak = true_peak(lambda: train(Seen()), "cpu")
        return seen
    try:
        with remat.budget(budget) as session:
            train(seen)
    except remat.BudgetError as error:
        seen.refusal = str(error)
    seen.peak, seen.through_python = session.stats().peak, session.stats().through_python
    return seen


def run_apart(name: str, options: argparse.Namespace, budget: int | None) -> Seen:
    """Trains in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(budget or 0), "--steps", str(options.steps)]
    command += ["--seed", str(options.seed), "--threads", str(options.threads)]
    environment = {**os.environ, "REMAT_CACHE": "off"}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return Seen(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(PROGRAMS), help="with commas between")
    parser.add_argument("--rounds", type=int, default=3, help="of each way (default 3)")
    parser.add_argument("--steps", type=int, default=80, help="of each run (default 80)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and sizes (default 0)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--quick", action="store_true", help="ten steps of one program")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "BYTES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.one:
        name, budget = options.one
        print(json.dumps(asdict(run(name, options.steps, options.seed, int(budget) or None))))
        return 0
    names = options.models.split(",")
    if options.quick:
        names, options.steps, options.rounds = ["graphs"], 10, 1
    if unknown := set(names) - set(PROGRAMS):
        parser.error(f"{min(unknown)!r} is no model: expected {', '.join(PROGRAMS)}")
    if options.steps < 2 or options.rounds < 1:
        parser.error(f"--steps {options.steps} --rounds {options.rounds}: at least 2 steps and a round")
    run_as = f"seed {options.seed}, {options.rounds} rounds of {options.steps} steps, {options.threads} threads"
    print(f"{run_as}, torch {torch.__version__}\n")
    columns = ["program", "base MiB", "peak MiB", "ms / step", *list(WAYS)[1:], "calls through Python / step, 70%"]
    print(heading(columns))
    return max([row(name, options) for name in names])


def row(name: str, options: argparse.Namespace) -> int:
    """Prints the row of a program; returns 1 if it broke a promise."""
    half = options.steps // 2
    plain = Seen()
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    refused: dict[str, str] = {}
    broken, through_python = 0, 0.0
    for _ in range(options.rounds):
        for way, share in WAYS.items():
            if share is None:
                plain = run_apart(name, options, None)
                times[way].append(sum(plain.seconds[half:]))
                continue
            if way in refused:
                continue
            budget = plain.base + int(share * (plain.peak - plain.base))
            seen = run_apart(name, options, budget)
            if seen.peak > budget or seen.losses != plain.losses[: len(seen.losses)]:
                print(f"{name} {way}: other losses, or a peak above the budget", file=sys.stderr)
                broken = 1
            if seen.refusal:
                print(f"{name} {way}: {seen.refusal}", file=sys.stderr)
                refused[way] = seen.refusal
            else:
                times[way].append(sum(seen.seconds[half:]) / times["plain"][-1])
            if way == "70%":
                through_python = seen.through_python / options.steps
    milliseconds = 1e3 * median(times["plain"]) / (options.steps - half)
    cells = ["refused" if way in refused else f"{median(times[way]):.2f}" for way in list(WAYS)[1:]]
    of_plain = [f"{plain.base / MIB:.1f}", f"{plain.peak / MIB:.1f}", f"{milliseconds:.1f}"]
    print(line([name, *of_plain, *cells, f"{through_python:.0f}"]), flush=True)
    return broken


if __name__ == "__main__":
    sys.exit(main())
