"""Whether torch computes in the precision of its arguments."""

from __future__ import annotations

import torch


def products_are_exact() -> bool:
    """Whether products of float32 are left to BLAS; oneDNN copies what it computes with less precision."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:
        return False  # the program set it for each library, by an interface that this one does not mix with


def convolutions_are_exact() -> bool:
    """Whether oneDNN runs convolutions of float32 in float32: with less precision it takes other kernels."""
    own = getattr(torch.backends.mkldnn, "conv", None)  # since torch 2.9
    return products_are_exact() and getattr(own, "fp32_precision", "none") in ("none", "ieee")
