"""The table of training runs whose every bit must survive any feasible budget.

A scenario builds model and data, trains a few steps, and returns what must be the same: losses, gradients,
weights, buffers, optimizer state. The driver seeds the generator before and reads its state afterwards.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

Outcome = Any
Body = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Scenario:
    """One training run; `evicts`: most of its peak can be recomputed, so half of it must force evictions."""

    name: str
    run: Callable[[], Outcome]
    evicts: bool = True


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, evicts: bool = True, name: str | None = None
) -> Callable[[Callable[[], Outcome]], Callable[[], Outcome]]:
    """Enters a function into the table."""

    def enter(run: Callable[[], Outcome]) -> Callable[[], Outcome]:
        called = name or run.__name__
        assert called not in SCENARIOS, called
        SCENARIOS[called] = Scenario(called, run, evicts)
        return run

    return enter


def outcome(
    losses: Any, model: nn.Module, optimizer: torch.optim.Optimizer | None = None, **more: Any
) -> dict[str, Any]:
    """The state that a training run leaves behind."""
    return {
        "losses": losses,
        "weights": model.state_dict(),
        "gradients": [p.grad for p in model.parameters()],
        "optimizer": optimizer.state_dict()["state"] if optimizer else None,
        **more,
    }


# ----------------------------------------------------------------------------------------------------
# Op families: one residual body each, stacked ten deep, so that activations outweigh the weights by far.

ROWS, WIDTH, DEPTH = 512, 64, 10


def deep(body: Body, *, depth: int = DEPTH, rows: int = ROWS, width: int = WIDTH, steps: int = 2) -> Outcome:
    """Trains `depth` weights through ``h = h + body(h, w)``."""
    weights = [(torch.randn(width, width) / width**0.5).requires_grad_() for _ in range(depth)]
    data = torch.randn(rows, width)
    losses = []
    for _ in range(steps):
        hidden = data
        for weight in weights:
            hidden = hidden + body(hidden, weight)
        loss = hidden.square().mean()
        loss.backward()
        losses.append(loss.detach())
        with torch.no_grad():
            for weight in weights:
                assert weight.grad is not None
                weight -= 0.01 * weight.grad
                if len(losses) < steps:
                    weight.grad = None
    return {"losses": losses, "weights": weights, "gradients": [w.grad for w in weights], "last": hidden}


def op_family(body: Body) -> Body:
    """Enters a residual body into the table under its own name."""
    SCENARIOS[body.__name__] = Scenario(body.__name__, lambda: deep(body))
    return body


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


# ----------------------------------------------------------------------------------------------------
# Whole models


def mlp(width: int = 64, depth: int = 10, *extra: Callable[[], nn.Module]) -> nn.Sequential:
    """`depth` linear layers with tanh and the extra modules between."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh(), *(make() for make in extra)]
    return nn.Sequential(*layers)


def batches(steps: int, rows: int = 512, width: int = 64) -> list[tuple[Tensor, Tensor]]:
    """Made input and target per step."""
    return [(torch.randn(rows, width), torch.randn(rows, width)) for _ in range(steps)]


def fit(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: list[tuple[Tensor, Tensor]],
    before_step: Callable[[], None] | None = None,
) -> list[Tensor]:
    """The plainest of training loops."""
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        if before_step:
            before_step()
        optimizer.step()
        losses.append(loss.detach())
    return losses


