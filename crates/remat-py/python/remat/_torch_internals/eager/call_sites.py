"""Marks on a thread's stack by which the module and the pass of an op are found, and the node that autograd runs."""

from __future__ import annotations

from typing import Any

import torch
import torch.autograd.graph

_C: Any = torch._C

#: The code that calls a module. Its own names do not change while it runs, so that looking keeps no tensor alive.
MODULE_CALL = torch.nn.Module._wrapped_call_impl.__code__

#: The code in which autograd's engine runs.
BACKWARD_CALL = torch.autograd.graph._engine_run_backward.__code__


def node_number() -> int | None:
    """The number of the node that autograd runs on this thread: its forward op's, in order."""
    node = _C._current_autograd_node()
    return None if node is None else int(node._sequence_nr())


def node_leaf() -> torch.Tensor | None:
    """The leaf in which the node that autograd runs leaves a gradient, if it does."""
    return getattr(_C._current_autograd_node(), "variable", None)
