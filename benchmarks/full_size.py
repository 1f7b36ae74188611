"""Models at the size at which people train them: Remat within the peak that gradient checkpointing reaches.

    python benchmarks/full_size.py [--models NAMES] [--steps 16] [--rounds 1] [--seed 0] [--json FILE] [--quick]

The models are those of `timm` and `transformers`, with random weights, AdamW and random batches. Each runs in four
ways, each in a process of its own: plain; with the package's own switch for gradient checkpointing; plain within a
budget of as many bytes as checkpointing took, and 1 MiB that budgets may keep back; and in an arena of so many bytes.
Peaks are the allocator's, over three steps. The resident set is what the process held of main memory at most, torch's
code and freed blocks that the C library keeps included. Times are those of the processors, for the median of the last
three steps: a plan is followed by then. With more rounds the ways run in turn, and the run with the least such time of
each way is shown: others use the machine too. *Left* counts how often the steps within the budget left their plan. The
exit code is 1 if a loss of Remat's differs from plain's in one bit, a peak exceeds the budget, or one is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import process_time
from typing import Any

import remat
import torch
from timing import cell, heading, line
from torch import Tensor, nn
from true_peak import resident_bytes, true_peak

MIB = 2**20
LAST = 3
WAYS = ("plain", "checkpointing", "budget", "arena")


@dataclass
class Subject:
    """A model, its loss on the batch of a number, and how its package turns checkpointing on."""

    model: nn.Module
    loss: Callable[[int], Tensor]
    checkpoint: Callable[[], object]


@dataclass
class Seen:
    """Times, losses and bytes of a model that ran in one way."""

    way: str
    base: int = 0
    """Bytes resident between steps: parameters and what the optimizer keeps."""
    peak: int = 0
    resident_set: int = 0
    """The most bytes of main memory that the process held until the peak was measured."""
    seconds: list[float] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    budget: int | None = None
    departures: int | None = None
    """How often the timed steps within the budget left their plan."""
    failure: str | None = None
    """The refusal of the budget."""

    @property
    def step(self) -> float | None:
        """Seconds of a late step."""
        return None if self.failure else median(self.seconds[-LAST:])


def _images(name: str, batch: int, side: int = 224) -> Subject:
    import timm

    model = timm.create_model(name).train()

    def loss(number: int) -> Tensor:
        draw = torch.Generator().manual_seed(number)
        images = torch.randn(batch, 3, side, side, generator=draw)
        return nn.functional.cross_entropy(model(images), torch.randint(0, 1000, (batch,), generator=draw))

    return Subject(model, loss, model.set_grad_checkpointing)


def _tokens(kind: str, batch: int, length: int, **config: Any) -> Subject:
    import transformers

    of_kind = getattr(transformers, config.pop("config"))(use_cache=False, **config)
    model = getattr(transformers, kind)(of_kind).train()

    def loss(number: int) -> Tensor:
        draw = torch.Generator().manual_seed(number)
        tokens = torch.randint(0, of_kind.vocab_size, (batch, length), generator=draw)
        return model(input_ids=tokens, labels=tokens).loss

    return Subject(model, loss, lambda: model.gradient_checkpointing_enable({"use_reentrant": False}))


def _speech(batch: int) -> Subject:
    import transformers

    sizes: dict[str, Any] = {"d_model": 384}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_layers": 4, f"{part}_attention_heads": 6, f"{part}_ffn_dim": 1536}
    of_kind = transformers.WhisperConfig(use_cache=False, **sizes)
    model = transformers.WhisperForConditionalGeneration(of_kind).train()

    def loss(number: int) -> Tensor:
        draw = torch.Generator().manual_seed(number)
        sounds = torch.randn(batch, 80, 3000, generator=draw)
        labels = torch.randint(0, of_kind.vocab_size, (batch, 64), generator=draw)
        return model(input_features=sounds, labels=labels).loss

    return Subject(model, loss, lambda: model.gradient_checkpointing_enable({"use_reentrant": False}))


MODELS: dict[str, tuple[str, Callable[[], Subject]]] = {
    "resnet50": ("ResNet-50, 8 images of 224", lambda: _images("resnet50", 8)),
    "convnext": ("ConvNeXt-T, 8 images of 224", lambda: _images("convnext_tiny", 8)),
    "efficientnet": ("EfficientNet-B0, 8 images of 224", lambda: _images("efficientnet_b0", 8)),
    "gpt2": ("GPT-2, 4 x 256 tokens", lambda: _tokens("GPT2LMHeadModel", 4, 256, config="GPT2Config")),
    "bert": ("BERT base, 8 x 128 tokens", lambda: _tokens("BertForMaskedLM", 8, 128, config="BertConfig")),
    "whisper": ("Whisper tiny, 2 x 30 s", lambda: _speech(2)),
}
QUICK = ("ResNet-10, 8 images of 128", lambda: _images("resnet10t", 8, 128))


def main() -> int:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="with commas between (default: all)")
    parser.add_argument("--steps", type=int, default=16, help="steps of each run (default 16)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each way (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was seen to a file")
    parser.add_argument("--quick", action="store_true", help="a tiny model alone, few steps")
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "WAY", "BYTES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.models, options.steps = "quick", min(options.steps, LAST)
        MODELS["quick"] = QUICK
    names = options.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"--models {unknown[0]}: expected some of {', '.join(MODELS)}")
    for name, count in (("steps", options.steps), ("rounds", options.rounds)):
        if count < 1:
            parser.error(f"--{name} {count}: at least one is needed")
    if options.one:
        name, way, budget = options.one
        seen = Seen(way, budget=int(budget) or None)
        try:
            observe(seen, name, options.steps, options.seed)
        except remat.BudgetError as error:
            seen.failure = str(error).splitlines()[0]
        print(json.dumps(asdict(seen)))
        return 0
    print(f"seed {options.seed}, torch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    titles = ["model", "plain: step, s", "peak, MiB", "between steps", "resident set"]
    for way in ("checkpointing", "budget"):
        titles += [f"{way}: time", "peak", "resident set"]
    print(heading([*titles, "left", "arena: time", "resident set"]), flush=True)
    broken, rows = [], {}
    for name in names:
        rounds: list[list[Seen]] = []
        for _ in range(options.rounds):
            limit = rounds[0][1].peak + MIB if rounds else None
            rounds.append(all_ways(name, options, limit))
            broken += [f"{name}: {what}" for what in broken_promises(rounds[-1])]
        ways = rows[name] = [fastest(runs) for runs in zip(*rounds, strict=True)]
        print(row(MODELS[name][0], ways), flush=True)
    if options.json:
        options.json.write_text(json.dumps({name: [asdict(way) for way in seen] for name, seen in rows.items()}))
    for what in broken:
        print(what, file=sys.stderr)
    return 1 if broken else 0


def all_ways(name: str, options: argparse.Namespace, budget: int | None) -> list[Seen]:
    """A model in each way, within as many bytes as checkpointing takes if that is not known yet."""
    seen: list[Seen] = []
    for way in WAYS:
        limit = str(budget or seen[1].peak + MIB) if way in ("budget", "arena") else "0"
        start = [sys.executable]
        if way == "arena":
            start += ["-m", "remat", "run", "--pool", "arena", "--budget", limit]
        command = [*start, __file__, "--one", name, way, limit if way == "budget" else "0"]
        command += ["--steps", str(options.steps), "--seed", str(options.seed)] + (["--quick"] if options.quick else [])
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "REMAT_CACHE": "off"}
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        seen.append(Seen(**json.loads(ended.stdout.splitlines()[-1])))
    return seen


def fastest(runs: Sequence[Seen]) -> Seen:
    """The run with the shortest late step; a refused one if there is one."""
    return min(runs, key=lambda seen: seen.step or 0.0)


def observe(seen: Seen, name: str, steps: int, seed: int) -> None:
    """Runs a model in one way: for times, and again for the peak."""
    for measures_peak in (False, True):
        torch.manual_seed(seed)
        subject = MODELS[name][1]()
        if seen.way == "checkpointing":
            subject.checkpoint()
        optimizer = torch.optim.AdamW(subject.model.parameters(), 1e-4)

        def step(number: int, subject: Subject = subject, optimizer: torch.optim.Optimizer = optimizer) -> float:
            optimizer.zero_grad()
            loss = subject.loss(number)
            loss.backward()
            optimizer.step()
            return loss.item()

        if measures_peak:
            step(0)
            optimizer.zero_grad()  # what is there before the measurement counts to its end
            seen.base = resident_bytes()
            seen.peak = true_peak(partial(within, seen.budget, lambda run=step: list(each(run, 3))))
            return
        seen.departures = within(seen.budget, partial(take_times, seen, step, steps))
        seen.resident_set = 1024 * getrusage(RUSAGE_SELF).ru_maxrss
        if seen.way == "arena":
            return


def within(budget: int | None, steps: Callable[[], object]) -> int | None:
    """Runs steps, within the budget if there is one. Returns how often they left their plan there."""
    if budget is None:
        steps()
        return None
    with remat.budget(budget) as run:
        steps()
    plan = run.stats().plan
    return None if plan is None else plan.departures


def each(step: Callable[[int], float], steps: int) -> Iterator[float]:
    """The losses of steps from the second on."""
    yield from map(step, range(1, steps + 1))


def take_times(seen: Seen, step: Callable[[int], float], steps: int) -> None:
    """Runs steps, and notes times and losses from the second on."""
    step(0)
    began = process_time()
    for loss in each(step, steps):
        seen.seconds.append(process_time() - began)
        seen.losses.append(loss.hex())
        began = process_time()


def row(title: str, seen: list[Seen]) -> str:
    """A line of the table."""
    plain, checkpointed, within_budget, arena = seen
    cells = [title, cell(plain.step, ".2f"), *held(plain.peak, plain.base, plain.resident_set)]
    for way in (checkpointed, within_budget):
        cells += [over(way, plain), *held(way.peak, way.resident_set)]
    return line([*cells, cell(within_budget.departures, "d"), over(arena, plain), *held(arena.resident_set)])


def held(*sizes: int) -> list[str]:
    """Sizes in MiB; nothing for one that is not known."""
    return [cell(size / MIB if size else None, ".0f") for size in sizes]


def over(way: Seen, plain: Seen) -> str:
    """Times of a way over plain's."""
    return "refused" if way.step is None or plain.step is None else f"{way.step / plain.step:.2f}"


def broken_promises(seen: list[Seen]) -> list[str]:
    """Promises of Remat that were broken."""
    broken = []
    for way in seen[2:]:
        if way.failure:
            broken.append(way.failure)
        elif way.losses != seen[0].losses:
            broken.append(f"losses in the {way.way} differ from plain's")
        if way.budget is not None and way.peak > way.budget:
            broken.append(f"the peak of {way.peak} bytes exceeds the budget of {way.budget}")
    return broken


if __name__ == "__main__":
    sys.exit(main())
