"""Everything of torch's compiler that is not public and that Remat uses.

They are ``torch._functorch`` (the partitioner around the choice of saved values, its lists of ops, its switches),
``torch._inductor`` (``compile_fx``, ``custom_partitioner_fn``, the folder of its cache) and ``torch._dynamo`` (errors,
counters). No other package of Remat names them.
"""

from __future__ import annotations

from .backward_node import backward_node, saved_storages
from .cache import CacheUse, cache_folder, watched_cache
from .inductor import Generated, compile_graph, exchange, generate_graph, mode_options, plainly
from .lowering_rules import LoweringRules
from .node_kinds import Kind, NodeKinds, Rules
from .op_time import nanoseconds_of_calls
from .partitioner import Choice, Partitioner, donates_buffers, partition, without_recomputing
from .post_grad import PostGradPass

__all__ = [
    "CacheUse",
    "Choice",
    "Generated",
    "Kind",
    "LoweringRules",
    "NodeKinds",
    "Partitioner",
    "PostGradPass",
    "Rules",
    "backward_node",
    "cache_folder",
    "compile_graph",
    "donates_buffers",
    "exchange",
    "generate_graph",
    "mode_options",
    "nanoseconds_of_calls",
    "partition",
    "plainly",
    "saved_storages",
    "watched_cache",
    "without_recomputing",
]
