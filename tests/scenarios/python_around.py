"""Python around the tensors: workers, generators, errors, references."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from .residual import deep
from .table import Outcome, outcome, scenario
from .training import batches, fit, mlp


@scenario()
def data_loader_with_two_workers() -> Outcome:
    """The clock decides how many batches wait at a time, so they are narrow beside the activations."""
    model = nn.Sequential(nn.Linear(1, 64), *mlp(64, 8), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(4096, 1), torch.randn(4096, 1))
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=1024, shuffle=True, num_workers=2, generator=order)
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
