"""The probe of autograd's passes and nodes, by which native ops tell whether a gradient is left in a leaf."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from ... import _native
from .ops import accumulating

_LOOKS = 3
_FEW = 100


def read_accumulating(cpu: str, counts: bool) -> str | None:
    """Has the session tell without Python whether autograd leaves a gradient in a leaf; the reason if it cannot.

    ``counts`` says whether references are counted as the extension gives them back. Where they are not, or nodes are
    owned in another way, Python is asked within backward passes.
    """
    try:
        _native.register_autograd(cpu)
    except RuntimeError as error:
        return str(error)
    if not _tells_passes():
        return "autograd's backward passes are not as Remat knows them"
    _native.trust_autograd(False)
    try:
        if not (counts and _tells_nodes() and _gives_back()):
            return "autograd's nodes are not as Remat knows them"
    except RuntimeError as error:
        return str(error)
    _native.trust_autograd(True)
    return None


def _tells_passes() -> bool:
    told: list[bool | None] = []
    _backward(lambda *_: told.append(_native.read_backward()))
    return told == [True, True] and _native.read_backward() is False


def _tells_nodes() -> bool:
    """Whether nodes of both kinds are told as Python tells them, and the count of owners stays as it was."""
    told: list[_native.Node | None] = []
    expected: list[bool] = []

    def look(*_: Any) -> None:
        told.extend(_native.read_node() for _ in range(_LOOKS))
        expected.extend([accumulating()] * _LOOKS)  # Python's own object may own the node from here on

    _backward(look)
    nodes = [node for node in told if node is not None]
    kinds = [node["accumulates"] for node in nodes]
    owners = [node["owners"] for node in nodes]
    steady = len(set(owners[:_LOOKS])) == len(set(owners[_LOOKS:])) == 1
    plausible = all(2 <= count <= _FEW for count in owners)
    outside = _native.read_node() is None
    return kinds == expected == [False] * _LOOKS + [True] * _LOOKS and steady and plausible and outside


def _gives_back() -> bool:
    """Whether no node is kept alive by having been asked for: the node of a leaf keeps the leaf."""
    read: list[_native.Node | None] = []
    leaf = weakref.ref(_backward(lambda *_: read.append(_native.read_node())))
    return leaf() is None


def _backward(look: Callable[..., object]) -> torch.Tensor:
    """A backward pass that calls a function within a node, and within the one that leaves the gradient in the leaf."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = torch.ones(2, requires_grad=True)
        leaf.register_post_accumulate_grad_hook(look)
        passed: Any = _Looking.apply(leaf, look)
        passed.sum().backward()
    return leaf


class _Looking(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, look: Callable[..., object]) -> torch.Tensor:
        ctx.look = look
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.look()
        return grad * 1, None