class ResidualBlock(nn.Module):
    """Two convolutions, two batch norms, a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_again = nn.BatchNorm2d(channels, momentum=None)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)), inplace=True)
        return F.relu(x + self.norm_again(self.second(y)))


@scenario()
def batch_norm_network() -> Outcome:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        *(ResidualBlock(8) for _ in range(4)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(16, 3, 24, 24), torch.randint(0, 8, (16,))
    losses, scores = [], []
    for _ in range(2):
        model.train()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            scores.append(model(images).argmax(1))
    return outcome(losses, model, optimizer, scores=scores)


@scenario()
def u_net() -> Outcome:
    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)])
            self.middle = nn.Conv2d(12, 12, 3, padding=1, groups=4)
            self.up = nn.ConvTranspose2d(12, 8, 2, stride=2)
            self.last = nn.Conv2d(16, 1, 1)

        def forward(self, x: Tensor) -> Tensor:
            wide = F.leaky_relu(self.down[0](x), inplace=True)
            small, where = F.max_pool2d(wide, 2, return_indices=True)
            small = F.elu(self.middle(F.elu(self.down[1](small))))
            back = F.max_unpool2d(small[:, :8], where, 2) + F.interpolate(small[:, 4:], scale_factor=2)
            return self.last(torch.cat([self.up(small) + F.instance_norm(back), wide], 1))

    model = UNet()
    optimizer = torch.optim.Adam(model.parameters())
    losses = fit(model, optimizer, [(torch.randn(8, 1, 32, 32), torch.randn(8, 1, 32, 32)) for _ in range(2)])
    return outcome(losses, model, optimizer)


@scenario()
def double_backward() -> Outcome:
    model = mlp(depth=6)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    losses = []
    for x, y in batches(2):
        x.requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        loss = F.mse_loss(out, y) + 0.1 * slope.square().sum(1).sub(1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.detach(), x.grad]
    return outcome(losses, model)


@scenario()
def retained_graph() -> Outcome:
    model = mlp()
    x, y = batches(1)[0]
    out = model(x)
    first, second = F.mse_loss(out, y), out.abs().mean()
    first.backward(retain_graph=True)
    middle = [p.grad.clone() for p in model.parameters()]  # type: ignore[union-attr]
    second.backward(retain_graph=True)
    third = torch.autograd.grad(out.sum(), list(model.parameters()))
    return outcome([first, second], model, middle=middle, third=third)


@scenario()
def hooks_of_tensors_and_modules() -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    seen: list[Any] = []
    model[0].register_forward_hook(lambda _m, _i, out: out * 1.5)
    model[2].register_forward_pre_hook(lambda _m, args: (args[0] + 0.5,))
    model[4].register_full_backward_hook(lambda _m, given, _out: tuple(g * 0.5 for g in given))
    model[6].weight.register_hook(lambda grad: grad.clamp(-0.01, 0.01))  # type: ignore[union-attr]
    model[8].weight.register_post_accumulate_grad_hook(  # type: ignore[union-attr]
        lambda p: seen.append(p.grad.norm())
    )
    losses = []
    for x, y in batches(2):
        hidden = model[:8](x)
        hidden.register_hook(lambda grad: seen.append(grad.abs().max().item()))
        hidden.retain_grad()
        loss = F.mse_loss(model[8:](hidden), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.detach(), hidden.grad]
    return outcome(losses, model, seen=seen)


@scenario()
def saved_tensor_hooks() -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for x, y in batches(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.to(torch.float64), lambda t: t.to(torch.float32)):
            out = model(x)
        with torch.autograd.graph.save_on_cpu():
            loss = F.mse_loss(out.tanh(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model)


class CubeWithPartner(torch.autograd.Function):
    """Saves inputs and an intermediate, returns two outputs, is differentiable twice, counts its calls."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        CubeWithPartner.calls += 1
        square = x * x
        partner = square.sum(1, keepdim=True)
        ctx.save_for_backward(x, square)
        ctx.mark_non_differentiable(partner)
        ctx.scale = scale
        return square * x * scale, partner

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, square = ctx.saved_tensors
        return grads[0] * 3 * square * ctx.scale + 0 * x, None


