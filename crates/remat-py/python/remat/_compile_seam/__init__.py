"""Everything of torch's compiler that is not public and that Remat uses.

Not public but needed: ``torch._functorch`` (the partitioner around the choice of what is saved, its lists of ops and
its switches), ``torch._inductor`` (``compile_fx``, ``custom_partitioner_fn``), ``torch._dynamo`` (the registry of
backends). They are named in this package and nowhere else.
"""

from __future__ import annotations

from .backward_node import backward_node, saved_storages
from .generated_code import Call, Taken, dry_run, on_zeros, outside_of_compilation, signature
from .inductor import Generated, compile_graph, exchange, generate_graph, mode_options, plainly, register
from .node_kinds import Kind, NodeKinds, Rules
from .partitioner import Choice, Partitioner, partition, without_recomputing

__all__ = [
    "Call",
    "Choice",
    "Generated",
    "Kind",
    "NodeKinds",
    "Partitioner",
    "Rules",
    "Taken",
    "backward_node",
    "compile_graph",
    "dry_run",
    "exchange",
    "generate_graph",
    "mode_options",
    "on_zeros",
    "outside_of_compilation",
    "partition",
    "plainly",
    "register",
    "saved_storages",
    "signature",
    "without_recomputing",
]
