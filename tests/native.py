"""Why ops cannot reach Remat natively with this release of torch, and marks of tests that need them to."""

from __future__ import annotations

import pytest
import torch
from remat._torch_internals import eager

#: ``None`` where they can.
REASON = eager.prepare_native()
needed = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def left_to_python(*parts: str) -> pytest.MarkDecorator:
    """The mark of tests that need parts of native dispatch which some releases of torch leave to Python."""
    reasons = [left for left in eager.parts_through_python() if left.startswith(tuple(f"{part}: " for part in parts))]
    return pytest.mark.skipif(bool(reasons), reason=f"torch {torch.__version__}: {'; '.join(reasons)}")
