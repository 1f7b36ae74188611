"""Everything of torch's compiler that is not public and that Remat uses.

They are ``torch._functorch`` (the partitioner around the choice of saved values, its lists of ops, its switches),
``torch._inductor`` (``compile_fx``, ``custom_partitioner_fn``, the folder of its cache) and ``torch._dynamo`` (errors,
counters). No other package of Remat names them.
"""

from __future__ import annotations

from .backward_node import backward_node, saved_storages
from .cache import CacheUse, cache_folder, watched_cache
from .generated_code import Call, Taken, call_of, dry_run, on_zeros, outside_of_compilation, signature
from .graph_ops import CompiledGraphs
from .inductor import Generated, compile_graph, exchange, generate_graph, mode_options, plainly
from .lowering_rules import LoweringRules
from .node_kinds import Kind, NodeKinds, Rules
from .partitioner import Choice, Partitioner, partition, without_recomputing
from .post_grad import PostGradPass

__all__ = [
    "CacheUse",
    "Call",
    "Choice",
    "CompiledGraphs",
    "Generated",
    "Kind",
    "LoweringRules",
    "NodeKinds",
    "Partitioner",
    "PostGradPass",
    "Rules",
    "Taken",
    "backward_node",
    "cache_folder",
    "call_of",
    "compile_graph",
    "dry_run",
    "exchange",
    "generate_graph",
    "mode_options",
    "on_zeros",
    "outside_of_compilation",
    "partition",
    "plainly",
    "saved_storages",
    "signature",
    "watched_cache",
    "without_recomputing",
]
