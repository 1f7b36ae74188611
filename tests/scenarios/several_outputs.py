"""Op families: ops of several outputs, reductions and scans."""

from __future__ import annotations

import torch
from torch import Tensor

from .residual import WIDTH, op_family


@op_family
def split_unbind_chunk(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w).tanh()
    a, b, c = y.split([16, 16, 32], dim=1)
    d, e = c.chunk(2, dim=1)
    parts = torch.stack([a, b.sin(), d * e, e]).unbind(0)
    return torch.cat([part.sigmoid() for part in parts], 1)


@op_family
def topk_max_var_mean(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    values, where = y.topk(8, dim=1)
    highest, which = y.max(dim=1, keepdim=True)
    lowest, _ = y.min(dim=0)
    variance, mean = torch.var_mean(y, dim=1, keepdim=True)
    median, _ = y.median(dim=1, keepdim=True)
    normal = (y - mean) * (variance + 1e-5).rsqrt()
    spread = torch.zeros_like(y).scatter(1, where, values)
    return (normal + spread.tanh() + lowest - median) * (which.float() + highest).sigmoid()


@op_family
def sort_cumsum_flip(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    ordered, order = y.sort(dim=1)
    ranks = order.argsort(dim=1)
    best, _ = y.cummax(dim=1)
    return ordered.cumsum(1).div(WIDTH).gather(1, ranks) + y.flip(1).roll(3, 0).tanh() + best.sigmoid()
