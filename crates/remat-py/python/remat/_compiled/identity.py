"""The identity of the code that chooses cuts. Torch's compile cache hands a graph only to the code that cut it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from .. import _native

# Files and folders of the package whose code decides which values a graph saves and which its kernels compute again.
# A search within a budget is not among them: its choice, the saved values, is part of the key of each graph.
_CHOOSING = (
    *("_compiled/backend.py", "_compiled/capture", "_compiled/fusion"),
    *("_torch_internals/compiler", "_torch_internals/compiled"),
)


def choosing_files(package: Path) -> list[Path]:
    """The Python files, under the folder of the package, that choose cuts; in an order that is always the same."""
    found = []
    for name in _CHOOSING:
        path = package / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def identity_of(package: Path, native: Path) -> bytes:
    """A digest of the Python files that choose cuts and of the library that holds the planner.

    The library counts with its bytes: two builds of a source tree may have one version and different planners.
    """
    digest = hashlib.sha256()
    for file in (*choosing_files(package), native):
        digest.update(file.read_bytes())
    return digest.digest()


@cache
def identity() -> bytes:
    """The identity of the code that runs in this process."""
    native = Path(_native.__file__)
    return identity_of(native.parent, native)
