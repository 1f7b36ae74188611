"""Kernels that code generation will make: which ops each holds, and which values they write."""
