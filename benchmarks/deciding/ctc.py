"""A step of a CTC loss on a bidirectional LSTM with packed sequences."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
lstm = nn.LSTM(24, 32, num_layers=2, bidirectional=True, batch_first=True)
head = nn.Linear(64, 20)
optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()])
x, lengths = torch.randn(8, 48, 24), torch.arange(48, 16, -4)
labels = torch.randint(1, 20, (8, 8))
packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
hidden, read = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
scores = head(hidden).log_softmax(-1).transpose(0, 1)
nn.functional.ctc_loss(scores, labels, read, torch.full((8,), 8)).backward()
optimizer.step()
optimizer.zero_grad()
