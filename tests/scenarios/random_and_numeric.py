"""Op families: random numbers, products, norms, transforms and factories."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .residual import ROWS, WIDTH, op_family


@op_family
def dropout_family(h: Tensor, w: Tensor) -> Tensor:
    y = F.dropout(h @ w, 0.2).tanh()
    y = F.alpha_dropout(y, 0.1, training=True)
    return F.dropout(y, 0.3, inplace=True) + F.dropout1d(y.view(ROWS, 8, 8), 0.2).view_as(y)


@op_family
def random_sources(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w).tanh() + 0.1 * torch.rand_like(h)
    y = y * torch.bernoulli(torch.full_like(y, 0.75).detach())
    y = y[:, torch.randperm(WIDTH)].sin() + torch.randn(WIDTH) + torch.randint(0, 3, (ROWS, 1))
    drawn = torch.multinomial(y.detach().softmax(1), 4)
    noise = torch.empty_like(h).normal_() + torch.empty(ROWS, 1).uniform_(-1, 1) + torch.normal(h.detach(), 1.0)
    noise.add_(torch.empty_like(h).exponential_())
    return y.tanh() * noise.tanh() + y.gather(1, drawn).mean().tanh()


@op_family
def softmax_and_norms(h: Tensor, w: Tensor) -> Tensor:
    y = F.layer_norm(h @ w, (WIDTH,))
    y = F.group_norm(y, 4).log_softmax(1) * y.softmax(0) + y.logsumexp(1, keepdim=True)
    return F.gelu(F.normalize(y)) + F.silu(y) * F.softplus(y)


@op_family
def batched_products(h: Tensor, w: Tensor) -> Tensor:
    heads = (h @ w).view(8, ROWS // 8, WIDTH)
    scores = torch.bmm(heads, heads.transpose(1, 2)).softmax(-1)
    mixed = torch.baddbmm(heads, scores, heads, alpha=0.5)
    return torch.einsum("brw,wv->brv", mixed, w).reshape(ROWS, WIDTH).tanh()


@op_family
def complex_fft(h: Tensor, w: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(h @ w, dim=1)
    turned = spectrum * torch.polar(torch.ones(spectrum.shape[1]), torch.linspace(0, 1, spectrum.shape[1]))
    pairs = torch.view_as_real(turned.conj().resolve_conj())
    pairs = pairs + turned.abs().unsqueeze(-1)
    return torch.fft.irfft(torch.view_as_complex(pairs.contiguous()), n=WIDTH, dim=1).tanh()


@op_family
def clamp_clip_and_pad(h: Tensor, w: Tensor) -> Tensor:
    y = torch.clip(h @ w, -1, 1).clamp(min=-0.5)
    return F.pad(y[:, 4:-4], (4, 4), value=0.5) * F.hardtanh(y, -0.4, 0.4) + torch.maximum(y, h).minimum(h * 2)


@op_family
def foreach_and_out_variants(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    with torch.no_grad():
        parts = list((y * 1).chunk(4, dim=1))
        torch._foreach_mul_(parts, 0.5)
        sums = torch._foreach_add(parts, 1.0)
        into = torch.empty(0)
        torch.cat(sums, 1, out=into)
        scaled = torch.empty(ROWS, WIDTH)
        torch.mul(into, 2.0, out=scaled)
    return y.tanh() * scaled + into


@op_family
def detached_in_place(h: Tensor, w: Tensor) -> Tensor:
    y = (h @ w).tanh()
    z = y * 2
    z.detach_()
    z.add_(1)
    frozen = y.detach()
    return y * z + frozen.exp()


@op_family
def scalars_and_factories(h: Tensor, w: Tensor) -> Tensor:
    y = h @ w
    grid = torch.arange(WIDTH, dtype=torch.float32) + torch.linspace(0, 1, WIDTH) + torch.eye(ROWS, WIDTH)
    ones = torch.ones_like(y).tril() + torch.full((ROWS, 1), 0.5) + y.new_zeros(WIDTH)
    return (y + torch.tensor(0.5)) * ones + grid.sin() + torch.tensor([1.0] * WIDTH)
