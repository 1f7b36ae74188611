"""Warnings, each at the line of the program that it is about."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

#: Modules that run a program for a command: the frames around them are those of the command.
_COMMANDS = ("remat._online.script", "remat._online.measured", "remat._online.spawned")

#: Remat's own code, and the standard library's that leaves contexts.
_SKIPPED = ("remat", "contextlib")

#: Frames above all that there are, for which Python names no place.
_NOWHERE = 2**30


def warn(message: str) -> None:
    """Warns at the line of the program that led here; at none where a command did, such as ``remat run``."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and (module := frame.f_globals.get("__name__", "")).partition(".")[0] in _SKIPPED:
        if module in _COMMANDS:
            level = _NOWHERE
            break
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
