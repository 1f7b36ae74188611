"""Budgets around any part of a program: entering one, leaving it, ``remat run``, ``remat.measure``."""