class InPlaceNegate(torch.autograd.Function):
    """Writes into its argument and says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.neg_()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return -grads[0]


@scenario()
def custom_function() -> Outcome:
    CubeWithPartner.calls = 0

    def body(h: Tensor, w: Tensor) -> Tensor:
        cube, partner = CubeWithPartner.apply((h @ w).tanh(), 0.5)
        return InPlaceNegate.apply(cube * 1) + partner / WIDTH

    return {**deep(body), "calls": CubeWithPartner.calls}


def _checkpointed(use_reentrant: bool) -> Outcome:
    model = nn.ModuleList(mlp(64, 3, lambda: nn.Dropout(0.1)) for _ in range(4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for x, y in batches(2):
        hidden = x.requires_grad_()
        for block in model:
            hidden = checkpoint(block, hidden, use_reentrant=use_reentrant)  # type: ignore[assignment]
        loss = F.mse_loss(hidden, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.detach(), x.grad]
    return outcome(losses, model)


scenario(name="checkpoint_reentrant", evicts=False)(lambda: _checkpointed(True))
scenario(name="checkpoint_not_reentrant", evicts=False)(lambda: _checkpointed(False))


@scenario()
def autocast_bf16() -> Outcome:
    model = mlp(64, 8, lambda: nn.LayerNorm(64))
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for x, y in batches(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model, optimizer)


@scenario()
def gradient_accumulation_and_clipping() -> Outcome:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    losses: list[Any] = []
    for number, (x, y) in enumerate(batches(4, rows=256)):
        loss = F.mse_loss(model(x), y) / 2
        loss.backward()
        losses.append(loss.item())
        if number % 2:
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01))
            nn.utils.clip_grad_value_(model.parameters(), 0.001)
            optimizer.step()
            optimizer.zero_grad()
    return outcome(losses, model, optimizer)


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=False),
    "sgd_foreach": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, foreach=False),
    "adam_foreach": lambda p: torch.optim.Adam(p, amsgrad=True, foreach=True),
    "adam_fused": lambda p: torch.optim.Adam(p, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, foreach=False),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p),
}


def _optimized(make: Callable[[Any], torch.optim.Optimizer]) -> Outcome:
    model = mlp(48)
    optimizer = make(model.parameters())
    return outcome(fit(model, optimizer, batches(3, 512, 48)), model, optimizer)


for _name, _make in OPTIMIZERS.items():
    scenario(name=f"optimizer_{_name}")(lambda make=_make: _optimized(make))


def _recurrent(kind: type[nn.LSTM | nn.GRU], packed: bool) -> Outcome:
    model = kind(24, 24, num_layers=2, batch_first=True, dropout=0.1, bidirectional=packed)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(2):
        x = torch.randn(16, 24, 24)
        if packed:
            given: Any = nn.utils.rnn.pack_padded_sequence(x, torch.arange(24, 8, -1), batch_first=True)
            out, state = model(given)
            out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        else:
            out, state = model(x)
        last = state[0] if isinstance(state, tuple) else state
        loss = out.square().mean() + last.sin().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model)


scenario(name="lstm", evicts=False)(lambda: _recurrent(nn.LSTM, packed=False))
scenario(name="lstm_packed", evicts=False)(lambda: _recurrent(nn.LSTM, packed=True))
scenario(name="gru")(lambda: _recurrent(nn.GRU, packed=False))


@scenario()
def lstm_cells_unrolled() -> Outcome:
    cell, head = nn.LSTMCell(32, 32), nn.Linear(32, 32)
    model = nn.ModuleList([cell, head])
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    state = (torch.zeros(64, 32), torch.zeros(64, 32))
    for _ in range(2):
        loss = torch.zeros(())
        for x in torch.randn(24, 64, 32):
            state = cell(x, state)
            loss = loss + head(state[0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = (state[0].detach(), state[1].detach())
        losses.append(loss.detach())
    return outcome(losses, model, optimizer, state=state)


@scenario()
def scaled_dot_product_attention() -> Outcome:
    def body(h: Tensor, w: Tensor) -> Tensor:
        q, k, v = ((h @ w).view(4, 128, 4, 16).transpose(1, 2) * scale for scale in (1.0, 0.5, 2.0))
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(128, 128).tril().bool(), dropout_p=0.1)
        return (causal + masked).transpose(1, 2).reshape(ROWS, WIDTH)

    return deep(body, depth=4)


@scenario()
def transformer_layers() -> Outcome:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(50, 32), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))
    head = nn.Linear(32, 50)
    head.weight = model[0].weight  # type: ignore[assignment]
    model.append(head)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(2):
        tokens = torch.randint(0, 50, (8, 48))
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return outcome(losses, model, optimizer)


class TreeLSTM(nn.Module):
    """Binary child-sum TreeLSTM over nested tuples of word numbers."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(64, width)
        self.gates = nn.Linear(2 * width, 5 * width)

    def forward(self, tree: Any) -> tuple[Tensor, Tensor]:
        if isinstance(tree, Tensor):
            return self.words(tree), torch.zeros(tree.shape[0], self.width)
        (left_h, left_c), (right_h, right_c) = self(tree[0]), self(tree[1])
        i, f, g, o, u = self.gates(torch.cat([left_h, right_h], 1)).chunk(5, 1)
        cell = i.sigmoid() * u.tanh() + f.sigmoid() * left_c + g.sigmoid() * right_c
        hidden = o.sigmoid() * cell.tanh()
        if float(hidden.detach().mean()) > 0.05:  # the graph depends on the data
            hidden = hidden * 0.5
        return hidden, cell


