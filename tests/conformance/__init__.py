"""Torch's own databases of ops, modules and optimizers, run under Remat and compared with plain eager."""
