"""The file that a timeline is written to; checked before torch is loaded."""

from __future__ import annotations

import os

#: Suffixes of a timeline's file.
TIMELINES = (".html", ".json", ".pickle")


def check_timeline(path: str | os.PathLike[str] | None) -> None:
    """``ValueError`` for a file whose suffix says nothing of what to write."""
    if path is not None and os.path.splitext(path)[1] not in TIMELINES:
        raise ValueError(
            f"timeline {os.fspath(path)!r}: expected a name that ends in .html (a page), .json (a trace for Perfetto) "
            "or .pickle (a snapshot for torch's memory_viz)"
        )
