"""Kinds of tensors, transforms, modes and generators."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .residual import ROWS, WIDTH, deep
from .table import Outcome, outcome, scenario
from .training import batches, fit, mlp


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
