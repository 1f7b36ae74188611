"""A step of a Llama of four layers with random weights."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)
config = LlamaConfig(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
tokens = torch.randint(0, 128, (8, 64))
model(input_ids=tokens, labels=tokens).loss.backward()
optimizer.step()
optimizer.zero_grad()
