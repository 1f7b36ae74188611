"""``torch.compile`` with Remat's choice of the values that the forward pass saves for the backward pass."""
