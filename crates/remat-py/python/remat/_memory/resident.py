"""Bytes resident on a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .._torch_internals import eager
from .tensors import live_tensors


def resident(device: torch.device, hidden: Iterable[dict[int, int]] = ()) -> int:
    """Bytes of all tensors on a device, each storage counted once.

    ``hidden`` adds storages that Python may not see, such as those that a compiled graph keeps: bytes by storage.
    """
    statistics = eager.statistics_of(device)
    if statistics is not None:
        return statistics.allocated()
    found = {storage: size for part in hidden for storage, size in part.items()}
    for tensor in live_tensors():
        storage = eager.TensorBase.untyped_storage(tensor)
        real = storage.device.type == device.type  # the compiler's have no memory
        if real and eager.device_name(tensor.device) == eager.device_name(device):
            found[storage._cdata] = storage.nbytes()
    return sum(found.values())
