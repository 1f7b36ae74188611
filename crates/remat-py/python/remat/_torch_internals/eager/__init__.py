"""Everything of eager torch that is not public and that Remat uses, and the slower paths of the session.

It is ``TorchDispatchMode`` and its stack, ``OpOverload._op`` and ``_schema``, ``_cdata`` of storages,
``torch._C.TensorBase``, the legacy profiler and ``torch.utils._pytree``. No other package of Remat names them. The
session calls functions of this package by their names here.
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode

from .allocations import Allocations, Segment, allocations, measured_call, wait_for_autograd
from .backward_passes import after_backward, prepare_backward
from .caching import CACHING_PLATFORM, prepare_caching
from .call_sites import BACKWARD_CALL, MODULE_CALL, node_leaf, node_number
from .clocks import clock_of
from .devices import (
    accelerator_here,
    blank_like,
    blank_storage,
    current_index,
    device_in_use,
    device_name,
    device_of,
    devices,
    empty_storage,
    free_memory,
    physical_memory,
    storage_over,
    synchronizer,
    usual_device,
)
from .families import Family
from .forms import QUANTIZED, any_nested, form
from .global_state import GETTERS, SETTERS, enter_state, state_number
from .graph import generators, hooks_aside, leaves
from .layout import probe_layout
from .modes import (
    as_usual,
    below_autograd,
    count_modes,
    drop_mode,
    exclude_again,
    grad_enabled,
    handle_lazy,
    left_to_subclass,
    pop_mode,
    push_mode,
    redispatch,
    set_grad_mode,
)
from .native import (
    not_run_natively,
    objects_race,
    parts_through_python,
    passes_known,
    prepare_native,
    route,
    watch_storages,
)
from .not_compiled import keep_from_dynamo
from .ops import accumulating, classify, contents, describe
from .processes import started_processes
from .random_state import default_states
from .references import references
from .replays import RNG_BYTES, budget_error, own_frames_dropped, replay_random, rng_state, view
from .sizes import OWN_PREDICTIONS, predict
from .statistics import block_size, statistics_of
from .streams import Streams
from .tensors import (
    TensorBase,
    flatten,
    flatten_tree,
    part_storages,
    parts,
    storage_id,
    unflatten_tree,
    unwrapped,
    use_count,
)
from .workspace import estimate_workspace

__all__ = [
    "BACKWARD_CALL",
    "CACHING_PLATFORM",
    "GETTERS",
    "MODULE_CALL",
    "OWN_PREDICTIONS",
    "QUANTIZED",
    "RNG_BYTES",
    "SETTERS",
    "Allocations",
    "Segment",
    "Streams",
    "TensorBase",
    "TorchDispatchMode",
    "accelerator_here",
    "accumulating",
    "after_backward",
    "allocations",
    "any_nested",
    "as_usual",
    "below_autograd",
    "blank_like",
    "blank_storage",
    "block_size",
    "budget_error",
    "classify",
    "clock_of",
    "contents",
    "count_modes",
    "current_index",
    "default_states",
    "describe",
    "device_in_use",
    "device_name",
    "device_of",
    "devices",
    "drop_mode",
    "empty_storage",
    "enter_state",
    "estimate_workspace",
    "exclude_again",
    "flatten",
    "flatten_tree",
    "form",
    "free_memory",
    "generators",
    "grad_enabled",
    "handle_lazy",
    "hooks_aside",
    "leaves",
    "left_to_subclass",
    "measured_call",
    "node_leaf",
    "node_number",
    "not_run_natively",
    "objects_race",
    "own_frames_dropped",
    "part_storages",
    "parts",
    "parts_through_python",
    "passes_known",
    "physical_memory",
    "pop_mode",
    "predict",
    "prepare_backward",
    "prepare_caching",
    "prepare_native",
    "probe_layout",
    "push_mode",
    "redispatch",
    "references",
    "replay_random",
    "rng_state",
    "route",
    "set_grad_mode",
    "started_processes",
    "state_number",
    "statistics_of",
    "storage_id",
    "storage_over",
    "synchronizer",
    "unflatten_tree",
    "unwrapped",
    "use_count",
    "usual_device",
    "view",
    "wait_for_autograd",
    "watch_storages",
]

keep_from_dynamo(value for name, value in list(globals().items()) if name in __all__)
keep_from_dynamo([Family.measured])  # the session calls it
