"""The examples' models as workloads: a batch, a model, its checkpointed twin, and a way back to the start."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

from data import digits, random_windows, source_text
from gpt import GPT
from resnet import ResNet


class Checkpointed(nn.Module):
    """A block that saves its input only and runs again in backward."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, x, use_reentrant=False)


def checkpointed(model: nn.Module) -> nn.Module:
    """A twin of `model` with the same parameters and every one of its `blocks` checkpointed."""
    twin = copy.copy(model)
    twin._modules = dict(model._modules)
    twin.blocks = nn.ModuleList(Checkpointed(block) for block in model.blocks)
    return twin


@dataclass
class Workload:
    """Training steps that can be run again and again from the same state."""

    name: str
    model: nn.Module
    twin: nn.Module
    optimizer: torch.optim.Optimizer
    loss_of: Callable[[nn.Module], Tensor]
    start: bytes

    def reset(self) -> None:
        """Back to the same weights, buffers, optimizer state, and random numbers to come."""
        state = torch.load(io.BytesIO(self.start), weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.optimizer.zero_grad()
        torch.manual_seed(0)

    def step(self, model: nn.Module) -> float:
        """One training step of the model or of its twin; the loss."""
        loss = self.loss_of(model)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def workload(
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[nn.Module], Tensor],
) -> Workload:
    """Takes one step, so that the optimizer's state exists, and keeps the state reached as the start.

    The start is kept as bytes outside torch, so that it is no part of what a budget counts.
    """
    made = Workload(name, model, checkpointed(model), optimizer, loss_of, b"")
    made.step(model)
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
    made.start = buffer.getvalue()
    return made


def resnet(device: str, *, batch: int, depth: int, width: int) -> Workload:
    """The ResNet example on one batch of digits, 32x32, SGD with momentum."""
    torch.manual_seed(0)
    images, labels = digits(32)
    images, labels = images[:batch].clone().to(device), labels[:batch].clone().to(device)
    model = ResNet(depth, width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    name = f"ResNet-{6 * depth + 2}, width {width}, batch {batch}"
    return workload(name, model, optimizer, lambda net: F.cross_entropy(net(images), labels))


def gpt(device: str, *, batch: int, depth: int, width: int, context: int) -> Workload:
    """The GPT example with its dropout on one batch of text, AdamW."""
    torch.manual_seed(0)
    text, target = (part.to(device) for part in random_windows(source_text(), batch, context))
    target = target.flatten()
    model = GPT(depth, width, heads=4, context=context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    name = f"GPT, {depth} blocks, width {width}, {batch} x {context} bytes"
    return workload(name, model, optimizer, lambda net: F.cross_entropy(net(text).flatten(0, 1), target))
