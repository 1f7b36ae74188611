"""Networks unrolled over a sequence, a tree or steps: recurrent ones, attention, a GAN."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .residual import ROWS, WIDTH, deep
from .table import Outcome, outcome, scenario
from .training import mlp


def _recurrent(kind: type[nn.LSTM | nn.GRU], packed: bool) -> Outcome:
    model = kind(24, 24, num_layers=2, batch_first=True, dropout=0.1, bidirectional=packed)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(2):
        x = torch.randn(16, 24, 24)
        if packed:
            given: Any = nn.utils.rnn.pack_padded_sequence(x, torch.arange(24, 8, -1), batch_first=True)
            out, state = model(given)
            out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        else:
            out, state = model(x)
        last = state[0] if isinstance(state, tuple) else state
        loss = out.square().mean() + last.sin().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model)


scenario(name="lstm", evicts=False)(lambda: _recurrent(nn.LSTM, packed=False))
scenario(name="lstm_packed", evicts=False)(lambda: _recurrent(nn.LSTM, packed=True))
scenario(name="gru")(lambda: _recurrent(nn.GRU, packed=False))


@scenario()
def lstm_cells_unrolled() -> Outcome:
    cell, head = nn.LSTMCell(32, 32), nn.Linear(32, 32)
    model = nn.ModuleList([cell, head])
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    state = (torch.zeros(64, 32), torch.zeros(64, 32))
    for _ in range(2):
        loss = torch.zeros(())
        for x in torch.randn(24, 64, 32):
            state = cell(x, state)
            loss = loss + head(state[0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = (state[0].detach(), state[1].detach())
        losses.append(loss.detach())
    return outcome(losses, model, optimizer, state=state)


@scenario()
def scaled_dot_product_attention() -> Outcome:
    def body(h: Tensor, w: Tensor) -> Tensor:
        q, k, v = ((h @ w).view(4, 128, 4, 16).transpose(1, 2) * scale for scale in (1.0, 0.5, 2.0))
        causal = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        masked = F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(128, 128).tril().bool(), dropout_p=0.1)
        return (causal + masked).transpose(1, 2).reshape(ROWS, WIDTH)

    return deep(body, depth=4)


@scenario()
def transformer_layers() -> Outcome:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Embedding(50, 32), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))
    head = nn.Linear(32, 50)
    head.weight = model[0].weight  # type: ignore[assignment]
    model.append(head)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(2):
        tokens = torch.randint(0, 50, (8, 48))
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return outcome(losses, model, optimizer)


class TreeLSTM(nn.Module):
    """Binary child-sum TreeLSTM over nested tuples of word numbers."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(64, width)
        self.gates = nn.Linear(2 * width, 5 * width)

    def forward(self, tree: Any) -> tuple[Tensor, Tensor]:
        if isinstance(tree, Tensor):
            return self.words(tree), torch.zeros(tree.shape[0], self.width)
        (left_h, left_c), (right_h, right_c) = self(tree[0]), self(tree[1])
        i, f, g, o, u = self.gates(torch.cat([left_h, right_h], 1)).chunk(5, 1)
        cell = i.sigmoid() * u.tanh() + f.sigmoid() * left_c + g.sigmoid() * right_c
        hidden = o.sigmoid() * cell.tanh()
        if float(hidden.detach().mean()) > 0.05:  # the graph depends on the data
            hidden = hidden * 0.5
        return hidden, cell


@scenario()
def tree_lstm() -> Outcome:
    def grown(depth: int) -> Any:
        if depth == 0 or (depth < 3 and torch.rand(()).item() < 0.2):
            return torch.randint(0, 64, (48,))
        return grown(depth - 1), grown(depth - 1)

    model = TreeLSTM()
    optimizer = torch.optim.Adagrad(model.parameters(), 0.05)
    losses = []
    for depth in (4, 5):
        hidden, _ = model(grown(depth))
        loss = hidden.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, model, optimizer)


@scenario()
def unrolled_gan() -> Outcome:
    generator, critic = mlp(32, 3), mlp(32, 3)
    optimizer = torch.optim.Adam(generator.parameters(), 0.01)
    losses = []
    for _ in range(2):
        weights = dict(critic.named_parameters())
        real, noise = torch.randn(256, 32), torch.randn(256, 32)
        fake = generator(noise)
        for _ in range(3):
            right = torch.func.functional_call(critic, weights, (real,)).mean(1)
            wrong = torch.func.functional_call(critic, weights, (fake,)).mean(1)
            loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
            grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
        loss = F.softplus(-torch.func.functional_call(critic, weights, (fake,))).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return outcome(losses, generator, optimizer, critic=[p.grad for p in critic.parameters()])
