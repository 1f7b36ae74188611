"""A step of a GPT of many narrow layers, random weights: `many_layers.py LAYERS`, 91 ops a layer with its views."""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS = 32, 4


class Block(nn.Module):
    """A layer of attention and of two linear maps."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_linear = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: batch, tokens, width."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, tokens, 3, HEADS, WIDTH // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(-2, -1) * (WIDTH // HEADS) ** -0.5, -1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(batch, tokens, WIDTH))
        return x + self.down(F.gelu(self.up(self.before_linear(x))))


torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(*(Block() for _ in range(int(sys.argv[1]))))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x, y = torch.randn(4, 32, WIDTH), torch.randn(4, 32, WIDTH)
F.mse_loss(model(x), y).backward()
optimizer.step()
