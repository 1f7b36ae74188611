"""Files that a command writes: where they lie, and whether they can be written, before anything runs."""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress

from ._online.endings import put_off


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


#: Numbers of the system where nothing can be written beside a file, or take its place, though it can be written itself.
_NOT_BESIDE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENAMETOOLONG)

#: Files that are written into now.
_written_into: set[str] = set()


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file: until it is whole it is called ``PATH.partial``, and what was there stays.

    A link stays, and its target is written. Devices and pipes are written into, and so is a file in a folder where no
    other can be made. ``OSError`` if it cannot be written; nothing stays of it then.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        _write_into(path, data)
        return
    target = os.path.realpath(path)
    try:
        with put_off():
            _write_beside(target, data)
    except OSError as error:
        if error.errno not in _NOT_BESIDE:
            raise
        _write_into(target, data)


def _write_into(path: str | os.PathLike[str], data: bytes) -> None:
    place = os.path.abspath(path)
    if place in _written_into:
        # A signal ends the program while this waits for the reader of a pipe, who may never come.
        raise _error(errno.EINTR)
    _written_into.add(place)
    try:
        with open(place, "wb") as file:
            file.write(data)
    finally:
        _written_into.discard(place)


def _write_beside(path: str, data: bytes) -> None:
    descriptor, partial = _beside(path)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:  # an interrupt too
        with suppress(OSError):
            os.unlink(partial)
        raise


def _beside(path: str) -> tuple[int, str]:
    """A new file beside a path, opened, and its name."""
    for number in itertools.count():
        partial = f"{path}.{number}.partial" if number else f"{path}.partial"
        with suppress(FileExistsError):
            return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), partial
    raise AssertionError


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
