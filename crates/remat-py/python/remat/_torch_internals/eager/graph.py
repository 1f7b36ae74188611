"""Autograd's graph: its leaves and hooks; and the generators that code draws from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .devices import on_accelerator
from .ops import AccumulateGrad
from .replays import default_generator


def generators(device: torch.device) -> list[torch.Generator]:
    """The default generators that code on a device may draw from: the CPU's and its own."""
    of_cpu = default_generator(torch.device("cpu"))
    return [of_cpu, default_generator(device)] if on_accelerator(device) else [of_cpu]


@contextmanager
def hooks_aside(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Turns the tensors' own gradient hooks off: the program must not see a backward pass that only measures."""
    hooks = [tensor._backward_hooks for tensor in tensors]
    for tensor in tensors:
        tensor._backward_hooks = None
    try:
        yield
    finally:
        for tensor, kept in zip(tensors, hooks, strict=True):
            tensor._backward_hooks = kept


def leaves(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward pass from these tensors leaves gradients in."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    work: list[Any] = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    while work:
        node: Any = work.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        kind: Any = type(node)
        if kind is AccumulateGrad:
            found[id(node.variable)] = node.variable
        work.extend(following for following, _ in node.next_functions)
    return list(found.values())
