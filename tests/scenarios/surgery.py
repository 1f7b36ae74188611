"""Surgery on tensors and parameters."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from .residual import ROWS, WIDTH, deep
from .table import Outcome, outcome, scenario
from .training import batches, fit, mlp


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
