"""An LSTM learns to write Python, byte by byte, from the standard library's sources."""

from __future__ import annotations

import torch.nn.functional as F
from data import random_windows, source_text
from torch import Tensor, nn
from training import make_optimizer, options, prepare, train, update


class CharacterLSTM(nn.Module):
    """Bytes (n, time) to scores of the next byte (n, time, 256)."""

    def __init__(self, depth: int = 2, width: int = 128, dropout: float = 0.1) -> None:
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.lstm = nn.LSTM(width, width, depth, batch_first=True, dropout=dropout if depth > 1 else 0.0)
        self.head = nn.Linear(width, 256)

    def forward(self, text: Tensor) -> Tensor:
        states, _ = self.lstm(self.token(text))
        return self.head(states)


def main() -> None:
    parser = options(__doc__, steps=60, batch=32, optimizer="adamw", lr=5e-3)
    parser.add_argument("--depth", type=int, default=2, help="layers")
    parser.add_argument("--width", type=int, default=128, help="width of the state")
    parser.add_argument("--context", type=int, default=128, help="bytes in a window")
    parser.add_argument("--dropout", type=float, default=0.1, help="dropout between layers")
    args = parser.parse_args()
    prepare(args)

    text = source_text()
    model = CharacterLSTM(args.depth, args.width, args.dropout).to(args.device)
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
