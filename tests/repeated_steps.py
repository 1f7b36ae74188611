"""A training loop whose steps repeat, and the wait for their plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy
import remat
import torch
from torch import Tensor, nn

# A script that prints the loss of its twelfth step. It goes on until the file that its argument names holds a plan, if
# there is one.
LOOP = """
import json, pathlib, sys, time, torch
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(12)])
optimizer = torch.optim.SGD(model.parameters(), 0.01)

def step():
    loss = model(torch.randn(512, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

def planned(file):
    text = file.read_text() if file.exists() else ""
    return text and json.loads(text)["steps"]

for _ in range(12):
    loss = step()
print(loss.item().hex())
while sys.argv[1:] and not planned(pathlib.Path(sys.argv[1])):
    step()
    time.sleep(0.01)
"""


class Trainer:
    """A network that trains on batches of its own drawing, and what it computed."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        blocks = [nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 64)) for _ in range(8)]
        self.model = nn.ModuleList(blocks)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.losses: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        for block in self.model:
            x = x + block(x)
        return x.square().mean()

    def draw(self, rows: int) -> Tensor:
        return torch.randn(rows, 64)

    def train(self, rows: int = 256) -> None:
        loss = self.forward(self.draw(rows))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.detach())

    def result(self) -> list[object]:
        return [self.losses, list(self.model.parameters()), torch.get_rng_state()]


class NumpyTrainer(Trainer):
    """Batches come from NumPy, and so does noise amid the step: constants that no op makes."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = numpy.random.default_rng(3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + super().forward(x + self.draw(len(x)))

    def draw(self, rows: int) -> Tensor:
        return torch.from_numpy(self.generator.standard_normal((rows, 64), numpy.float32))


class ConvTrainer(Trainer):
    """Convolutions, and layer norms of two layouts: those of transposed tensors copy them first, into as many bytes as
    their results take."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.model = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(6))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(12))
        self.optimizer = torch.optim.AdamW([*self.model.parameters(), *self.norms.parameters()], 1e-3)
        self.losses: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, 16, 16, 16)
        for number, block in enumerate(self.model):
            last = self.norms[2 * number](block(x).permute(0, 2, 3, 1))
            x = x + self.norms[2 * number + 1](last).permute(0, 3, 1, 2).relu()
        return x.square().mean()

    def draw(self, rows: int) -> Tensor:
        return torch.randn(rows // 32, 4096)


def budget_of(fraction: float, made: Callable[[], Trainer] = Trainer) -> int:
    """Bytes that leave this part of the span of a trainer's step."""
    trainer = made()
    trainer.train()
    return remat.measure(trainer.train).fraction(fraction)


def planned(run: remat.Run) -> remat.PlanStats:
    """Counters of plans, once none is being made. One that was made is adopted at the next op."""
    while True:
        plan = run.stats().plan
        assert plan is not None
        if not plan.under_way:
            return plan
        time.sleep(0.01)


def until_planned(run: remat.Run, step: Callable[[], object]) -> Iterator[int]:
    """Steps until a plan was adopted, in the order in which they ran."""
    for number in range(40):
        step()
        planned(run)
        step()
        yield number
        if planned(run).adopted:
            return
