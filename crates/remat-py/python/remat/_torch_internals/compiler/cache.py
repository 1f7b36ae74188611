"""Torch's compile cache: under which key it keeps a graph, and whether it was there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_one_at_a_time = threading.RLock()


@dataclass
class CacheUse:
    """The part of the cache in one compilation; ``key`` is ``None`` where torch keeps nothing of it."""

    key: str | None = None
    found: bool = False


@contextmanager
def watched_cache() -> Iterator[CacheUse]:
    """Watches the cache while one graph is compiled; the yielded object is complete at the end."""
    from torch._dynamo.utils import counters
    from torch._functorch._aot_autograd import autograd_cache

    use = CacheUse()
    torchs = autograd_cache.autograd_cache_key

    def noted(*args: Any, **kwargs: Any) -> Any:
        answer = torchs(*args, **kwargs)
        # Inductor compiles graphs within graphs; the outermost asks for its key first.
        use.key = use.key or answer[0]
        return answer

    hits = counters["aot_autograd"]["autograd_cache_hit"]
    with _one_at_a_time:
        autograd_cache.autograd_cache_key = noted
        try:
            yield use
        finally:
            autograd_cache.autograd_cache_key = torchs
    use.found = counters["aot_autograd"]["autograd_cache_hit"] > hits


def cache_folder() -> Path:
    """The folder in which torch keeps compiled graphs."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return Path(cache_dir())
