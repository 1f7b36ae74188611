"""A small GPT with dropout learns to write Python, byte by byte, from the standard library's sources."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from data import random_windows, source_text
from torch import Tensor, nn
from training import make_optimizer, options, prepare, train, update


class Attention(nn.Module):
    """Causal self-attention over (n, time, width)."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, time, width = x.shape
        heads = self.qkv(x).view(n, time, 3, self.heads, width // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return F.dropout(self.out(y.transpose(1, 2).reshape(n, time, width)), self.dropout, self.training)


class Block(nn.Module):
    """Attention, then a perceptron, each beside a shortcut and after a layer norm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.norm2 = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.perceptron(self.norm2(x))


class GPT(nn.Module):
    """Bytes (n, time) to scores of the next byte (n, time, 256)."""

    def __init__(
        self, depth: int = 4, width: int = 128, heads: int = 4, context: int = 128, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        time = torch.arange(text.shape[1], device=text.device)
        x = self.dropout(self.token(text) + self.position(time))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    parser = options(__doc__, steps=40, batch=16, optimizer="adamw", lr=2e-3)
    parser.add_argument("--depth", type=int, default=4, help="transformer blocks")
    parser.add_argument("--width", type=int, default=128, help="width of the residual stream")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--context", type=int, default=128, help="bytes in a window")
    parser.add_argument("--dropout", type=float, default=0.1, help="probability of dropping a value")
    args = parser.parse_args()
    prepare(args)

    text = source_text()
    model = GPT(args.depth, args.width, args.heads, args.context, args.dropout).to(args.device)
    optimizer = make_optimizer(args, model.parameters())

    def step() -> Tensor:
        x, y = random_windows(text, args.batch, args.context)
        scores = model(x.to(args.device))
        loss = F.cross_entropy(scores.flatten(0, 1), y.to(args.device).flatten())
        update(optimizer, loss)
        return loss

    train(args, model, step)


if __name__ == "__main__":
    main()
