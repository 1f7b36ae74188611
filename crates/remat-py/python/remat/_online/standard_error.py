"""Standard error, where a command tells of itself: it may be closed, full, or read by nobody."""

from __future__ import annotations

import os
import sys


def tell(text: str) -> None:
    """Writes to standard error if that is possible.

    Nothing is left in its buffer, which would be written once more as Python ends, and turn the exit code into 120.
    """
    stream, first = sys.stderr, sys.__stderr__
    try:
        stream.flush()
        if first is not None and stream is first:
            os.write(first.fileno(), text.encode(first.encoding, "backslashreplace"))
        else:
            stream.write(text)
            stream.flush()
    except (AttributeError, OSError, ValueError):  # there is none, it takes no more, it is closed
        pass


def is_a_terminal() -> bool:
    """Whether somebody may look at it now."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
