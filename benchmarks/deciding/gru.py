"""A step of a GRU cell that generates 64 tokens, each from the last."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
embedding, cell, head = nn.Embedding(40, 48), nn.GRUCell(48, 64), nn.Linear(64, 40)
optimizer = torch.optim.Adam(nn.ModuleList([embedding, cell, head]).parameters())
hidden, token, loss = torch.zeros(16, 64), torch.zeros(16, dtype=torch.long), torch.zeros(())
for target in torch.randint(0, 40, (64, 16)):
    hidden = cell(embedding(token), hidden)
    scores = head(hidden)
    loss = loss + nn.functional.cross_entropy(scores, target)
    token = scores.argmax(-1)
loss.backward()
optimizer.step()
optimizer.zero_grad()
