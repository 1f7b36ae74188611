"""Networks of convolutions and batch norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .table import Outcome, outcome, scenario
from .training import fit


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
