"""What is resident on a device."""

from __future__ import annotations

import torch

from . import _torch_seam as seam
from ._budget import live_tensors
from ._stage import allocated_bytes


def resident(device: torch.device) -> int:
    """Bytes of all tensors on a device, each storage counted once."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    found: dict[int, int] = {}
    for tensor in live_tensors():
        if seam.device_name(tensor.device) == seam.device_name(device):
            found[seam.storage_id(tensor)] = allocated_bytes(tensor)
    return sum(found.values())
