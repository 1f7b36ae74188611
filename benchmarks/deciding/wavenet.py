"""Three steps of a WaveNet of 16 blocks: sums over the blocks that no op keeps for its gradient."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
reach = [2 ** (block % 8) for block in range(16)]
entry, head = nn.Conv1d(1, 32, 1), nn.Conv1d(32, 1, 1)
gates = nn.ModuleList(nn.Conv1d(32, 64, 2, dilation=dilation) for dilation in reach)
sums = nn.ModuleList(nn.Conv1d(32, 32, 1) for _ in reach)
optimizer = torch.optim.Adam(nn.ModuleList([entry, gates, sums, head]).parameters())
for _ in range(3):
    sound = torch.randn(4, 1, 2048)
    through, skipped = entry(sound), torch.zeros(())
    for dilation, gate, out in zip(reach, gates, sums, strict=True):
        value, share = gate(nn.functional.pad(through, (dilation, 0))).chunk(2, 1)
        block = value.tanh() * share.sigmoid()
        skipped, through = skipped + block, through + out(block)
    (head(skipped.relu())[..., :-1] - sound[..., 1:]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
