"""Tensors and states that a program keeps and copies."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .table import Outcome, outcome, scenario
from .training import batches, fit, mlp


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
