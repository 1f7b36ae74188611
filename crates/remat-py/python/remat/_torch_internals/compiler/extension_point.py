"""Inductor's extension point for partitioners. It is imported first, so that the error names it where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._errors import RematError

if TYPE_CHECKING:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn
else:
    try:
        from torch._inductor.custom_graph_pass import CustomPartitionerFn
    except ImportError:
        raise RematError("remat.compile needs torch 2.9 or newer: before, Inductor takes no partitioner") from None

__all__ = ["CustomPartitionerFn"]