@scenario()
def tree_lstm() -> Outcome:
    def grown(depth: int) -> Any:
        if depth == 0 or (depth < 3 and torch.rand(()).item() < 0.2):
            return torch.randint(0, 64, (48,))
        return grown(depth - 1), grown(depth - 1)

    model = TreeLSTM()
    optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
    losses = []
    for depth in (4, 5):
        hidden, _ = model(grown(depth))
        loss = hidden.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model, optimizer)


@scenario()
def unrolled_gan() -> Outcome:
    generator, critic = mlp(32, 3), mlp(32, 3)
    optimizer = torch.optim.Adam(generator.parameters(), 0.01)
    losses = []
    for _ in range(2):
        weights = dict(critic.named_parameters())
        real, noise = torch.randn(256, 32), torch.randn(256, 32)
        fake = generator(noise)
        for _ in range(3):
            right = torch.func.functional_call(critic, weights, (real,)).mean(1)
            wrong = torch.func.functional_call(critic, weights, (fake,)).mean(1)
            loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
        loss = F.softplus(-torch.func.functional_call(critic, weights, (fake,))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, generator, optimizer, critic=[p.grad for p in critic.parameters()])


@scenario()
def tensors_kept_in_variables_and_lists() -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    features: list[Tensor] = []
    memory: dict[str, Any] = {}
    losses = []
    for step, (x, y) in enumerate(batches(3, rows=256)):
        hidden = x
        for layer in model:
            hidden = layer(hidden)
            features.append(hidden.detach()[:, ::2])
        memory[f"last {step}"] = (hidden, hidden.detach().t())
        loss = F.mse_loss(hidden, y)
        if step:
            loss = loss + F.mse_loss(hidden, features[step * 5].repeat(1, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
        del features[:10]
    return outcome(losses, model, features=features, memory=memory)


@scenario()
def deep_copies() -> Outcome:
    model = mlp(64, 6)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x, y = batches(1)[0]
    kept = [x]
    with torch.no_grad():
        for layer in model:
            kept.append(layer(kept[-1]))
    losses = fit(model, optimizer, [(x, y)])
    twin = copy.deepcopy(model)
    again = copy.deepcopy({"kept": kept[-6:], "view": kept[-1][:, :8]})
    losses += fit(model, optimizer, batches(2))
    losses += fit(twin, torch.optim.SGD(twin.parameters(), 0.05), batches(1))
    return outcome(losses, model, twin=twin.state_dict(), again=again, kept=kept)


@scenario()
def state_dict_saved_and_loaded() -> Outcome:
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters())
    losses = fit(model, optimizer, batches(1))
    x, _ = batches(1)[0]
    hidden = model[:6](x)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "hidden": hidden}, file)
    losses += fit(model, optimizer, batches(1))
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    losses += fit(model, optimizer, batches(1))
    pickled = pickle.loads(pickle.dumps(hidden.detach()))
    return outcome(losses, model, optimizer, hidden=loaded["hidden"], pickled=pickled)


# ----------------------------------------------------------------------------------------------------
# Ways out of torch: the bytes are read by someone who dispatches nothing


