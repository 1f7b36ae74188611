"""A residual network with batch norm learns to read handwritten digits.

The CIFAR form of He et al. 2016: a 3x3 stem, three stages of `--depth` blocks at widths w, 2w and 4w, global
average pooling. `--depth 3` is their ResNet-20.
"""

from __future__ import annotations

import torch.nn.functional as F
from data import digits, shuffled_batches
from torch import Tensor, nn
from training import make_optimizer, options, prepare, train, update


class Block(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """Images (n, 1, size, size) to class scores (n, 10)."""

    def __init__(self, depth: int = 3, width: int = 16, channels: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
        blocks = []
        inputs = width
        for stage in range(3):
            outputs = width << stage
            for index in range(depth):
                blocks.append(Block(inputs, outputs, stride=2 if stage > 0 and index == 0 else 1))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=(2, 3)))


def main() -> None:
    parser = options(__doc__.split("\n")[0], steps=60, batch=64, optimizer="sgd", lr=0.05)
    parser.add_argument("--depth", type=int, default=3, help="blocks in each of the three stages")
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--size", type=int, default=32, help="side of the images, scaled from 8")
    args = parser.parse_args()
    prepare(args)

    images, labels = digits(args.size)
    batches = shuffled_batches(images, labels, batch=args.batch)
    model = ResNet(args.depth, args.width).to(args.device)
    optimizer = make_optimizer(args, model.parameters())

    def step() -> Tensor:
        x, y = next(batches)
        loss = F.cross_entropy(model(x.to(args.device)), y.to(args.device))
        update(optimizer, loss)
        return loss

    train(args, model, step)


if __name__ == "__main__":
    main()
