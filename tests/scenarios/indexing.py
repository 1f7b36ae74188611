"""Op families: strides, indices, masks and branches on data."""

from __future__ import annotations

import torch
from torch import Tensor

from .residual import ROWS, WIDTH, op_family


@op_family
def expand_and_broadcast(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    column, row = y[:, :1].expand(ROWS, WIDTH), y.mean(0)
    wide = row.broadcast_to(ROWS, WIDTH) * column
    return wide.tanh() + y.view(ROWS, 1, WIDTH).expand(-1, 2, -1).sin().sum(1) + row.repeat(2)[:WIDTH]


@op_family
def as_strided_windows(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w).tanh()
    skipped = y.as_strided((ROWS, WIDTH // 2), (WIDTH, 2))
    shifted = y.as_strided((ROWS, WIDTH // 2), (WIDTH, 2), 1)
    return torch.cat([skipped * shifted, shifted.exp()], 1)


@op_family
def index_put_in_place(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w) * 1
    rows = torch.arange(0, ROWS, 3)
    y.index_put_((rows,), h[rows] * 0.5, accumulate=True)
    y[rows, rows % WIDTH] = 0.125
    y.index_add_(0, rows, h.index_select(0, rows), alpha=0.5)
    return y.tanh().index_fill(1, torch.tensor([1, 5]), 0.5) * y


@op_family
def masked_fill_and_where(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w) * 1
    y.masked_fill_(y < -1, -1.0)
    y.masked_scatter_(y > 2, h.detach())
    return torch.where(y > 0, y.sin(), y.exp()) * (y > 0.5).logical_not()


@op_family
def scatter_and_gather(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    target = (torch.arange(ROWS * WIDTH).view(ROWS, WIDTH) * 7) % WIDTH
    added = torch.zeros_like(y).scatter_add(1, target, y)
    added.scatter_(1, target[:, :4], 0.5)
    return added.tanh() * y.gather(1, target) + y.scatter_reduce(1, target, y, "amax")


@op_family
def copies_across_dtypes(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    double = torch.empty(ROWS, WIDTH, dtype=torch.float64).copy_(y)
    half = y.to(torch.bfloat16).tanh()
    whole = y.detach().to(torch.int32).to(torch.float32)
    return torch.empty_like(y).copy_(double.sin()) + half.float() + half.double().type_as(y) * whole.sign()


@op_family
def nonzero_and_bool_masks(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    mask = y > 0
    picked = y[mask].sigmoid()
    spread = torch.zeros_like(y)
    spread[mask] = picked
    rows = (y.sum(1) > 0).nonzero().squeeze(1)
    seen = torch.unique((y[rows[: ROWS // 4]] * 4).round().detach())
    return spread + torch.zeros_like(y).index_add(0, rows, y[rows].tanh()) + seen.numel() / 100


@op_family
def data_dependent_branches(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    if y.mean() > 0:
        y = y.tanh()
    for _ in range(int(y.abs().sum().item()) % 3):
        y = y.sin() * 2
    if bool((y > 1).any()) and float(y.max()) > 0.5:
        y = y / y.detach().abs().max()
    return y