def _handed_out(hand_out: Callable[[Tensor], Any]) -> Outcome:
    """Hands out features before and after pressure, then reads them all."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    given, losses, features = [], [], []
    for x, y in batches(2):
        hidden = x
        for number, layer in enumerate(model):
            hidden = layer(hidden)
            if number % 6 == 1:
                given.append(hand_out(hidden.detach()))
            elif number % 2:
                features.append(hidden.detach())
        loss = F.mse_loss(hidden, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    given += [hand_out(feature) for feature in features[:3]]
    return outcome(losses, model, given=given, features=features[::4])


def _bytes_at(t: Tensor) -> Any:
    import ctypes

    address = t.data_ptr()
    return bytes((ctypes.c_char * 256).from_address(address)).hex()


HAND_OUTS: dict[str, Callable[[Tensor], Any]] = {
    "numpy_arrays": lambda t: t.numpy(),
    "numpy_of_slices": lambda t: t[2:, ::2].numpy(),
    "array_protocol": lambda t: np.asarray(t[:16]),
    "data_pointers": _bytes_at,
    "dlpack_to_torch": lambda t: torch.utils.dlpack.from_dlpack(t),
    "dlpack_to_numpy": lambda t: np.from_dlpack(t),
    "python_lists": lambda t: [*t[:8].tolist(), repr(t), format(t[0, 0]), str(t[:2])],
    "storages": lambda t: [t.untyped_storage()[place] for place in range(64)],
}
for _name, _hand_out in HAND_OUTS.items():
    scenario(
        name=f"handed_out_as_{_name}",
        evicts=_name not in ("numpy_arrays", "dlpack_to_torch", "dlpack_to_numpy"),
    )(lambda hand_out=_hand_out: _handed_out(hand_out))


@scenario()
def arrays_from_outside() -> Outcome:
    array = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    shared = torch.randn(ROWS, WIDTH).share_memory_()

    def body(h: Tensor, w: Tensor) -> Tensor:
        outside = torch.from_numpy(array)
        return (h @ w).tanh() * outside + torch.tensor(array[0]) + shared

    found = deep(body)
    with torch.no_grad():
        torch.from_numpy(array).mul_(2)
        shared.add_(1)
    return {**found, "array": array, "shared": shared}


# ----------------------------------------------------------------------------------------------------
# Kinds of tensors, transforms and modes


@scenario()
def sparse_tensors_passed_through() -> Outcome:
    places = torch.stack([torch.arange(ROWS), (torch.arange(ROWS) * 7) % ROWS])
    graph = torch.sparse_coo_tensor(places, torch.rand(ROWS), (ROWS, ROWS)).coalesce()
    rows = graph.to_sparse_csr()

    def body(h: Tensor, w: Tensor) -> Tensor:
        return torch.sparse.mm(graph, (h @ w).tanh()) + (rows @ h.detach())

    return {**deep(body), "graph": graph, "rows": rows}


@scenario()
def embedding_with_dense_gradient() -> Outcome:
    model = nn.Sequential(nn.Embedding(40, 64, padding_idx=0), mlp(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = fit(model, optimizer, [(torch.randint(0, 40, (512,)), torch.randn(512, 64)) for _ in range(2)])
    return outcome(losses, model, bags=F.embedding_bag(torch.arange(12).view(3, 4), model[0].weight))  # type: ignore[arg-type]


@scenario(evicts=False)
def embedding_with_sparse_gradient() -> Outcome:
    model = nn.Sequential(nn.Embedding(40, 64, sparse=True), mlp(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = fit(model, optimizer, [(torch.randint(0, 40, (512,)), torch.randn(512, 64)) for _ in range(2)])
    return outcome(losses, model)


@scenario()
def vmap_of_grad() -> Outcome:
    model = mlp(32, 3)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)

    norms = []
    for x, y in batches(2, 96, 32):
        each = torch.func.vmap(torch.func.grad(loss_of), in_dims=(None, 0, 0))(weights, x, y)
        norms.append({name: g.flatten(1).norm(dim=1) for name, g in each.items()})
        weights = {name: w - 0.1 * each[name].mean(0) for name, w in weights.items()}
    x, _ = batches(1, 64, 32)[0]
    _, slope = torch.func.jvp(lambda v: torch.func.functional_call(model, weights, (v,)), (x,), (torch.ones_like(x),))
    return {"norms": norms, "weights": weights, "slope": slope}


@scenario()
def functional_call() -> Outcome:
    model = mlp()
    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    losses: list[Any] = []
    for x, y in batches(2):
        loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
        grads = torch.autograd.grad(loss, list(weights.values()))
        weights = {
            name: (w - 0.1 * g).detach().requires_grad_() for (name, w), g in zip(weights.items(), grads, strict=True)
        }
        losses.append(loss.detach())
    return {"losses": losses, "weights": weights, "gradients": grads}


@scenario()
def forward_mode() -> Outcome:
    model = mlp(64, 6)
    x, _ = batches(1)[0]
    with torch.autograd.forward_ad.dual_level():
        out = model(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        value, slope = torch.autograd.forward_ad.unpack_dual(out)
        kept = [value.detach().clone(), slope.detach().clone() if slope is not None else None]
    return {"kept": kept, "last": model(x)}


@scenario()
def evaluation_between_steps() -> Outcome:
    model = mlp(64, 8, lambda: nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scores: list[Any] = []
    losses = []
    for x, y in batches(2):
        model.train()
        losses += fit(model, optimizer, [(x, y)])
        model.eval()
        with torch.inference_mode():
            seen = model(x)
            scores += [seen.sum(), seen[:4].clone(), (seen * 2).add_(1).mean()]
        with torch.no_grad():
            scores.append(model(x).mean(0))
        with torch.set_grad_enabled(False):
            scores.append(F.mse_loss(model(x), y).item())
    return outcome(losses, model, scores=scores)


@scenario()
def explicit_generators() -> Outcome:
    own = torch.Generator().manual_seed(7)

    def body(h: Tensor, w: Tensor) -> Tensor:
        noise = torch.randn(ROWS, WIDTH, generator=own)
        keep = torch.empty_like(h).bernoulli_(0.8, generator=own)
        order = torch.randperm(WIDTH, generator=own)
        return ((h @ w) * keep + noise * 0.1).tanh()[:, order] + torch.rand(WIDTH)

    return {**deep(body), "generator": own.get_state(), "next": torch.rand(4, generator=own)}


@scenario()
def generator_state_saved_and_set_back() -> Outcome:
    model = mlp(64, 6, lambda: nn.Dropout(0.2))
    x, _ = batches(1)[0]
    state = torch.get_rng_state()
    first = model(x)
    torch.set_rng_state(state)
    second = model(x)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        third = model(x)
    (first + second * third).square().mean().backward()
    return outcome([first, second, third], model)


# ----------------------------------------------------------------------------------------------------
# Surgery on tensors


@scenario()
def data_assignment_and_set() -> Outcome:
    def body(h: Tensor, w: Tensor) -> Tensor:
        y = (h @ w).tanh()
        held = torch.zeros(2)
        held.data = y.detach().sin()
        other = torch.empty(0)
        other.set_(y.detach().cos())
        other.data.mul_(0.5)
        grown = torch.ones(4)
        grown.resize_(ROWS, WIDTH).copy_(held)
        grown.resize_(ROWS // 2, WIDTH)
        return y * held + other + grown.sum() / ROWS

    found = deep(body)
    weight = nn.Parameter(torch.zeros(3))
    weight.data = found["weights"][0].detach() * 2
    found["weights"][1].data = found["weights"][1].data.t().contiguous()
    found["weights"][2].data.copy_(weight.data)
    return {**found, "weight": weight, "half": (weight * 2).sum()}


@scenario()
def requires_grad_toggled_and_frozen() -> Outcome:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    losses = []
    for step, (x, y) in enumerate(batches(3)):
        for number, p in enumerate(model.parameters()):
            p.requires_grad_((number + step) % 3 != 0)
        losses += fit(model, optimizer, [(x, y)])
    return outcome(losses, model, optimizer)


@scenario()
def shared_parameters() -> Outcome:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.once = nn.Linear(64, 64)
            self.again = nn.Linear(64, 64)
            self.again.weight = self.once.weight

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(4):
                x = x + self.again(torch.tanh(self.once(x)))
            return x @ self.once.weight.t()

    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    return outcome(fit(model, optimizer, batches(2)), model)


@scenario()
def weight_norm_parametrization() -> Outcome:
    model = mlp(32, 6)
    for number in (0, 4):
        parametrizations.weight_norm(model[number])
    parametrizations.spectral_norm(model[8])
    parametrizations.orthogonal(model[2])
    optimizer = torch.optim.Adam(model.parameters())
    return outcome(fit(model, optimizer, batches(2, 1024, 32)), model, optimizer)


@scenario()
def learning_rate_schedule() -> Outcome:
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=6)
    losses = []
    for batch in batches(3, rows=256):
        losses += fit(model, optimizer, [batch])
        schedule.step()
    return outcome([losses, schedule.get_last_lr()], model, optimizer)


@scenario()
def moving_average_of_weights() -> Outcome:
    model = mlp(64, 8)
    average = copy.deepcopy(model)
    swa = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for batch in batches(3):
        losses += fit(model, optimizer, [batch])
        swa.update_parameters(model)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
    return outcome(losses, model, average=average.state_dict(), swa=swa.state_dict())


@scenario()
def flattened_parameters() -> Outcome:
    model = mlp(64, 8)
    losses = []
    for x, y in batches(2):
        loss = F.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        flat = nn.utils.parameters_to_vector(model.parameters()) - 0.1 * torch.cat([g.flatten() for g in grads])
        nn.utils.vector_to_parameters(flat.detach(), model.parameters())
        losses.append(loss.detach())
    return outcome(losses, model, grads=grads)


# ----------------------------------------------------------------------------------------------------
# Python around the tensors


@scenario(evicts=False)
def data_loader_with_two_workers() -> Outcome:
    model = mlp(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(1024, 16), torch.randn(1024, 16))
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=256, shuffle=True, num_workers=2, generator=order)
    losses = []
    for x, y in loader:
        losses += fit(model, optimizer, [(x, y)])
    return outcome(losses, model)


@scenario()
def generator_closed_inside() -> Outcome:
    model = mlp(64, 8)
    closed = []

    def features(x: Tensor) -> Iterator[Tensor]:
        try:
            with torch.no_grad():
                for layer in model:
                    x = layer(x)
                    yield x
        finally:
            closed.append(x.sum().item())

    x, y = batches(1)[0]
    kept = []
    for _ in range(3):
        walk = features(x)
        kept += [next(walk) for _ in range(9)]
        walk.close()
    losses = fit(model, torch.optim.SGD(model.parameters(), 0.1), [(kept[4], y)])
    return outcome(losses, model, kept=kept, closed=closed)


@scenario()
def errors_caught_inside() -> Outcome:
    def body(h: Tensor, w: Tensor) -> Tensor:
        y = (h @ w).tanh()
        for wrong in (lambda: y @ y, lambda: y.view(7, 7), lambda: y[:, 999], lambda: y.add_(torch.zeros(3))):
            try:
                wrong()
            except (RuntimeError, IndexError):
                continue
            raise AssertionError("torch accepted a wrong shape")
        return y * y.sigmoid()

    return deep(body)


@scenario()
def attributes_and_references() -> Outcome:
    import weakref

    model = mlp(64, 8)
    x, y = batches(1)[0]
    hidden = model[:6](x)
    reference = weakref.ref(hidden)
    hidden.note = "kept"  # type: ignore[attr-defined]
    identity = id(hidden), hidden._version, hidden.is_contiguous(), tuple(hidden.shape), hidden.stride()
    loss = F.mse_loss(model[6:](hidden), y)
    loss.backward()
    same = reference() is hidden and id(hidden) == identity[0] and hidden._version == identity[1]
    storage = hidden.untyped_storage()
    facts = [same, hidden.note, hidden.grad_fn is not None, storage.nbytes() >= 512 * 64 * 4]  # type: ignore[attr-defined]
    return outcome([loss], model, facts=facts, hidden=hidden)


@scenario()
def ordered_dict_of_modules_in_float64() -> Outcome:
    model = nn.Sequential(
        OrderedDict((f"layer{n}", nn.Sequential(nn.Linear(48, 48), nn.PReLU(), nn.RMSNorm(48))) for n in range(6))
    ).double()
    optimizer = torch.optim.Adamax(model.parameters())
    data = [(torch.randn(256, 48).double(), torch.randn(256, 48).double()) for _ in range(2)]
    return outcome(fit(model, optimizer, data), model, optimizer)


@scenario()
def chain_of_pointwise_ops() -> Outcome:
    x = torch.randn(64, 256, requires_grad=True)
    y = x
    kept = []
    for number in range(120):
        y = y.sin() if number % 2 else y * 1.01
        if number % 30 == 0:
            kept.append(y)
    y.sum().backward()
    return {"y": y, "kept": kept, "gradient": x.grad}
