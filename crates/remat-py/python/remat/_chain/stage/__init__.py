"""Stages of a chain: running them again to the same bits, and measuring them."""
