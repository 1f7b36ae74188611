"""The probe of the caching allocator that serves tensors of main memory within a budget.

``crates/remat-py/src/ffi/caching.rs`` puts an allocator of Remat's in the place of torch's own, as
``c10::SetCPUAllocator`` allows. Here its memory is given to tensors, resized and freed before anything else uses it.
Where there are differences, torch's allocator stays: bits and peaks are the same, and the process holds more memory.
"""

from __future__ import annotations

import functools
import platform
import sys
from pathlib import Path

import torch

from ... import _native

#: The smallest block that the allocator serves: a budget of little is entered with little.
_BYTES = 32 << 10

#: Whether the system and the processor are those for which the allocator is made.
CACHING_PLATFORM = sys.platform.startswith("linux") and platform.machine() == "x86_64"


@functools.cache
def prepare_caching() -> str | None:
    """Prepares the caching allocator, once; the reason if it cannot be used."""
    try:
        _native.register_caching(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    except (RuntimeError, OSError) as error:
        return str(error)
    tried = [_serves_and_takes_back() for _ in range(3)]  # another thread may get memory meanwhile
    if None in tried:
        return "another allocator than torch's own is in use"
    return None if any(tried) else f"torch {torch.__version__}: the allocator that was set is not as Remat knows it"


def _serves_and_takes_back() -> bool | None:
    """Whether tensors get memory, and give it back; ``None`` if torch's allocator is not in use."""
    if not _native.enter_caching(4 * _BYTES):
        return None
    try:
        before = _blocks()
        tensor = torch.full((_BYTES,), 7, dtype=torch.uint8, device="cpu")
        served = _blocks() - before == _BYTES
        tensor.resize_(2 * _BYTES)
        resized = _blocks() - before == 2 * _BYTES
        copy = tensor[:_BYTES].clone()
        del tensor
        kept = bool((copy == 7).all()) and _blocks() - before == _BYTES
        del copy
        freed = _blocks() == before
    finally:
        _native.leave_caching()
    return served and resized and kept and freed


def _blocks() -> int:
    """Bytes of all blocks."""
    read = _native.read_caching()
    assert read is not None
    return read[0]
