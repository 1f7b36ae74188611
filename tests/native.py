"""Why ops cannot reach Remat natively with this release of torch, and marks of tests that need them to."""

from __future__ import annotations

import pytest
import torch
from remat._torch_internals import eager

#: ``None`` where they can.
REASON = eager.prepare_native()
needed = pytest.mark.skipif(REASON is not None, reason=str(REASON))

WATCHING, LEAVES, REPLAYS = (
    "each result gets an object and a weak reference",
    "whether a gradient is left in a leaf",
    "replays",
)
RELEASE = ".".join(torch.__version__.split(".")[:2])

_NODES_ARE_SHARED = {LEAVES}  # nodes are owned by a `std::shared_ptr`
#: Parts of native dispatch that this release of torch is known to leave to Python. All others must be native.
LEFT = {
    "2.9": _NODES_ARE_SHARED,
    "2.10": _NODES_ARE_SHARED,
    "2.11": _NODES_ARE_SHARED,
    "2.12": _NODES_ARE_SHARED,
}.get(RELEASE, set())


def needs(part: str) -> pytest.MarkDecorator:
    """The mark of tests that need a part of native dispatch which some releases of torch leave to Python."""
    return pytest.mark.skipif(part in LEFT, reason=f"torch {RELEASE} leaves it to Python: {part}")
