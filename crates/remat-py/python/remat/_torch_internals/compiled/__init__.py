"""Graphs that torch's compiler made, as they run: the Python that Inductor generated for them, and graphs as ops.

The compiler itself is not loaded for it. What is not public here are ``CompiledFxGraph`` of ``torch._inductor``, the
callbacks of ``torch._dynamo``, and ``torch._subclasses``.
"""

from __future__ import annotations

from .generated_code import Call, Taken, call_of, dry_run, on_zeros, outside_of_compilation, signature
from .graph_ops import CompiledGraphs
from .sizes import number_of

__all__ = [
    "Call",
    "CompiledGraphs",
    "Taken",
    "call_of",
    "dry_run",
    "number_of",
    "on_zeros",
    "outside_of_compilation",
    "signature",
]
