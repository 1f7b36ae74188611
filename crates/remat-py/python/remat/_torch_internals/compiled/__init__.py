"""Graphs that torch's compiler made, as they run: the Python that Inductor generated for them, and graphs as ops.

The compiler itself is not loaded for it. What is not public here are ``CompiledFxGraph`` of ``torch._inductor``, the
callbacks of ``torch._dynamo``, and ``torch._subclasses``.
"""

from __future__ import annotations

from .generated_code import Call, Taken, call_of, dry_run, on_zeros, outside_of_compilation, signature
from .graph_ops import CompiledGraphs
from .kernel_code import KernelCode
from .kernel_ops import KernelOp, NotTakenApart, Pass, Seen, Value, tensor_of
from .scheduled_code import SLOT, Action, Free, Run, Scheduled, digest, replaced_by, scheduled
from .sizes import number_of

__all__ = [
    "SLOT",
    "Action",
    "Call",
    "CompiledGraphs",
    "Free",
    "KernelCode",
    "KernelOp",
    "NotTakenApart",
    "Pass",
    "Run",
    "Scheduled",
    "Seen",
    "Taken",
    "Value",
    "call_of",
    "digest",
    "dry_run",
    "number_of",
    "on_zeros",
    "outside_of_compilation",
    "replaced_by",
    "scheduled",
    "signature",
    "tensor_of",
]
