"""Estimated times of ops: the cost of recomputing them where memory is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.utils.flop_counter import flop_registry

from ..compiled import Call, number_of

# Arithmetic operations, and bytes, in a nanosecond. Only their ratio decides which ops are recomputed first. It is
# fixed, so that plans do not change from run to run.
_RATES_OF_CPU, _RATES_OF_ACCELERATOR = (100.0, 10.0), (50_000.0, 1_500.0)


def nanoseconds(node: fx.Node, read_bytes: int, written_bytes: int) -> int:
    """The time of an op by its arithmetic, or by the bytes that it reads and writes, whichever is longer."""
    value = node.meta.get("val")
    first = next((leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)), None)
    on_cpu = first is None or first.device.type in ("cpu", "meta")
    operations_rate, bytes_rate = _RATES_OF_CPU if on_cpu else _RATES_OF_ACCELERATOR
    return round(max(_operations(node) / operations_rate, (read_bytes + written_bytes) / bytes_rate))


def nanoseconds_of_calls(calls: Sequence[Call], made: Any, moved_bytes: int) -> int:
    """The time of a kernel or an op on a processor that runs these ops, returns ``made`` and moves so many bytes."""
    operations = 0.0
    for call in calls:
        count = flop_registry.get(getattr(call.op, "overloadpacket", None))
        if count is not None:
            kwargs = {name: value for name, value in call.kwargs.items() if name != "out"}
            operations += float(count(*call.args, **kwargs, out_val=made))
    operations_rate, bytes_rate = _RATES_OF_CPU
    return round(max(operations / operations_rate, moved_bytes / bytes_rate))


def _operations(node: fx.Node) -> float:
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0.0
    args, kwargs, out = pytree.tree_map(_shaped, (node.args, node.kwargs, node.meta.get("val")))
    return float(count(*args, **kwargs, out_val=out))


def _shaped(value: Any) -> Any:
    """Values with nodes replaced by tensors without memory; sizes that depend on the input count as in the first."""
    if isinstance(value, fx.Node):
        return pytree.tree_map(_shaped, value.meta.get("val"))
    if isinstance(value, torch.Tensor):
        return torch.empty([number_of(size) for size in value.shape], device="meta", dtype=value.dtype)
    return number_of(value) if isinstance(value, torch.SymInt) else value
