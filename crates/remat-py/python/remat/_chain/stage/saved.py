"""Hooks in place of the tensors that a stage saves for its backward pass."""

from __future__ import annotations

import torch
from torch.autograd.graph import saved_tensors_hooks


def drop(_: torch.Tensor) -> None:
    """Saves nothing."""


def never_unpacked(_: None) -> torch.Tensor:
    """Stands for a saved tensor where no backward pass may come."""
    raise AssertionError("a backward pass through a stage that saved nothing")


def forgetting() -> saved_tensors_hooks:
    """Runs a stage that saves nothing, as a plan may; its graph can never be walked."""
    return saved_tensors_hooks(drop, never_unpacked)
