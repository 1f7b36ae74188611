"""The parts that every example's training shares: options, optimizer, printed losses and the closing digest."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn


def options(description: str, *, steps: int, batch: int, optimizer: str, lr: float) -> argparse.ArgumentParser:
    """A parser with the options that all examples take, and this example's defaults for them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=steps, help="training steps")
    parser.add_argument("--batch", type=int, default=batch, help="examples in a batch")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, batches and dropout")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default=optimizer, help="sgd: momentum 0.9")
    parser.add_argument("--lr", type=float, default=lr, help="learning rate")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2, help="torch.set_num_threads")
    return parser


def prepare(args: argparse.Namespace) -> None:
    """Makes a run depend on its arguments alone."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)


def make_optimizer(args: argparse.Namespace, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer that `--optimizer` and `--lr` ask for."""
    if args.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=args.lr, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=args.lr)


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One step down the gradient of `loss`; the gradients are gone afterwards."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def train(args: argparse.Namespace, module: nn.Module, step: Callable[[], Tensor]) -> None:
    """Calls `step` `--steps` times; prints every loss to the bit, and the digest of what was learned."""
    for number in range(1, args.steps + 1):
        loss = step().item()
        print(f"step {number} loss {loss:.6f} ({loss.hex()})", flush=True)
    print(f"digest {digest(module)}")


def digest(module: nn.Module) -> str:
    """SHA-256 of the bytes of all parameters, in order."""
    sha = hashlib.sha256()
    for parameter in module.parameters():
        sha.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()
