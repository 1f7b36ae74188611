"""A step of a Mamba of two layers with random weights."""

import torch
from transformers import MambaConfig, MambaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)
config = MambaConfig(vocab_size=64, hidden_size=32, state_size=8, num_hidden_layers=2, use_mambapy=False)
model = MambaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
tokens = torch.randint(0, 64, (4, 48))
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
optimizer.zero_grad()
