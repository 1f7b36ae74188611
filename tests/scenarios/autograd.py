"""Higher-order gradients, hooks, custom functions and checkpoints."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .residual import WIDTH, deep
from .table import Outcome, outcome, scenario
from .training import batches, mlp


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
