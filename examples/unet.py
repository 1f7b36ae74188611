"""A U-Net learns to take noise off photographs.

Ronneberger et al. 2015 in small: `--depth` halvings, a skip at every level, group norm; the noise is
predicted and subtracted.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from data import photographs, random_crops
from torch import Tensor, nn
from training import make_optimizer, options, prepare, train, update


def convolutions(inputs: int, outputs: int) -> nn.Sequential:
    """Two 3x3 convolutions, each with group norm and SiLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU(),
    )  # fmt: skip


class UNet(nn.Module):
    """Noisy images (n, 3, size, size) to clean ones; `size` is a multiple of 2**depth."""

    def __init__(self, depth: int = 3, width: int = 16) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            convolutions(inputs, outputs) for inputs, outputs in zip([3, *widths], widths[:-1], strict=False)
        )
        self.bottom = convolutions(widths[-2] if depth else 3, widths[-1])
        levels = list(reversed(widths[:-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * outputs, outputs, 2, stride=2) for outputs in levels)
        self.merge = nn.ModuleList(convolutions(2 * outputs, outputs) for outputs in levels)
        self.head = nn.Conv2d(widths[0], 3, 1)

    def forward(self, noisy: Tensor) -> Tensor:
        x = noisy
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return noisy - self.head(x)


def main() -> None:
    parser = options(__doc__.split("\n")[0], steps=60, batch=16, optimizer="adamw", lr=2e-3)
    parser.add_argument("--depth", type=int, default=3, help="times the image is halved")
    parser.add_argument("--width", type=int, default=16, help="channels at full size")
    parser.add_argument("--size", type=int, default=64, help="side of the crops")
    parser.add_argument("--noise", type=float, default=0.2, help="standard deviation of the noise")
    args = parser.parse_args()
    prepare(args)

    photos = photographs()
    model = UNet(args.depth, args.width).to(args.device)
    optimizer = make_optimizer(args, model.parameters())

    def step() -> Tensor:
        clean = random_crops(photos, args.batch, args.size).to(args.device)
        loss = F.mse_loss(model(clean + args.noise * torch.randn_like(clean)), clean)
        update(optimizer, loss)
        return loss

    train(args, model, step)


if __name__ == "__main__":
    main()
