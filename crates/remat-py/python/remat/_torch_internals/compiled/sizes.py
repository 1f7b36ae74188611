"""Sizes that depend on a graph's input."""

from __future__ import annotations

import functools
from typing import Any

import torch

# Names of torch's function that estimates a size, the newest first.
_NAMES = ("optimization_hint", "size_hint", "hint_int")


def number_of(size: int | torch.SymInt) -> int:
    """A size; one that depends on the input counts as in the first input."""
    return size if isinstance(size, int) else int(_hint()(size, fallback=4096))


@functools.cache
def _hint() -> Any:
    # Not above: it loads all of the compiler, and only graphs being compiled have such sizes.
    from torch._functorch import partitioners

    return next(getattr(partitioners, name) for name in _NAMES if hasattr(partitioners, name))
