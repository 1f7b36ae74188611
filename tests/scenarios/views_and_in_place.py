"""Op families: views, slices and writes in place."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .residual import ROWS, WIDTH, op_family


@op_family
def views_and_slices(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w).tanh()
    left, right = y[:, : WIDTH // 2], y.narrow(1, WIDTH // 2, WIDTH // 2)
    swapped = torch.cat([right, left], 1).t().contiguous().t()
    return swapped.view(ROWS, 8, -1).permute(1, 0, 2).reshape(8 * ROWS, -1).unflatten(0, (8, ROWS)).movedim(
        0, 1
    ).flatten(1).sigmoid() * y[::1].select(0, 3)


@op_family
def strided_slices(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    even, odd = y[:, ::2].relu(), y[:, 1::2].tanh()
    return torch.stack([even, odd], 2).flatten(1) + y.diagonal().sin() + y.unfold(1, 4, 4)[..., 0].sum()


@op_family
def in_place_on_values(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    y.add_(1).mul_(0.5)
    y.tanh_()
    z = y * 2
    z.clamp_(max=1.5).sub_(1)
    return F.relu(z * 0.5 + y, inplace=True)


@op_family
def in_place_on_slices(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w) * 1
    y[:, :16] = h[:, 16:32]
    y[::2].mul_(0.5)
    y[0].zero_()
    y[:, 5] += 1
    z = y * 2
    z[3:9, 2:4].fill_(0.25)
    return z.sigmoid() * y


@op_family
def in_place_on_views(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w) * 1
    flat = y.view(-1)
    flat.add_(h.flatten())
    y.t().mul_(0.9)
    y.view(ROWS, 8, 8).select(1, 0).zero_()
    with torch.no_grad():
        buffer = torch.zeros(ROWS * 2, WIDTH)
        upper, lower = buffer.chunk(2)
        upper.copy_(y)
        lower.copy_(upper).neg_()
        buffer[ROWS // 2 : ROWS + ROWS // 2].add_(1)
    return y.tanh() * buffer[:ROWS] + buffer[ROWS:]
