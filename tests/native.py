"""Why ops cannot reach Remat natively with this release of torch, and the mark of tests that need them to."""

from __future__ import annotations

import pytest
from remat._torch_internals import eager

#: ``None`` where they can.
REASON = eager.prepare_native()
needed = pytest.mark.skipif(REASON is not None, reason=str(REASON))
