"""Everything of torch that is not public and that Remat uses. No other package names it."""
