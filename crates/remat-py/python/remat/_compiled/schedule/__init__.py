"""Compiled graphs whose kernels run again by a plan of the step planner."""
