"""Files that a command writes: where they lie, and whether they can be written, before anything runs."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping


def absolute(path: str | os.PathLike[str]) -> str:
    """The place that a path names here, wherever the program goes; ``-`` stays, which may be standard output."""
    text = os.fspath(path)
    return text if text in ("", "-") else os.path.abspath(text)


def check_distinct(files: Mapping[str, str | os.PathLike[str] | None]) -> None:
    """``ValueError`` where one file goes by two of these names, so that the later would overwrite the earlier.

    Devices and named pipes take several outputs.
    """
    seen: dict[str, str] = {}
    for name, path in files.items():
        if path is None or os.fspath(path) in ("", "-") or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        other = seen.setdefault(os.path.realpath(path), name)
        if other != name:
            raise ValueError(f"{other} and {name} name one file, {os.fspath(path)!r}: give each a file of its own")


def check_output(what: str, path: str | os.PathLike[str]) -> None:
    """``OSError`` in one line for a file that cannot be written. One that is there stays as it is."""
    try:
        _check(os.fspath(path))
    except OSError as error:
        raise type(error)(f"cannot write the {what} {os.fspath(path)!r}: {error.strerror}") from None


#: Numbers of the system for a place without room.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unwritten(what: str, path: str | os.PathLike[str] | None, write: Callable[[], object]) -> OSError | None:
    """Has the extension write a file to its end; returns the error of one that cannot be written, which names it.

    The extension's own tells what the system said, and its number in words alone.
    """
    try:
        write()
    except OSError as error:
        told = re.fullmatch(r"(.*) \(os error (\d+)\)", str(error))
        if told is None or error.errno is not None or path is None:
            raise
        number = int(told[2])
        place = "a place with more room" if number in _FULL else "another place"
        why = f"cannot write the {what} {os.fspath(path)!r}: {told[1]}; name {place}, or run without it"
        return OSError(number, why)
    return None


def _check(path: str) -> None:
    # Nothing is opened: that would wait for the reader of a pipe, and leave an empty file where there was none.
    try:
        os.stat(path)
        place = path
    except FileNotFoundError:
        place = os.path.dirname(os.path.realpath(path)) if path else ""
        os.stat(place)
    else:
        if os.path.isdir(path):
            raise _error(errno.EISDIR)
    if not os.access(place, os.W_OK):
        raise _error(errno.EACCES)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
