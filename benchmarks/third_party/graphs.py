"""torch_geometric: convolutions, attention, sampling and pooling on graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .catalogue import add, fit, program

NODES, EDGES, WIDTH = 800, 4000, 32


def graph() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(NODES, WIDTH), torch.randint(0, NODES, (2, EDGES)), torch.randint(0, 4, (NODES,))


def _network(kind: str, **how: Any) -> list[float]:
    import torch_geometric.nn as layers

    x, edges, labels = graph()
    model = getattr(layers, kind)(in_channels=WIDTH, hidden_channels=32, num_layers=3, out_channels=4, **how)
    return fit(model, lambda: nn.functional.cross_entropy(model(x, edges), labels))


add("torch_geometric", "GCN", lambda: _network("GCN", dropout=0.2))
add("torch_geometric", "GAT", lambda: _network("GAT", heads=4, v2=True))
add("torch_geometric", "GraphSAGE", lambda: _network("GraphSAGE", norm="BatchNorm", jk="cat"))
add("torch_geometric", "GIN", lambda: _network("GIN", norm="GraphNorm"))
add(
    "torch_geometric",
    "PNA",
    lambda: _network(
        "PNA", aggregators=["mean", "max", "std"], scalers=["identity"], deg=torch.ones(20, dtype=torch.long)
    ),
)


@program("torch_geometric")
def molecules() -> Any:
    """SchNet: distances, radial basis functions and energies with forces, a second order."""
    from torch_geometric.nn.models import SchNet

    model = SchNet(hidden_channels=32, num_filters=32, num_interactions=2, num_gaussians=16, interaction_graph=_near)
    kinds, batch = torch.randint(1, 9, (64,)), torch.arange(8).repeat_interleave(8)
    places = torch.randn(64, 3)

    def loss() -> torch.Tensor:
        at = places.clone().requires_grad_()
        energy = model(kinds, at, batch)
        (forces,) = torch.autograd.grad(energy.sum(), at, create_graph=True)
        return energy.square().mean() + forces.square().mean()

    return fit(model, loss)


def _near(places: torch.Tensor, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """All pairs within a molecule."""
    pairs = (batch[:, None] == batch[None, :]) & ~torch.eye(len(batch), dtype=torch.bool)
    row, column = pairs.nonzero(as_tuple=True)
    return torch.stack([row, column]), (places[row] - places[column]).norm(dim=-1)


@program("torch_geometric")
def batched_graphs() -> Any:
    """Batches from a loader, pooled by graph."""
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader
    from torch_geometric.nn import GINEConv, global_mean_pool

    def one() -> Data:
        return Data(
            torch.randn(20, 16), torch.randint(0, 20, (2, 60)), torch.randn(60, 16), y=torch.randint(0, 3, (1,))
        )

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(GINEConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU())) for _ in range(3))
            self.out = nn.Linear(16, 3)

        def forward(self, data: Data) -> torch.Tensor:
            x = data.x
            for layer in self.layers:
                x = layer(x, data.edge_index, data.edge_attr).relu()
            return self.out(global_mean_pool(x, data.batch))

    model, losses = Net(), []
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for data in DataLoader([one() for _ in range(128)], batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(model(data), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@program("torch_geometric")
def variational_graph_autoencoder() -> Any:
    from torch_geometric.nn import VGAE, GCNConv

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.mean, self.spread = GCNConv(WIDTH, 32), GCNConv(32, 16), GCNConv(32, 16)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            hidden = self.first(x, edges).relu()
            return self.mean(hidden, edges), self.spread(hidden, edges)

    (x, edges, _), model = graph(), VGAE(Encoder())

    def loss() -> torch.Tensor:
        return model.recon_loss(model.encode(x, edges), edges) + model.kl_loss() / NODES

    return fit(model, loss)
