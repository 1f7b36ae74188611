"""What is resident on a device."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from . import _torch_seam as seam
from ._budget import live_tensors
from ._stage import allocated_bytes


def resident(device: torch.device, hidden: Iterable[dict[int, int]] = ()) -> int:
    """Bytes of all tensors on a device, each storage counted once.

    ``hidden``: bytes by storage of what Python may not see.
    """
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    found = {storage: size for part in hidden for storage, size in part.items()}
    for tensor in live_tensors():
        real = seam.TensorBase.untyped_storage(tensor).device.type == device.type  # the compiler's have no memory
        if real and seam.device_name(tensor.device) == seam.device_name(device):
            found[seam.storage_id(tensor)] = allocated_bytes(tensor)
    return sum(found.values())
