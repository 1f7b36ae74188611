"""Bytes on a device: budgets as users write them, tensors that exist, peaks of a step."""
