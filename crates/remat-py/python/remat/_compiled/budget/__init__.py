"""Compiled graphs within a budget: forecasts of memory, the search for a plan, measured steps."""
