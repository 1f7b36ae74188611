"""The device module of the stand-in, which torch finds as `torch.standin`."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from types import TracebackType

import torch

_library: ctypes.CDLL
default_generators: tuple[torch.Generator, ...] = ()


def register(built: Path) -> None:
    """Makes the stand-in an accelerator of this process, for as long as it lives."""
    global _library, default_generators
    torch.ops.load_library(str(built))
    _library = ctypes.CDLL(str(built))
    _library.standin_register()
    _library.standin_restart_highest.restype = ctypes.c_int64
    _library.standin_launched.restype = ctypes.c_uint64
    _library.standin_was_done.restype = ctypes.c_bool
    torch.utils.rename_privateuse1_backend("standin")
    torch._register_device_module("standin", sys.modules[__name__])
    default_generators = tuple(torch._C._accelerator_getDefaultGenerator(index) for index in range(device_count()))


# What torch asks of a device module.


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return int(_library.standin_devices())


def current_device() -> int:
    return int(_library.standin_current_device())


def set_device(index: int) -> None:
    _library.standin_set_device(index)


def manual_seed_all(seed: int) -> None:
    for generator in default_generators:
        generator.manual_seed(seed)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16]


class device:
    """The current device for a block."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None:
        self._before = current_device()
        set_device(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_device(self._before)


# What the tests ask.


def restart_highest(index: int = 0) -> int:
    """Most bytes allocated since the last call, whoever reset torch's own statistics meanwhile."""
    return int(_library.standin_restart_highest(index))


def set_capacity(index: int, size: int) -> None:
    """The bytes of memory that a device has."""
    _library.standin_set_capacity(index, ctypes.c_uint64(size))


def set_duration(op: str, nanoseconds: int) -> None:
    """The time that an op, such as ``aten::mul``, takes on the device."""
    _library.standin_set_duration(op.encode(), ctypes.c_int64(nanoseconds))


def launched(stream: torch.Stream) -> int:
    """The number of the work that was launched last on a stream."""
    return int(_library.standin_launched(stream.device_index, ctypes.c_int64(stream.stream_id)))


def was_done(stream: torch.Stream, number: int) -> bool:
    """Whether the work up to a number was done; asking does not start it."""
    return bool(
        _library.standin_was_done(stream.device_index, ctypes.c_int64(stream.stream_id), ctypes.c_uint64(number))
    )
