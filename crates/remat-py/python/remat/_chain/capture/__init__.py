"""From a model's forward pass to the stages of a chain."""
