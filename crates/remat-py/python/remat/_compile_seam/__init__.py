"""Everything of torch's compiler that is not public and that Remat uses.

Not public but needed: ``torch._functorch`` (the partitioner around the choice of what is saved, its lists of ops and
its switches), ``torch._inductor`` (``compile_fx``, ``custom_partitioner_fn``, where it keeps
what it compiled), ``torch._dynamo`` (errors, counters). They are named in this package and nowhere else.
"""

from __future__ import annotations

from .backward_node import backward_node, saved_storages
from .cache import CacheUse, cache_folder, watched_cache
from .inductor import compile_graph, exchange, mode_options, plainly
from .lowering_rules import LoweringRules
from .node_kinds import Kind, NodeKinds, Rules
from .partitioner import Choice, Partitioner, partition, without_recomputing
from .post_grad import PostGradPass

__all__ = [
    "CacheUse",
    "Choice",
    "Kind",
    "LoweringRules",
    "NodeKinds",
    "Partitioner",
    "PostGradPass",
    "Rules",
    "backward_node",
    "cache_folder",
    "compile_graph",
    "exchange",
    "mode_options",
    "partition",
    "plainly",
    "saved_storages",
    "watched_cache",
    "without_recomputing",
]
